"""A guest of QEMU, by TCG, shows each promise once: Debian's cloud kernel, with Debian's guest agent."""

from __future__ import annotations

import json
import subprocess

from tests.integration.virtual_machines.conftest import BOOT_S, Guests
from tests.support.docker.virt_launcher import launcher_image
from tests.support.docker.vm_guests import QEMU_BOOT, image_of, qemu_boot
from tests.support.node import SOCKET


def test_a_guest_of_qemu_boots_serves_and_obeys(guests: Guests):
    launcher_image(SOCKET, qemu=True)
    image_of(QEMU_BOOT, qemu_boot())
    container = {"image": QEMU_BOOT, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
    boot = {"kernelArgs": "console=ttyS0 panic=-1 mitigations=off", "container": container}
    of = guests.vmi("pc", {"name": "data", "emptyDisk": {"capacity": "8Mi"}})
    of["spec"]["domain"] |= {
        "machine": {"type": "q35"},
        "memory": {"guest": "192Mi"},
        "firmware": {"kernelBoot": boot},
    }
    of["spec"]["volumes"][0] = {"name": "root", "cloudInitNoCloud": {"userData": "#cloud-config\nhostname: greta\n"}}
    of["spec"]["domain"]["devices"]["disks"][0] = {"name": "root", "cdrom": {"bus": "scsi"}}
    of["spec"]["domain"]["devices"]["disks"][1]["serial"] = "S-1"
    of["spec"]["readinessProbe"] = {"guestAgentPing": {}, "periodSeconds": 2, "timeoutSeconds": 20}
    name = guests.boot(of)
    assert json.loads(guests.ctl(name, "status").stdout)["agentConnected"], "the probe asks the agent"
    guests.cluster.until(lambda: guests.http(name) == "greta\n", BOOT_S)
    assert "S-1" in guests.type(name, "cat /sys/block/vda/serial")

    assert json.loads(guests.ctl(name, "guestosinfo").stdout)["hostname"] == "greta"
    addresses = [
        each for one in json.loads(guests.ctl(name, "interfaces").stdout) for each in one.get("ip-addresses", [])
    ]
    assert "10.0.2.2" in [each["ip-address"] for each in addresses]

    freezes(guests, name)
    guests.ctl(name, "pause")
    assert guests.http(name) is None
    guests.ctl(name, "unpause")
    guests.cluster.until(lambda: guests.http(name) is not None, BOOT_S)

    container_id = guests.cluster.container(name)["containerID"].removeprefix("docker://")
    screen = subprocess.run(
        ["docker", "exec", container_id, "/usr/bin/vmctl", "screenshot"], capture_output=True, check=True
    )
    assert screen.stdout.startswith(b"\x89PNG")
    script = "printf 'RFB' | /usr/bin/vmctl vnc | head -c 12"
    display = ["docker", "exec", container_id, "/bin/busybox", "sh", "-c", script]
    assert subprocess.run(display, capture_output=True, check=False).stdout.startswith(b"RFB 003.")

    before = guests.http(name, "/boot")
    guests.ctl(name, "softreboot")  # the button; the launcher starts the machine again that ends by it
    guests.cluster.until(lambda: (guests.http(name, "/boot") or before) != before, BOOT_S)
    figures = json.loads(guests.ctl(name, "status").stdout)["figures"]
    assert figures["resident_bytes"] > 64 << 20
    assert figures["cpu_seconds"] > 1

    guests.type(name, "(sleep 3; poweroff -f) &")
    assert guests.phase(name, "Succeeded", "Failed")["message"] == "the guest powered itself off"


def freezes(guests: Guests, name: str) -> None:
    """See that a frozen file system takes no write, and goes on where it was."""
    guests.type(name, "mke2fs /dev/vda >/dev/null; mkdir -p /mnt; mount -t ext4 /dev/vda /mnt")
    assert "/mnt" in guests.type(name, "cat /proc/mounts")
    guests.ctl(name, "freeze")
    guests.type(name, "(echo written >/mnt/file; echo through >/www/through) &")
    assert guests.http(name, "/through") is None
    guests.ctl(name, "unfreeze")
    guests.cluster.until(lambda: guests.http(name, "/through") == "through\n", BOOT_S)
    assert json.loads(guests.ctl(name, "filesystemlist").stdout)["items"][0]["mountPoint"] == "/mnt"
