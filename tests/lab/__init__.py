"""A lab of throw-away machines on this host: ``lab.Lab`` for tests, ``python -m tests.lab`` for people.

``lab.py`` says what a lab can do. A node is a process tree below one supervisor (``supervisor.py``): a User-Mode-Linux
kernel or systemd in namespaces (``boots.py``). All that a lab is stands in files (``records.py``), written before the
effect, so that any later command finds it.
"""
