"""What a machine's own NFS server exports, as exports(5) and the kernel's table write it."""

from __future__ import annotations

import os

from .mounts import unescape

TABLE = "/var/lib/nfs/etab"
Pair = tuple[str, str]


def pairs_of(text: str) -> frozenset[Pair]:
    """Return (folder, client) of each line of our exports file or of the kernel's table, which escapes blanks."""
    found: set[Pair] = set()
    for line in text.splitlines():
        words = [] if line.startswith("#") else line.split()
        found.update((unescape(words[0]), each.partition("(")[0]) for each in words[1:])
    return frozenset(found)


def is_exported(path: str, table: str = TABLE) -> bool:
    """Return whether the kernel's server exports ``path`` to anybody; True where it keeps no table (another server)."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as source:
            folders = {folder for folder, _ in pairs_of(source.read())}
    except FileNotFoundError:
        return True
    return any(os.path.commonpath([path, folder]) == folder for folder in folders if folder.startswith("/"))
