"""What needs rights, as root in the pod's init container ``guest-setup``; the machine itself then has none.

The tap device and the rules of the guest's network, and the images on claims and on the node: made sparse where there
are none, and given to the machine's user.
"""

from __future__ import annotations

import os
from pathlib import Path

from minik8s_virtual_machines.launcher import disks, network, paths
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import Disk, Guest, quantity

_LEFT_FREE = 0.055
"""KubeVirt leaves 5.5 % of a claim to its file system (``filesystemOverhead``)."""


def prepare(guest: Guest) -> None:
    """Do it.

    Raises:
        Unusable: something is not there, or cannot be made.
    """
    for folder in (paths.RUN, paths.IMAGES):
        os.chown(folder, paths.USER, paths.USER)
        folder.chmod(0o770)
    network.set_up(guest)
    for disk in guest.disks:
        if disk.kind in {"persistentVolumeClaim", "hostDisk"}:
            _image(disk)


def _image(disk: Disk) -> None:
    path = disks.place(disk)
    if path.is_symlink():
        raise Unusable(f"disk {disk.name}: {path.name} is a symbolic link, which could lead anywhere in the pod")
    if not path.exists():
        if disk.kind == "hostDisk" and disk.source.get("type") != "DiskOrCreate":
            raise Unusable(
                f"disk {disk.name}: {disk.source['path']} is not there on this node; type is not DiskOrCreate"
            )
        try:
            disks.make_sparse(path, _size(disk, path.parent))
        except OSError as error:
            raise Unusable(f"disk {disk.name}: cannot make {path.name} on the volume: {error.strerror}") from error
    if disk.is_written and path.stat().st_uid != paths.USER:
        try:
            disks.give(path)
        except OSError as error:
            raise Unusable(
                f"disk {disk.name}: cannot give {path.name} to user {paths.USER}: {error.strerror}"
            ) from error


def _size(disk: Disk, folder: Path) -> int:
    """Return how large a new image becomes; ``pods/`` fills in what the claim asks for, where it knows."""
    asked = quantity(disk.source.get("capacity") or "0")
    if disk.kind == "hostDisk" or asked:
        return asked
    return int(disks.room_for(folder) * (1 - _LEFT_FREE)) & ~0xFFFFF
