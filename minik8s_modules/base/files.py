"""Files that change while daemons run: whether they have (certificates, keys, inventories), and how one is replaced."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[tuple[int, int, int], ...]


def stamp(*paths: Path) -> Stamp:
    """Return a value that changes when one of the files is written or replaced. Raises OSError when one is missing."""
    return tuple([(found.st_mtime_ns, found.st_size, found.st_ino) for found in [path.stat() for path in paths]])


def stamp_if_there(*paths: Path) -> Stamp:
    """Return the ``stamp`` of the files, () while one of them cannot be found."""
    try:
        return stamp(*paths)
    except OSError:
        return ()


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all: a reader never sees half of it, and a crash leaves the old one.

    Args:
        path: In an existing folder; names beside it that begin with ``.`` are this function's.
        data: What is to be in it.
        mode: Its permissions, whatever the process' umask is.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    beside = path.with_name(f".{path.name}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(data)
    beside.replace(path)
