"""A pod sends nothing of IPv6 once its cluster has given that up, or never had it: no policy would look at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dual_stack import OUTSIDE, Machine, two_machines

BRIDGE, NEXT_TO_IT, LOOPBACK = "mk8t-br", "fd00:99::7", "inet6 ::1/128"
SEND = """
import socket, struct, sys
source, target, gateway, count = sys.argv[1:]
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target)
udp = struct.pack("!HHHH", 1234, 7777, 16, 0) + b"secret!!"
check = checksum(ends + struct.pack("!IBBBB", 16, 0, 0, 0, 17) + udp)
udp = struct.pack("!HHHH", 1234, 7777, 16, check) + b"secret!!"
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind(("eth0", 0))
head = bytes.fromhex(gateway.replace(":", "")) + frames.getsockname()[4] + struct.pack("!H", 0x86DD)
for _ in range(int(count)):
    frames.send(head + struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + ends + udp)
"""
COUNTED = "counter packets "


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with two_machines(tmp_path) as (machine, _two):
        yield machine


def test_what_a_pod_had_of_ipv6_goes_with_it(one: Machine) -> None:
    one.run("network", one.network())
    one.start(7, 8)
    own, pods = one.ip_of(7), one.sandboxes(7, 8, ipv6=False)
    assert one.reaches(7, OUTSIDE)
    assert _left_the_node(one, own) == 3
    # pod 8 has taken its address off, so that nothing reminds of it
    one.pod(8, "ip", "-6", "addr", "flush", "dev", "eth0", "scope", "global")
    one.run("network", one.network(ipv6=False))
    actions = {step["key"]: step["action"] for step in one.run("sandboxes", pods, check=True)["steps"]}
    assert list(actions.values()) == ["attach", "guard"]
    one.run("sandboxes", pods)
    assert not one.run("sandboxes", pods)["changed"]
    assert "fd00:77" not in one.inside("ip", "-6", "neigh", "show", "nud", "permanent")
    assert "fd00:77" not in one.inside("nft", "list", "ruleset")
    for family in ("addr", "route", "neigh"):
        assert not one.pod(7, "ip", "-6", family, "show", "dev", "eth0").stdout
    assert LOOPBACK in one.pod(7, "ip", "-6", "addr").stdout
    hosts = one.pod(7, "cat", f"/proc/{one.pids[7]}/root/etc/hosts").stdout
    assert own not in hosts
    assert f"{one.ip_of(7, 4)}\tpod-7" in hosts
    # what it gives itself again is of no use
    for name in ("all", "default", "eth0"):
        one.pod(7, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=0")
    one.pod(7, "ip", "-6", "addr", "add", f"{own}/128", "dev", "eth0", "nodad")
    assert _left_the_node(one, own) == 0
    # it comes back whole
    one.run("network", one.network())
    one.run("sandboxes", one.sandboxes(7, 8))
    assert one.reaches(7, one.ip_of(8))
    assert f"{own}\tpod-7" in one.pod(7, "cat", f"/proc/{one.pids[7]}/root/etc/hosts").stdout


def test_a_pod_of_a_cluster_without_ipv6_sends_none_through_a_node_that_forwards_it(one: Machine) -> None:
    one.inside("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
    one.run("network", one.network(ipv6=False))
    one.start(7, ipv6=False)
    one.pod(7, "sysctl", "-qw", "net.ipv6.conf.lo.disable_ipv6=0")  # as Docker 26 and newer leave it
    assert LOOPBACK in one.pod(7, "ip", "-6", "addr").stdout
    one.inside("nft", "delete", "table", "bridge", f"minik8s_sources_{BRIDGE}")
    assert _left_the_node(one, NEXT_TO_IT) == 3
    one.run("sandboxes", one.sandboxes(7, ipv6=False))
    assert _left_the_node(one, NEXT_TO_IT) == 0
    assert LOOPBACK in one.pod(7, "ip", "-6", "addr").stdout  # the node has taken no localhost away


def _left_the_node(one: Machine, source: str) -> int:
    """Return how many of three packets of a pod that writes its own frames the node sends on."""
    table = ("ip6", "counted")
    one.inside("nft", "add", "table", *table)
    one.inside("nft", "add chain ip6 counted leaving { type filter hook postrouting priority 300; }")
    one.inside("nft", f"add rule ip6 counted leaving ip6 daddr {OUTSIDE} udp dport 7777 counter")
    try:
        mac = one.inside("cat", f"/sys/class/net/{BRIDGE}/address").strip()
        done = one.pod(7, sys.executable, "-c", SEND, source, OUTSIDE, mac, "3")
        assert done.returncode == 0, done.stderr
        listing = one.inside("nft", "list", "table", *table)
        return int(listing.partition(COUNTED)[2].split()[0])
    finally:
        one.inside("nft", "delete", "table", *table)
