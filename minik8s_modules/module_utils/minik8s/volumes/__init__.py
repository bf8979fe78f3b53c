"""Directories, files and mounts that containers see: the sections ``volumes`` and ``secrets``.

``volume_entries`` checks what is declared, ``volume_files`` writes it, ``secrets`` keeps values on a tmpfs only.
"""
