"""Files that are either whole or absent: written beside their place, then renamed over it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

TEMPORARY = ".minik8s-tmp-"


def temporary_for(path: str) -> str:
    """Return the name a file has while it is written; a killed run's leftover is overwritten by the next one."""
    folder, name = os.path.split(path)
    return os.path.join(folder, TEMPORARY + name)


def write_atomically(path: str, data: bytes, mode: int = 0o600, *, sync: bool = False) -> None:
    """Replace ``path`` by ``data``; a crash leaves the old or the new content.

    ``sync`` forces it to disk first (what must survive a power loss). Parent directories are made, mode 0700. Two
    writers of one path must not meet; the node's lock sees to that.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = temporary_for(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as out:
        os.fchmod(out.fileno(), mode)
        out.write(data)
        out.flush()
        if sync:
            os.fsync(out.fileno())
    os.replace(temporary, path)
    if sync:
        _sync_directory(os.path.dirname(path))


def _sync_directory(folder: str) -> None:
    """Force a rename to disk: without it a power loss may bring the older file back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: str) -> None:
    """Delete temporary files that a killed run left in ``folder``; call it under the node's lock."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(TEMPORARY):
                os.unlink(os.path.join(folder, name))


def read_bytes(path: str) -> bytes | None:
    """Return the file's bytes, or None when there is no such file."""
    try:
        with open(path, "rb") as source:
            return source.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_json(path: str) -> Any:
    """Return the file's JSON value, or None when it is missing or no JSON."""
    data = read_bytes(path)
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None


def remove_file(path: str) -> None:
    """Delete a file; a missing one is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
