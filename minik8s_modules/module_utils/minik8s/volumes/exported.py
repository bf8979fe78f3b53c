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


def clients(path: str, table: str = TABLE) -> list[str] | None:
    """Return whom the kernel's server exports ``path`` to; None where it keeps no table (another server)."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as source:
            pairs = pairs_of(source.read())
    except FileNotFoundError:
        return None
    above = {(folder, client) for folder, client in pairs if folder.startswith("/")}
    return sorted({client for folder, client in above if os.path.commonpath([path, folder]) == folder})
