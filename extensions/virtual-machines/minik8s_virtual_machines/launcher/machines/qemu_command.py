"""QEMU's command line. Pure.

What users wrote comes in JSON (``-blockdev``, ``-device``), where a comma is a comma.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from minik8s_virtual_machines.launcher import paths
from minik8s_virtual_machines.launcher.disks import Image
from minik8s_virtual_machines.launcher.guest import Guest

BALLOON = PurePosixPath("/machine/peripheral/balloon0")
"""The balloon among QEMU's objects, which tells of the guest's memory."""
_TCG = "tcg,thread=single,tb-size=64"  # MiB of translated code; by default it may become 1 GiB


def command(guest: Guest, images: Sequence[Image], run: Path, *, kvm: bool, paused: bool) -> list[str]:
    """Return program and arguments."""
    return [
        str(paths.QEMU),
        *("-name", f"guest={guest.namespace}_{guest.name}"),
        *("-L", "/usr/share/qemu", "-L", "/usr/share/seabios"),
        *("-M", "q35,hpet=off,usb=off", "-accel", "kvm" if kvm else _TCG),
        *("-cpu", guest.cpu_model or ("host" if kvm else "max")),
        *("-smp", f"{guest.cpus},sockets={guest.threads[0]},cores={guest.threads[1]},threads={guest.threads[2]}"),
        *("-m", f"{guest.memory_bytes >> 20}M"),
        *(["-uuid", guest.uuid] if guest.uuid else []),
        *("-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
        *("-qmp", f"unix:{run}/qmp.sock,server=on,wait=off"),
        *(["-S"] if paused else []),
        *_serial(guest, run),
        *_display(guest, run),
        *_agent(run),
        *_network(guest),
        *_kernel(guest),
        *_disks(images),
    ]


def _device(driver: str, **properties: Any) -> list[str]:
    found = {name: value for name, value in properties.items() if value not in {None, ""}}
    return ["-device", json.dumps({"driver": driver, **found})]


def _serial(guest: Guest, run: Path) -> list[str]:
    if not guest.serial:
        return []
    chardev = f"socket,id=serial0,path={run}/serial.sock,server=on,wait=off"
    return ["-chardev", chardev, *_device("isa-serial", chardev="serial0")]


def _display(guest: Guest, run: Path) -> list[str]:
    if not guest.graphics:
        return []
    return [*_device("VGA"), "-vnc", f"unix:{run}/vnc.sock"]


def _agent(run: Path) -> list[str]:
    return [
        *("-chardev", f"socket,id=agent0,path={run}/agent.sock,server=on,wait=off"),
        *_device("virtio-serial-pci"),
        *_device("virtserialport", chardev="agent0", name="org.qemu.guest_agent.0"),
    ]


def _network(guest: Guest) -> list[str]:
    more = _device("virtio-balloon-pci", id=BALLOON.name) + (_device("virtio-rng-pci") if guest.rng else [])
    if guest.interface is None:
        return more
    model = "virtio-net-pci" if guest.interface.model == "virtio" else guest.interface.model
    no_rom = ["-global", f"{model}.romfile="]  # a guest boots from disks; spares a package
    netdev = "tap,id=net0,ifname=tap0,script=no,downscript=no"
    return [*more, *no_rom, "-netdev", netdev, *_device(model, netdev="net0", mac=guest.interface.mac)]


def _kernel(guest: Guest) -> list[str]:
    if not guest.kernel:
        return []
    found = ["-kernel", str(paths.KERNEL / "kernel")] if guest.kernel.get("kernelPath") else []
    found += ["-initrd", str(paths.KERNEL / "initrd")] if guest.kernel.get("initrdPath") else []
    return [*found, *(["-append", " ".join(guest.kernel_arguments)] if guest.kernel_arguments else [])]


def _disks(images: Sequence[Image]) -> Iterator[str]:
    if any(image.disk.bus == "scsi" for image in images):
        yield from _device("virtio-scsi-pci", id="scsi0")
    ports = 0
    for number, image in enumerate(images):
        yield from ("-blockdev", json.dumps(_block(number, image)))
        bus = None
        if image.disk.bus == "sata":
            bus, ports = f"ide.{ports}", ports + 1
        elif image.disk.bus == "scsi":
            bus = "scsi0.0"
        yield from _device(
            _driver(image),
            drive=f"disk{number}",
            bus=bus,
            serial=image.disk.serial,
            bootindex=number + 1,
            **({"write-cache": "off"} if image.disk.cache == "writethrough" else {}),
            id=f"ua-{image.disk.name}",
        )


def _driver(image: Image) -> str:
    if image.disk.bus == "virtio":
        return "virtio-blk-pci"
    return {"sata": "ide", "scsi": "scsi"}[image.disk.bus] + ("-cd" if image.disk.cdrom else "-hd")


def _block(number: int, image: Image) -> dict[str, Any]:
    """Return the block device."""
    cache = {"direct": image.disk.cache == "none"}
    return {
        "driver": image.format,
        "node-name": f"disk{number}",
        "read-only": not image.disk.is_written,
        "discard": "unmap",
        "cache": cache,
        "file": {"driver": "file", "filename": str(image.path), "cache": cache},
    }
