"""A VirtualMachine by the whole extension, on a real node: it answers behind a Service, and its claim stays."""

from __future__ import annotations

from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.kinds import VM
from tests.integration.virtual_machines.conftest import BOOT_S, Guests
from tests.support.machines_world import Machines


def claimed(folder: Path) -> tuple[JsonObject, JsonObject]:
    """Return a volume in a folder of the node, and the claim that has it."""
    room, access = {"storage": "8Mi"}, ["ReadWriteOnce"]
    volume = {
        "metadata": {"name": "disk"},
        "spec": {"capacity": room, "accessModes": access, "hostPath": {"path": str(folder)}, "storageClassName": ""},
    }
    claim = {
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {"resources": {"requests": room}, "accessModes": access, "volumeName": "disk", "storageClassName": ""},
    }
    return volume, claim


def test_a_machine_serves_behind_a_service_and_finds_its_disk_again(
    guests: Guests, machines: Machines, tmp_path: Path
) -> None:
    cluster, admin = guests.cluster, guests.cluster.admin
    folder = tmp_path / "volume"
    folder.mkdir()
    volume, claim = claimed(folder)
    admin.create(PERSISTENT_VOLUME, volume)
    admin.create(PERSISTENT_VOLUME_CLAIM, claim)
    guests.machine("one", {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}})
    service = {
        "metadata": {"name": "guest", "namespace": "default"},
        "spec": {"selector": {"app": "one"}, "ports": [{"port": 80}]},
    }
    admin.create(SERVICE, service)

    machines.wait("one", "Running", timeout_s=BOOT_S)
    first = guests.pod_of("one")
    cluster.until(lambda: guests.http(first) == "guest\n", BOOT_S)
    address = admin.get(SERVICE, "guest", "default")["spec"]["clusterIP"]
    cluster.until(lambda: guests.ask(address) == "guest\n", BOOT_S)
    assert (folder / "disk.img").stat().st_size == 8 << 20
    guests.type(first, "printf kept > /tmp/x; dd if=/tmp/x of=/dev/ubdb conv=fsync,notrunc")

    admin.patch(VM, "one", "default", {"spec": {"runStrategy": "Halted"}})
    cluster.until(lambda: machines.printable("one") == "Stopped" and not machines.pods("one"), BOOT_S)
    admin.patch(VM, "one", "default", {"spec": {"runStrategy": "Always"}})
    machines.wait("one", "Running", timeout_s=BOOT_S)
    second = guests.pod_of("one")
    assert second != first
    cluster.until(lambda: str(guests.http(second, "/ubdb") or "").startswith("kept"), BOOT_S)


def test_what_a_guest_lacks_stands_in_the_conditions_of_its_machine(
    guests: Guests, machines: Machines, tmp_path: Path
) -> None:
    """Its image, its claim, its disk on the node, a disk within its image, and room on a node."""
    guests.machine("unpulled", image="127.0.0.1:1/none:1")
    guests.machine("unclaimed", {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}})
    guests.machine("undisked", {"name": "data", "hostDisk": {"path": f"{tmp_path}/none.img", "type": "Disk"}})
    guests.machine("empty", image="minik8s/busybox:1")
    guests.machine("huge", memory={"guest": "64Ti"})

    def told(name: str) -> str:
        found = objects.condition(machines.vm(name), "Ready") or {}
        return f"{machines.printable(name)} {found.get('reason')}: {found.get('message')}"

    wanted: dict[str, tuple[str, ...]] = {
        "unpulled": ("ErrImagePull", "ImagePullBackOff", "127.0.0.1:1/none:1"),
        "unclaimed": ("ErrorPvcNotFound", "PersistentVolumeClaim nowhere not found"),
        "undisked": ("CrashLoopBackOff", "none.img is not there on this node"),
        "empty": ("CrashLoopBackOff", "/disk"),
        "huge": ("ErrorUnschedulable", "nsufficient memory"),
    }

    def all_told() -> bool:
        return all(words[-1] in told(name) for name, words in wanted.items())

    guests.cluster.until(all_told, BOOT_S)
    for name, (*statuses, _) in wanted.items():
        machines.wait(name, *statuses, timeout_s=BOOT_S)
