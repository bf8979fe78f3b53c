"""What pods use of the node's disk: their emptyDir volumes, writable layers and logs.

Counted are blocks, as du does, each file once; a walk that takes too long tells nothing rather than too little.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import Any

from ..core import labels
from ..core.docker import Docker
from ..core.paths import volume_path

LIMIT_S = 10.0
BLOCK = 512  # st_blocks counts these, whatever the file system's own (stat(2))


class TooLong(Exception):
    """The walk did not end in time."""


def disk_usage(path: str, end: float) -> int:
    """Return the bytes below ``path``; other file systems mounted there are left out.

    Raises:
        TooLong: it is after ``end`` (monotonic).
    """
    try:
        top = os.lstat(path)
    except OSError:
        return 0
    total, seen, todo = top.st_blocks * BLOCK, {(top.st_dev, top.st_ino)}, [path]
    while todo:
        if time.monotonic() > end:
            raise TooLong
        for found in _entries(todo.pop()):
            key = (found[1].st_dev, found[1].st_ino)
            if key in seen or found[1].st_dev != top.st_dev:
                continue
            if found[1].st_nlink > 1 or stat.S_ISDIR(found[1].st_mode):
                seen.add(key)
            total += found[1].st_blocks * BLOCK
            if stat.S_ISDIR(found[1].st_mode):
                todo.append(found[0])
    return total


def _entries(path: str) -> Iterable[tuple[str, os.stat_result]]:
    try:
        with os.scandir(path) as rows:
            for row in rows:
                try:
                    yield row.path, row.stat(follow_symlinks=False)
                except OSError:
                    continue  # it is gone
    except OSError:
        return


def volumes_used(state_dir: str, run_dir: str, keys: Iterable[str], limit_s: float = LIMIT_S) -> dict[str, int | None]:
    """Return the bytes of each emptyDir on disk, ``<pod uid>/<volume>``; None for one that took too long."""
    end = time.monotonic() + limit_s
    found: dict[str, int | None] = {}
    for key in keys:
        uid, _, volume = key.partition("/")
        try:
            found[key] = disk_usage(volume_path(state_dir, run_dir, uid, volume, "emptyDir"), end)
        except TooLong:
            found[key] = None
    return found


def containers_used(docker: Docker, node: str, uids: Iterable[str]) -> dict[str, int]:
    """Return the bytes of writable layer and log of each container, ``<pod uid>/<container>``, of the pods ``uids``."""
    found: dict[str, int] = {}
    for uid in uids:
        for each in docker.containers({labels.NODE: node, labels.POD_UID: uid}):
            if each["Labels"].get(labels.TYPE) == labels.SANDBOX:
                continue
            key = f"{uid}/{each['Labels'].get(labels.CONTAINER, '')}"
            seen = docker.call("GET", f"/containers/{each['Id']}/json", query={"size": "1"})
            found[key] = found.get(key, 0) + int(seen.get("SizeRw") or 0) + _log_bytes(seen)
    return found


def _log_bytes(seen: dict[str, Any]) -> int:
    path = str(seen.get("LogPath") or "")
    if not path:
        return 0
    folder, name = os.path.split(path)
    return sum(
        status.st_blocks * BLOCK for where, status in _entries(folder) if os.path.basename(where).startswith(name)
    )
