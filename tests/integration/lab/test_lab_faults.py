"""What a test can do to a node, on both kinds: power, reboot, cable, clock, disk."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from tests.lab.errors import LabNodeFailed, LabUnsupported, LabUsage
from tests.lab.lab import Lab


def reaches(lab: Lab, target: str) -> bool:
    """Tell whether the host reaches a node; neighbours that were lost may take a second to be found again."""
    machine = lab.machine(target)
    return machine.answers() or machine.answers()


def test_a_power_cut_keeps_what_was_synced_and_ends_the_rest(pair: Lab) -> None:
    pair.run("node1", ["sh", "-c", "echo kept >/var/kept; sync; echo gone >/run/gone; ip link add lost type bridge"])
    pair.power_cut("node1")
    assert [row.state for row in pair.status()] == ["off", "ready"]
    pair.start("node1")
    assert pair.run("node1", ["cat", "/var/kept"]) == "kept\n"
    assert "lost" not in pair.run("node1", ["sh", "-c", "ls /run /sys/class/net"]).split()


def test_a_reboot_from_inside_comes_back(pair: Lab) -> None:
    pair.run("node1", ["sh", "-c", "echo kept >/var/kept2; ip link add lost type bridge"])
    pair.reboot("node1", timeout_s=60)
    assert pair.run("node1", ["cat", "/var/kept2"]) == "kept\n"
    assert "lost" not in pair.run("node1", ["ls", "/sys/class/net"]).split()
    assert "running" in pair.run("node1", ["systemctl", "is-system-running", "--wait"])


def test_a_node_that_is_cut_off_hears_nobody_until_it_rejoins(pair: Lab) -> None:
    assert reaches(pair, "node2")
    pair.cut_off("node2")
    assert not reaches(pair, "node2")
    with pytest.raises(LabNodeFailed):
        pair.run("node1", ["ping", "-c2", "-W1", "node2"])
    assert pair.status()[1].state == "cut off"
    pair.rejoin("node2")
    assert reaches(pair, "node2")


def test_a_node_stays_cut_off_over_a_boot(pair: Lab) -> None:
    pair.cut_off("node2")
    pair.power_cut("node2")
    pair.start("node2")
    time.sleep(1)
    assert not reaches(pair, "node2")
    pair.rejoin("node2")
    pair.machine("node2").wait_ready(60)
    assert pair.run("node2", ["hostname"]) == "node2\n"


def seconds_to_send(lab: Lab, sender: str, receiver: str, size: int) -> float:
    """Return how long ``size`` bytes take from one node to the other by plain TCP."""
    serve = (
        "import socket; s = socket.create_server(('', 7777)); c, _ = s.accept()\nwhile c.recv(65536): pass\nc.close()"
    )
    listening = subprocess.Popen([*lab.ssh(receiver), f'python3 -c "{serve}"'])
    send = f"""
import socket, time
for _ in range(100):
    try:
        c = socket.create_connection(("{receiver}", 7777))
        break
    except OSError:
        time.sleep(0.1)
begin = time.monotonic()
c.sendall(bytes({size})); c.shutdown(socket.SHUT_WR); c.recv(1)
print(time.monotonic() - begin)
"""
    try:
        return float(lab.run(sender, ["python3", "-"], text=send))
    finally:
        listening.wait(10)


def test_a_slow_link_is_slow_both_ways_and_fast_again(pair: Lab) -> None:
    size = 300_000  # at 1 Mbit/s 2.4 s, less what the bucket holds
    pair.slow_link("node1", 1000)
    assert seconds_to_send(pair, "node1", "node2", size) > 1.5
    assert seconds_to_send(pair, "node2", "node1", size) > 1.5
    pair.fast_link("node1")
    assert seconds_to_send(pair, "node1", "node2", size) < 1.0
    assert seconds_to_send(pair, "node2", "node1", size) < 1.0


def test_a_slow_link_stays_slow_over_a_boot(pair: Lab) -> None:
    pair.slow_link("node1", 1000)
    pair.power_cut("node1")
    pair.start("node1")
    assert seconds_to_send(pair, "node1", "node2", 300_000) > 1.5
    pair.fast_link("node1")


def test_a_link_without_a_rate_is_refused(pair: Lab) -> None:
    with pytest.raises(LabUsage, match="use cut_off"):
        pair.slow_link("node1", 0)


def test_only_a_kernel_of_its_own_has_a_clock_of_its_own(pair: Lab, kind: str) -> None:
    if kind == "native":
        with pytest.raises(LabUnsupported, match="host's clock"):
            pair.clock_skew("node1", 3600)
        return
    pair.clock_skew("node1", 3600)
    assert 3590 < float(pair.run("node1", ["date", "+%s"])) - time.time() < 3610
    assert abs(float(pair.run("node2", ["date", "+%s"])) - time.time()) < 10
    pair.clock_skew("node1", -3600)


def test_a_full_disk_refuses_and_the_hosts_disk_stays_free(pair: Lab) -> None:
    free = os.statvfs(pair.folder)
    pair.fill_disk("node1")
    with pytest.raises(LabNodeFailed, match="No space left"):
        pair.run("node1", ["dd", "if=/dev/zero", "of=/var/more", "bs=1M", "count=4"])
    assert (free.f_bavail - os.statvfs(pair.folder).f_bavail) * free.f_frsize < 2 << 30
    pair.free_disk("node1")
    pair.run("node1", ["dd", "if=/dev/zero", "of=/var/more", "bs=1M", "count=4"])
    pair.run("node1", ["rm", "/var/more"])


def test_a_disk_may_keep_some_room(pair: Lab) -> None:
    pair.fill_disk("node1", 100)
    left = int(pair.run("node1", ["df", "--output=avail", "--block-size=1M", "/"]).split()[-1])
    assert 50 <= left <= 101
    pair.free_disk("node1")


def test_a_node_that_is_not_there_is_named_with_those_that_are(pair: Lab) -> None:
    with pytest.raises(LabUsage, match="no node 'node7'; there are node1, node2"):
        pair.power_cut("node7")
