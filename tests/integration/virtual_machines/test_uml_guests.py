"""A guest of User-Mode Linux boots in its launcher's pod on a real node, and lives as its pod does."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from pathlib import Path

from minik8s_modules.api.objects import JsonObject
from tests.integration.virtual_machines.conftest import BOOT_S, Guests

USER_DATA = "#cloud-config\nhostname: greta\nssh_authorized_keys:\n  - ssh-ed25519 AAAAC3Nza test\n"
NETWORK_DATA = "version: 2\nethernets:\n  id0:\n    set-name: lan0\n"


def status(guests: Guests, name: str) -> JsonObject:
    return dict(json.loads(guests.ctl(name, "status").stdout))


def test_a_guest_boots_serves_and_obeys(guests: Guests):
    volume = {"name": "seed", "cloudInitNoCloud": {"userData": USER_DATA, "networkData": NETWORK_DATA}}
    name = guests.boot(guests.vmi("one", volume))
    assert guests.http(name) == "greta\n"
    assert guests.http(name, "/keys") == "ssh-ed25519 AAAAC3Nza test\n"
    found = status(guests, name)
    assert (found["phase"], found["paused"], found["machine"]) == ("Running", False, "uml")
    assert found["interfaces"][0]["ipAddress"] == guests.cluster.pod(name)["status"]["podIP"]

    assert "set-name: lan0" in guests.type(name, "cat /run/cidata/network-config")
    assert "typed-42" in guests.type(name, "echo typed-$((6*7))")
    assert "Linux version" in guests.logs(name)  # the console is the container's log as well
    assert re.search(r"nameserver \d", guests.type(name, "cat /etc/resolv.conf"))

    for command, why in (("screenshot", "machine uml has no display"), ("guestosinfo", "agent is not connected")):
        refused = guests.ctl(name, command, check=False)
        assert refused.returncode == 1
        assert why in refused.stderr

    guests.ctl(name, "pause")
    assert status(guests, name)["paused"]
    assert guests.http(name) is None
    guests.ctl(name, "unpause")
    guests.cluster.until(lambda: guests.http(name) is not None, BOOT_S)

    before = guests.http(name, "/boot")
    guests.ctl(name, "softreboot")
    guests.cluster.until(lambda: (guests.http(name, "/boot") or before) != before, BOOT_S)

    guests.cluster.delete(name)
    guests.cluster.until(lambda: guests.cluster.gone(name), BOOT_S)
    assert guests.cluster.node.ids() == []


def test_a_disk_outlives_its_pod_and_has_one_guest_at_a_time(guests: Guests, tmp_path: Path):
    folder = tmp_path / "disks"
    path = str(folder / "data.img")
    volume = {"name": "data", "hostDisk": {"path": path, "type": "DiskOrCreate", "capacity": "4Mi"}}
    first = guests.boot(guests.vmi("first", volume))
    guests.type(first, "printf kept > /tmp/x; dd if=/tmp/x of=/dev/ubdb conv=fsync,notrunc")
    second = guests.create(guests.vmi("second", volume))
    guests.cluster.until(lambda: guests.cluster.container(second).get("state", {}).get("running"), BOOT_S)
    found = status(guests, second)
    assert (found["phase"], found["reason"]) == ("Scheduled", "DiskInUse")
    assert "data.img is in use by another machine" in found["message"]
    guests.cluster.delete(first)
    guests.cluster.until(lambda: status(guests, second)["phase"] == "Running", BOOT_S)
    guests.cluster.until(lambda: guests.http(second, "/ubdb") is not None, BOOT_S)
    assert str(guests.http(second, "/ubdb")).startswith("kept")
    assert (folder / "data.img").stat().st_size == 4 << 20


def test_a_guest_that_powers_itself_off_has_succeeded(guests: Guests):
    name = guests.boot(guests.vmi("off"))
    guests.type(name, "poweroff")
    ended = guests.phase(name, "Succeeded", "Failed")
    assert (ended["exitCode"], ended["message"]) == (0, "the guest powered itself off")


def test_killed_machines_and_launchers_leave_nothing(guests: Guests):
    name = guests.boot(guests.vmi("kills"))
    # signal 9 to what runs the guest, as the node's administrator would
    os.kill(guests.kernel(name), signal.SIGKILL)
    ended = guests.phase(name, "Failed")
    assert ended["exitCode"] == 1
    assert "machine uml was killed by signal 9" in ended["message"]

    other = guests.boot(guests.vmi("launcher"))
    os.kill(guests.launcher(other), signal.SIGKILL)
    assert guests.phase(other, "Failed")["exitCode"] == 137


def test_probes_ask_the_guest(guests: Guests):
    http = {"httpGet": {"port": 80, "path": "/ready"}, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 2}
    alive = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 180}
    dead = {**alive, "tcpSocket": {"port": 81}, "failureThreshold": 2}
    name = guests.create(guests.vmi("probed", readinessProbe=http, livenessProbe=alive))
    other = guests.create(guests.vmi("condemned", livenessProbe=dead))
    guests.cluster.until(lambda: guests.http(name) is not None, BOOT_S)
    assert not guests.cluster.ready(name)
    guests.type(name, "echo yes > /www/ready")
    guests.cluster.until(lambda: guests.cluster.ready(name), BOOT_S)
    guests.type(name, "rm /www/ready")
    guests.cluster.until(lambda: not guests.cluster.ready(name), BOOT_S)
    assert not guests.ended(name)
    guests.cluster.until(lambda: guests.ended(other), BOOT_S)
    assert any("Liveness probe failed" in each for each in guests.cluster.events(other))


def test_what_cannot_start_says_why(guests: Guests):
    lacking = guests.vmi("lacking", {"name": "none", "hostDisk": {"path": "/nowhere/at/all.img", "type": "Disk"}})
    empty = guests.vmi("empty")
    empty["spec"]["volumes"][0]["containerDisk"]["image"] = "minik8s/busybox:1"
    refused = guests.vmi("refused")
    refused["spec"]["domain"]["devices"]["interfaces"][0] = {"name": "default", "bridge": {}}
    names = {guests.create(each): each["metadata"]["name"] for each in (lacking, empty, refused)}
    told = {}
    for name, machine in names.items():
        guests.cluster.until(partial(guests.ended, name), BOOT_S)
        status = guests.cluster.pod(name)["status"]
        states = [*status.get("initContainerStatuses", []), *status["containerStatuses"]]
        ends = [each["state"]["terminated"] for each in states if "terminated" in each["state"]]
        told[machine] = next(each.get("message", "") for each in ends if each["exitCode"])
    assert "/nowhere/at/all.img is not there on this node" in told["lacking"]
    assert "/disk" in told["empty"]
    assert "only the binding masquerade is possible" in told["refused"]
