"""The launcher's pure parts: command lines, CD-ROM images, DHCP, locks, and how a pod ends."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from minik8s_virtual_machines.launcher import dhcp, disks, iso9660, locks, network
from minik8s_virtual_machines.launcher.disks import Image
from minik8s_virtual_machines.launcher.errors import Unusable
from minik8s_virtual_machines.launcher.guest import bootable_first, parse, quantity
from minik8s_virtual_machines.launcher.life import Outcome, after
from minik8s_virtual_machines.launcher.machines import qemu_command, uml, usage
from minik8s_virtual_machines.launcher.machines.machine import CRASHED, OFF, REBOOT, End
from tests.unit.extensions.test_launcher_pods import vmi

RUN = Path("/run/vm")
MAC = "02:00:00:00:00:07"


def images(of: dict[str, object], kind: str = "raw") -> list[Image]:
    guest = parse(of)
    return [Image(disk, disks.place(disk), kind) for disk in bootable_first(guest.disks)]


def option(words: list[str], name: str) -> list[str]:
    return [value for key, value in pairwise(words) if key == name]


def test_quemus_devices_come_as_json_so_that_a_comma_is_a_comma():
    of = vmi({"name": "data", "emptyDisk": {"capacity": "1Mi"}})
    of["spec"]["domain"]["devices"]["disks"][1] |= {"bootOrder": 1, "serial": "S-1", "cache": "none"}
    of["spec"]["domain"]["devices"]["disks"].append({"name": "seed", "cdrom": {}})
    of["spec"]["volumes"].append({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "s"}}})
    words = qemu_command.command(parse(of), images(of), RUN, kvm=False, paused=True)
    blocks = [json.loads(each) for each in option(words, "-blockdev")]
    assert [Path(each["file"]["filename"]).name for each in blocks] == ["data.img", "root", "seed.img"]
    assert [each["read-only"] for each in blocks] == [False, False, True]
    assert [each["cache"]["direct"] for each in blocks] == [True, False, False]
    devices = {each["driver"]: each for each in map(json.loads, option(words, "-device"))}
    assert devices["ide-cd"]["bus"] == "ide.0"
    assert option(words, "-accel") == ["tcg,thread=single,tb-size=64"]
    assert "-S" in words
    serials = [each.get("serial") for each in map(json.loads, option(words, "-device")) if "drive" in each]
    assert serials == ["S-1", None, None]


def test_a_user_mode_linux_gets_its_disks_in_boot_order_and_no_file_of_the_pod(tmp_path: Path):
    of = vmi({"name": "data", "emptyDisk": {"capacity": "1Mi"}}, machine="uml")
    of["spec"]["domain"]["devices"]["disks"][1] |= {"bootOrder": 1, "serial": "S1", "disk": {"readonly": True}}
    parted = tmp_path / "parted"
    parted.write_bytes(bytes(450) + b"\x83" + bytes(59) + b"\x55\xaa")
    found = [each._replace(path=parted) for each in images(of)]
    words = uml.command(parse(of), found, RUN)
    assert f"ubd0rc={parted},,S1" in words
    assert f"ubd1c={parted}" in words
    assert "root=/dev/ubda1" in words
    assert "hostfs=/run/vm/none" in words
    with pytest.raises(Unusable, match="disk data is qcow2; machine uml takes raw images alone"):
        uml.command(parse(of), images(of, "qcow2"), RUN)


@pytest.mark.parametrize(("code", "kind"), [(0, OFF), (uml.REBOOTED, REBOOT), (-9, CRASHED), (1, CRASHED)])
def test_what_the_status_of_a_kernel_means(code: int, kind: str):
    assert uml.end_of(code).kind == kind


@pytest.mark.parametrize(
    ("kind", "stopping", "rebooting", "code"),
    [
        (OFF, False, False, 0),
        (OFF, False, True, None),
        (REBOOT, False, False, None),
        (REBOOT, True, False, 0),
        (CRASHED, False, True, 1),
        (CRASHED, True, False, 0),
    ],
)
def test_how_a_pod_ends_after_its_machine(kind: str, stopping: bool, rebooting: bool, code: int | None):  # noqa: FBT001
    found = after(End(kind, "it broke"), stopping=stopping, rebooting=rebooting)
    assert (found if found is None else found.code) == code
    assert found != Outcome(1)  # a failure has a reason


def test_a_disc_has_the_label_and_files_that_its_guest_reads(tmp_path: Path):
    files = {"meta-data": b"instance-id: a\n", "user-data": b"x" * 5000, "network-config": b"", "Größe.txt": b"1"}
    path = tmp_path / "seed.iso"
    path.write_bytes(iso9660.image(files, "cidata"))
    data = path.read_bytes()
    assert len(data) % 2048 == 0
    assert data[32808:32814] == b"cidata"
    reader = Path("tests/support/docker/guest/read-iso").resolve()
    subprocess.run(["busybox", "sh", str(reader), str(path), str(tmp_path / "out")], check=True)
    assert (tmp_path / "out/user-data").read_bytes() == files["user-data"]
    assert (tmp_path / "out/meta-data").read_bytes() == files["meta-data"]
    # the second descriptor is Joliet's, with names as they are
    assert data[17 * 2048 : 17 * 2048 + 6] == b"\x02CD001"
    assert "Größe.txt".encode("utf-16-be") in data
    many = {f"file-{number:03}": str(number).encode() for number in range(200)}  # a folder of several sectors
    path.write_bytes(iso9660.image(many, "cfgdata"))
    with pytest.raises(Unusable, match="differ in case alone"):
        iso9660.image({"a": b"", "A": b""}, "x")


def request(kind: int, mac: str = MAC, options: bytes = b"") -> bytes:
    head = struct.pack("!BBBBIHH", 1, 1, 6, 0, 0x1234, 0, 0) + bytes(16)
    hardware = bytes.fromhex(mac.replace(":", "")).ljust(16, b"\0")
    return head + hardware + bytes(192) + b"\x63\x82\x53\x63" + bytes((53, 1, kind)) + options + b"\xff"


LEASE = dhcp.lease_of(MAC, "greta", 1400, "nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local\n")


def test_the_guest_is_offered_its_address_way_out_and_names():
    found = dhcp.answer(request(1), LEASE)
    assert found is not None
    assert found[4:8] == struct.pack("!I", 0x1234)
    assert found[16:20] == socket.inet_aton("10.0.2.2")
    for part in (
        b"\x35\x01\x02",
        b"\x03\x04" + socket.inet_aton("10.0.2.1"),
        b"\x06\x04" + socket.inet_aton("10.96.0.10"),
        b"\x01\x04" + socket.inet_aton("255.255.255.0"),
        b"\x0c\x05greta",
        b"\x1a\x02" + struct.pack("!H", 1400),
        b"\x02ns\x03svc\x07cluster\x05local\x00",
    ):
        assert part in found


def test_who_asks_for_another_address_is_told_no_and_strangers_nothing():
    wrong = dhcp.answer(request(3, options=b"\x32\x04" + socket.inet_aton("10.0.2.9")), LEASE)
    assert wrong is not None
    assert b"\x35\x01\x06" in wrong
    for stranger in (request(1, "02:00:00:00:00:08"), b"", b"\x01" * 100, request(1)[:230], request(7)):
        assert dhcp.answer(stranger, LEASE) is None
    assert dhcp.answer(request(3, options=b"\x36\x04" + socket.inet_aton("10.0.2.8")), LEASE) is None
    assert dhcp.answer(request(1)[:-1] + b"\x0c", LEASE) is not None  # an option cut off


def test_rules_pass_on_all_ports_or_the_declared_ones():
    up = network.Uplink("eth0", "10.244.0.7", 1450)
    interface = parse(vmi()).interface
    assert interface is not None
    assert 'iifname "eth0" tcp dport 80 dnat to 10.0.2.2' in network.rules(interface, up)
    everything = network.rules(interface._replace(ports=()), up)
    assert "ip daddr 10.244.0.7 dnat to 10.0.2.2" in everything
    checked = subprocess.run(
        ["/usr/sbin/nft", "-c", "-f", "-"], input=everything, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0 or "Operation not permitted" in checked.stderr, checked.stderr


def test_an_image_has_one_owner_whose_end_frees_it(tmp_path: Path):
    path = tmp_path / "disk.img"
    assert disks.make_sparse(path, 1 << 20)
    assert not disks.make_sparse(path, 1)
    assert path.stat().st_blocks == 0
    script = "import sys; from minik8s_virtual_machines.launcher import locks; from pathlib import Path; \
print(locks.take(Path(sys.argv[1])) is not None, flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", script, str(path)]
    environment = {"PYTHONPATH": "extensions/virtual-machines"}
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert locks.take(path) is None
        other.kill()
    assert locks.take(path) is not None


@pytest.mark.parametrize(("text", "bytes_"), [("128Mi", 128 << 20), ("1G", 10**9), ("1.5Gi", 3 << 29), (7, 7)])
def test_quantities(text: object, bytes_: int):
    assert quantity(text) == bytes_


def test_a_qcow2_on_top_of_another_file_is_refused(tmp_path: Path):
    path = tmp_path / "overlay.qcow2"
    path.write_bytes(b"QFI\xfb" + struct.pack(">IQI", 3, 512, 11) + bytes(100))
    assert disks.format_of(path) == "qcow2"
    with pytest.raises(Unusable, match="on top of another file"):
        disks.refuse_foreign_base(path)
    path.write_bytes(b"QFI\xfb" + struct.pack(">IQI", 3, 0, 0) + bytes(100))
    disks.refuse_foreign_base(path)


def test_a_machine_tells_what_it_uses(tmp_path: Path):
    def process(pid: int, group: int, own: str, children: str, pages: int) -> None:
        (tmp_path / str(pid)).mkdir()
        zeros = " ".join("0" * 8)
        text = f"{pid} (a ) (b) S 1 {group} {zeros} {own} {children} 20 0 1 0 5 4096 {pages} 0\n"
        (tmp_path / str(pid) / "stat").write_text(text)

    assert usage.of_processes(7, tmp_path) == {}
    process(7, 7, "100 50", "30 20", 10)
    process(8, 7, "200 100", "9 9", 99)  # of the same machine: its time counts, its pages are the first one's
    process(9, 9, "777 777", "7 7", 7)
    (tmp_path / "10").mkdir()  # it ended meanwhile
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert usage.of_processes(7, tmp_path) == {"cpu_seconds": 500 / tick, "resident_bytes": 10 * page}
    with subprocess.Popen(["sleep", "60"], process_group=0) as real:
        assert usage.of_processes(real.pid)["resident_bytes"] > 0
        real.kill()


def test_a_balloon_that_says_nothing_yet_tells_nothing():
    silent = {"last-update": 0, "stats": {"stat-total-memory": 2**64 - 1, "stat-free-memory": -1}}
    assert usage.of_balloon(silent) == {}
    assert usage.of_balloon(None) == usage.of_balloon({"stats": None}) == {}
    told = {"stats": {"stat-total-memory": 5, "stat-free-memory": 3, "stat-available-memory": 4, "stat-swap-in": 1}}
    assert usage.of_balloon(told) == {"available_bytes": 5.0, "unused_bytes": 3.0, "usable_bytes": 4.0}
