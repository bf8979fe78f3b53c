"""What QEMU does before a guest has any system: its disk is a boot sector that says which it is and stands still."""

from __future__ import annotations

import copy
import os
import signal
from pathlib import Path

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.kinds import VM
from tests.integration.virtual_machines.conftest import BOOT_S, UML, Guests
from tests.support.docker.virt_launcher import launcher_image
from tests.support.docker.vm_guests import disk_image, sector_disk
from tests.support.machines_world import Machines
from tests.support.node import SOCKET

NAMES = ("alpha", "beta")


@pytest.fixture(scope="module", autouse=True)
def _disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have the launcher's image with QEMU, and a container disk for each name."""
    launcher_image(SOCKET, qemu=True)
    for name in NAMES:
        path: Path = tmp_path_factory.mktemp("disk") / "disk.img"
        path.write_bytes(sector_disk(f"booted from {name}"))
        disk_image(image(name), path)


def image(name: str) -> str:
    """Return the name of a container disk."""
    return f"minik8s/test-sector-{name}:1"


def of_qemu(name: str, *disks: JsonObject) -> JsonObject:
    """Return a machine of QEMU with a container disk for each name of ``NAMES``, declared in that order."""
    made = copy.deepcopy(UML)
    made["metadata"]["name"] = name
    made["spec"]["domain"] |= {"machine": {"type": "q35"}, "memory": {"guest": "32Mi"}}
    made["spec"]["domain"]["devices"] |= {"disks": [*disks]}
    made["spec"]["terminationGracePeriodSeconds"] = 0  # its guest heeds no power button
    made["spec"]["volumes"] = [{"name": each, "containerDisk": {"image": image(each)}} for each in NAMES]
    return made


@pytest.mark.parametrize(("buses", "order", "booted"), [
    (("virtio", "virtio"), (0, 0), "alpha"), (("virtio", "virtio"), (2, 1), "beta"), (("sata", "scsi"), (2, 1), "beta"),
])  # fmt: skip
def test_the_disk_that_boots_is_the_first_by_boot_order(
    guests: Guests, buses: tuple[str, str], order: tuple[int, int], booted: str
) -> None:
    disks = [
        {"name": name, "disk": {"bus": bus}, **({"bootOrder": place} if place else {})}
        for name, bus, place in zip(NAMES, buses, order, strict=True)
    ]
    name = guests.create(of_qemu("ordered", *disks))
    guests.cluster.until(lambda: "booted from" in guests.logs(name) or guests.ended(name), BOOT_S)
    assert f"booted from {booted}" in guests.logs(name), guests.told(name)


def test_a_killed_qemu_is_started_again(guests: Guests, machines: Machines) -> None:
    spec = of_qemu("killed", *({"name": name, "disk": {}} for name in NAMES))["spec"]
    meta = {"name": "killed", "namespace": "default"}
    machines.admin.create(VM, {"metadata": meta, "spec": {"runStrategy": "Always", "template": {"spec": spec}}})
    machines.wait("killed", "Running", timeout_s=BOOT_S)
    first = objects.uid(machines.vmi("killed"))
    os.kill(guests.kernel(guests.pod_of("killed")), signal.SIGKILL)
    seen: set[str] = set()

    def is_another() -> bool:
        seen.add(str((objects.condition(machines.vm("killed"), "Ready") or {}).get("message")))
        return objects.uid(machines.vmi("killed")) not in {"", first}

    guests.cluster.until(is_another, BOOT_S)
    machines.wait("killed", "Running", timeout_s=BOOT_S)
    assert any("QEMU was killed by signal 9" in each for each in seen), seen
