"""What a node's kernel tells of changes that nobody here made: stock programs, read as they speak.

Data passes from ``watches.py``, which keeps the programs running, through ``reading.py``, which says what a line is
about, to the loop, which looks at the sections concerned.
"""
