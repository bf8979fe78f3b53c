"""Volumes with data of their own: NFS mounts and the folders that local PersistentVolumes name.

Nothing here deletes what is in them. Groups are kubelet's (pkg/volume/volume_linux.go, SetVolumeOwnership): a local
volume is given to the pod's fsGroup with all that is in it, an NFS volume is not: who owns its files is the server's
business, and programs have the group beside their own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Callable

from ..core.digests import Entries
from ..core.faults import KeyFault
from ..core.paths import MOUNTS
from ..core.section import Facets, Plan, Step
from . import hostpath, mounts, nfs

FILE_BITS, FOLDER_BITS = 0o660, 0o2770  # kubelet's rwMask; execMask and setgid
Checkpoint = Callable[[str], None]
Groups = Mapping[str, frozenset[str]]
"""By path, the groups that any pod of the node wants a local volume to have."""


def is_mount_point(path: str) -> bool:
    """Return whether a volume at ``path`` is a mount point of somebody else's data."""
    return os.path.basename(os.path.dirname(path)) == MOUNTS


def plan_nfs(plan: Plan, key: str, path: str, entry: Mapping[str, Any], seen: tuple[Facets | None, str]) -> None:
    """Plan an NFS volume; ``seen`` is what the kernel shows there and what the server answered (nfs.answer)."""
    before, answered = seen
    wanted = {"nfs": nfs.source(entry)}
    if before == wanted and answered == nfs.SILENT:
        plan.errors[key] = nfs.silent_fault(entry["server"])
    elif before != wanted or answered == nfs.STALE:
        shown = {**before, "state": nfs.STALE} if before == wanted else before
        plan.steps.append(Step("attach", key, f"{nfs.source(entry)} on {path}", (path, entry)))
        plan.differs(key, shown, wanted)


def attach(checkpoint: Checkpoint, path: str, entry: Mapping[str, Any]) -> None:
    """Make the mount point and mount; what was mounted there ends with its last user."""
    checkpoint("make mount point")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if not nfs.is_mounted(path):
        os.makedirs(path, mode=0o750, exist_ok=True)
    _unmount(checkpoint, path)
    checkpoint("mount volume")
    nfs.mount(path, entry)


def detach(checkpoint: Checkpoint, path: str) -> None:
    """Take a mount and its point away; a folder that still holds anything stays, whatever it is."""
    _unmount(checkpoint, path)
    checkpoint("remove mount point")
    os.rmdir(path)


def _unmount(checkpoint: Checkpoint, path: str) -> None:
    for mount in mounts.under(nfs.real(path), mounts.mounts()):
        checkpoint("unmount volume")
        mounts.unmount(mount.point)


def look_local(path: str) -> Facets:
    """Return what stands where a local volume is to be, and the group that it was given to."""
    found = {"local": path, "is": hostpath.kind_of(path)}
    if found["is"] != "directory":
        return found
    status = os.stat(path)
    return {**found, "group": str(status.st_gid)} if status.st_mode & stat.S_ISGID else found


def groups(entries: Entries) -> Groups:
    """Return which groups the pods of the node want the folders of local volumes to have."""
    found: dict[str, frozenset[str]] = {}
    for entry in entries.values():
        if entry["kind"] == "local" and entry.get("fs_group") is not None:
            found[entry["path"]] = found.get(entry["path"], frozenset()) | {str(entry["fs_group"])}
    return found


def plan_local(plan: Plan, key: str, entry: Mapping[str, Any], before: Facets, wanted: Groups) -> None:
    """Plan a local volume: it must be there, and belong to the pod's group.

    Where several pods have it, the group of any of them will do: the first has given it away, as with a kubelet
    (pkg/volume/local/local.go, SetUpAt). Each would else take it from the other for ever.
    """
    if before["is"] != "directory":
        what = "does not exist" if before["is"] == hostpath.MISSING else f"is a {before['is']}, not a directory"
        plan.errors[key] = KeyFault("FailedMount", f'path "{entry["path"]}" {what}')
        return
    group = entry.get("fs_group")
    if group is not None and before.get("group") not in {str(group), *wanted.get(entry["path"], ())}:
        plan.steps.append(Step("own", key, f"group {group} of {entry['path']}", (entry["path"], group)))
        plan.differs(key, before, {**before, "group": str(group)})


def own(checkpoint: Checkpoint, path: str, group: int) -> None:
    """Give a folder and all in it to a group, the folder last: after a kill in between it is done again."""
    checkpoint("give volume to its group")
    for _folder, folders, files, held in os.fwalk(path, topdown=False):
        for name in (*folders, *files):
            _give(name, held, group)
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchown(held, -1, group)
        os.fchmod(held, stat.S_IMODE(os.fstat(held).st_mode) | FOLDER_BITS)
    finally:
        os.close(held)


def _give(name: str, folder: int, group: int) -> None:
    """Give one file or folder; a link is left alone, and is followed by nobody who could be led elsewhere by it."""
    try:
        held = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:  # a link, a socket, or gone meanwhile
        return
    try:
        status = os.fstat(held)
        bits = FOLDER_BITS if stat.S_ISDIR(status.st_mode) else FILE_BITS
        if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
            os.fchown(held, -1, group)
            os.fchmod(held, stat.S_IMODE(status.st_mode) | bits)
    finally:
        os.close(held)
