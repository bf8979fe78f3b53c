"""The images of a guest's disks: where they are, and those that are made at its start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minik8s_virtual_machines.launcher import iso9660, paths
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import Disk, Guest, bootable_first, quantity

RAW, QCOW2 = "raw", "qcow2"
_QCOW2_MAGIC = b"QFI\xfb"
_BOOT_SIGNATURE, _FIRST_PARTITION = 510, 446
_LABELS = {"cloudInitNoCloud": "cidata", "configMap": "cfgdata", "secret": "cfgdata"}
# KubeVirt takes these names of a Secret's keys for one and the same
_USER_DATA, _NETWORK_DATA = ("userdata", "userData"), ("networkdata", "networkData")


class Image(NamedTuple):
    """A disk and the file it is."""

    disk: Disk
    path: Path
    format: str


def place(disk: Disk) -> Path:
    """Return where a disk's image is in the pod."""
    if disk.kind == "hostDisk":
        return paths.VOLUMES / disk.name / Path(str(disk.source["path"])).name
    if disk.kind == "persistentVolumeClaim":
        return paths.VOLUMES / disk.name / "disk.img"
    if disk.kind == "containerDisk":
        return paths.IMAGES / disk.name
    return paths.IMAGES / f"{disk.name}.img"


def make(guest: Guest) -> list[Image]:
    """Make what is made at each start, and return the images in the guest's order.

    Raises:
        Unusable: there is no image, or the source of one cannot become a disk.
    """
    for disk in guest.disks:
        if disk.kind in _LABELS:
            place(disk).write_bytes(iso9660.image(_files(guest, disk), _label(disk)))
        elif disk.kind == "emptyDisk":
            make_sparse(place(disk), quantity(disk.source.get("capacity") or "0"))
    return [_image(disk) for disk in bootable_first(guest.disks)]


def make_sparse(path: Path, size: int) -> bool:
    """Make a file that takes no room yet, unless there is one; return whether it was made."""
    if path.exists():
        return False
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.truncate(size)
    partial.replace(path)
    return True


def _label(disk: Disk) -> str:
    return str(disk.source.get("volumeLabel") or _LABELS[disk.kind])


def _image(disk: Disk) -> Image:
    path = place(disk)
    if disk.kind == "containerDisk":
        path = _only_file(path, disk)
    if not path.is_file():
        raise Unusable(f"disk {disk.name}: there is no image {path}")
    return Image(disk, path, format_of(path))


def _only_file(folder: Path, disk: Disk) -> Path:
    found = sorted(path for path in folder.glob("*") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "nothing"
        raise Unusable(f"disk {disk.name}: /disk of image {disk.source.get('image')} must hold one file, has {names}")
    return found[0]


def format_of(path: Path) -> str:
    """Return ``raw`` or ``qcow2``, by the file's first bytes."""
    with path.open("rb") as file:
        return QCOW2 if file.read(4) == _QCOW2_MAGIC else RAW


def refuse_foreign_base(path: Path) -> None:
    """Refuse a qcow2 that names another file to read from: that would be any file of the pod.

    Raises:
        Unusable: it does.
    """
    with path.open("rb") as file:
        header = file.read(112)
    has_base = int.from_bytes(header[8:16], "big")
    incompatible = int.from_bytes(header[72:80], "big") if int.from_bytes(header[4:8], "big") >= 3 else 0  # noqa: PLR2004
    if has_base or incompatible & 4:  # a backing file, an external data file
        raise Unusable(f"{path.name} is a qcow2 on top of another file; flatten it by: qemu-img convert -O qcow2")


def root_device(path: Path) -> str:
    """Return what the first disk's root is called in a User-Mode Linux: the disk, or its first partition."""
    with path.open("rb") as file:
        sector = file.read(512)
    is_parted = sector[_BOOT_SIGNATURE:] == b"\x55\xaa" and sector[_FIRST_PARTITION + 4] != 0
    return "/dev/ubda1" if is_parted else "/dev/ubda"


def _files(guest: Guest, disk: Disk) -> dict[str, bytes]:
    folder = paths.SOURCES / disk.name
    if disk.kind != "cloudInitNoCloud":
        return {path.name: path.read_bytes() for path in _keys(folder)}
    found = {
        "meta-data": f"instance-id: {guest.name}.{guest.namespace}\nlocal-hostname: {guest.hostname}\n".encode(),
        "user-data": _first(folder / "user", _USER_DATA) or b"",
    }
    network = _first(folder / "network", _NETWORK_DATA)
    return found if network is None else found | {"network-config": network}


def _keys(folder: Path) -> Iterable[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("..")]


def _first(folder: Path, names: Iterable[str]) -> bytes | None:
    return next(((folder / name).read_bytes() for name in names if (folder / name).is_file()), None)


def give(path: Path) -> None:
    """Give a file to the machine's user."""
    os.chown(path, paths.USER, paths.USER)
    path.chmod(0o660)


def room_for(path: Path) -> int:
    """Return how many bytes a folder's file system has in all."""
    return shutil.disk_usage(path).total
