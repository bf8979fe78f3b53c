"""Whether files have changed: certificates, keys and inventories are replaced while daemons run."""

from __future__ import annotations

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
