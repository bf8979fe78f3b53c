"""Sub paths of volumes, held fast between the check and Docker's mount.

Whoever may write into a volume can put a link in the place of a directory at any moment. So the way from the volume's
root is walked with descriptors that follow no link, what was reached is bound at
``<run_dir>/sub-paths/<digest of the container's Docker name>/<number>``, and that is what Docker mounts: kubelet's way
since CVE-2017-1002101. It goes with its container. A boot ends it; such a container is made again, not started again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.faults import KeyFault
from ..volumes import mounts
from .container_spec import Mount

_MISSING_MODE = 0o750  # kubelet's for a missing sub path
_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def folder(run_dir: str, name: str) -> str:
    """Return where the sub paths of the container with that Docker name are bound."""
    return os.path.join(_all(run_dir), hashlib.sha256(name.encode()).hexdigest()[:32])


def _all(run_dir: str) -> str:
    return os.path.join(run_dir, "sub-paths")


def bind(wanted: Iterable[Mount]) -> None:
    """Bind the sub paths of a container about to be created, missing ones made as directories.

    Raises:
        KeyFault: CreateContainerConfigError, what stands there leads elsewhere or cannot be bound.
    """
    for mount in wanted:
        if mount.bound:
            try:
                _bind(mount)
            except OSError as error:
                raise KeyFault(
                    "CreateContainerConfigError", f"subPath for {mount.target} at {mount.source}: {error.strerror}"
                ) from error


def _bind(mount: Mount) -> None:
    held = _walked(mount.root, os.path.relpath(mount.source, mount.root).split(os.sep))
    try:
        os.makedirs(os.path.dirname(mount.bound), mode=0o700, exist_ok=True)
        if stat.S_ISDIR(os.fstat(held).st_mode):
            os.mkdir(mount.bound, 0o700)
        else:
            os.close(os.open(mount.bound, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        mounts.bind(f"/proc/self/fd/{held}", mount.bound)
    finally:
        os.close(held)


def _walked(root: str, parts: list[str]) -> int:
    """Return a descriptor of what ``parts`` lead to from ``root``; no part may be a link."""
    held = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            following = _step(part, held)
        finally:
            os.close(held)
        held = following
        if stat.S_ISLNK(os.fstat(held).st_mode):
            os.close(held)
            raise KeyFault("CreateContainerConfigError", f"{part!r} below {root} has become a symbolic link")
    return held


def _step(part: str, held: int) -> int:
    try:
        return os.open(part, _WALK, dir_fd=held)
    except FileNotFoundError:
        os.mkdir(part, _MISSING_MODE, dir_fd=held)
        return os.open(part, _WALK, dir_fd=held)


def release(run_dir: str, name: str) -> None:
    """Take away what is bound for a container that goes."""
    path = folder(run_dir, name)
    if not os.path.isdir(path):
        return
    for mount in mounts.under(path, mounts.mounts()):
        mounts.unmount(mount.point)
    for entry in list(os.scandir(path)):  # one by one: what is still mounted is busy, and stays whole
        (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
    os.rmdir(path)


def lost(run_dir: str, containers: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the ids of containers that cannot start again as they are.

    Their sub paths are bound no more, for this machine was booted since; or what is bound was removed, as a file of a
    ConfigMap is by its update, and the kernel mounts nothing removed.
    """
    ours = _all(run_dir) + os.sep
    bound = {mount.point: mount.kind for mount in mounts.mounts() if mount.point.startswith(ours)}
    wanted = {each["Id"]: [mount["Source"] for mount in each.get("Mounts") or []] for each in containers}
    return frozenset(
        container
        for container, sources in wanted.items()
        if any(
            source.startswith(ours) and (source not in bound or _removed(source, bound[source])) for source in sources
        )
    )


def _removed(path: str, kind: str) -> bool:
    if kind.startswith("nfs"):
        return False  # asking would wait for the server
    try:
        return os.stat(path).st_nlink == 0
    except OSError:
        return True
