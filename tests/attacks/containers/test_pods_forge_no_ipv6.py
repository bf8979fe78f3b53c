"""A pod that may do what it likes in its own network sends with its own IPv6 address alone, and to its node alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from minik8s_modules.module_utils.minik8s.network import sources
from tests.support.dual_stack import Machine, two_machines

BRIDGE = "mk8t-br"
GATEWAY_MAC, FRIEND_MAC = "0a:58:0a:4d:01:01", "0a:58:0a:4d:01:08"
SEND = """
import socket, struct, sys
own, forged, target, gateway, friend = sys.argv[1:]
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
def packet(source, word):
    data = word.encode().ljust(64)
    ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target)
    pseudo = ends + struct.pack("!IBBBB", 8 + len(data), 0, 0, 0, 17)
    check = checksum(pseudo + struct.pack("!HHHH", 1234, 7777, 8 + len(data), 0) + data)
    udp = struct.pack("!HHHH", 1234, 7777, 8 + len(data), check) + data
    return struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + ends + udp
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind(("eth0", 0))
me, ipv6 = frames.getsockname()[4], struct.pack("!H", 0x86DD)
TAGS = {"802.1Q": (0x8100, 0), "802.1ad": (0x88A8, 0), "both": (0x88A8, 0, 0x8100, 0)}
for name, tag in TAGS.items():
    for way in (gateway, friend):
        for source in (own, forged):
            word = f"{name} {'past the node' if way == friend else 'to the node'} as {source}"
            head = bytes.fromhex(way.replace(":", "")) + me + struct.pack(f"!{len(tag)}H", *tag)
            frames.send(head + ipv6 + packet(source, word))
frames.send(bytes.fromhex(gateway.replace(":", "")) + me + ipv6 + packet(own, "the end"))
"""
HEAR = """
import socket
heard, words = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), []
heard.bind(("::", 7777))
heard.settimeout(60)
print("listening", flush=True)
while "the end" not in words:
    words.append(heard.recv(100).decode().strip())
print("; ".join(sorted(words)))
"""
# what comes back from a port where nobody listens, sent with a mark of the sender's choice
CALL = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as calling:
    calling.setsockopt(socket.SOL_SOCKET, 36, int(sys.argv[2]))
    calling.bind((sys.argv[3], 0))
    calling.settimeout(3)
    try:
        calling.connect((sys.argv[1], 9))
    except ConnectionRefusedError:
        print("refused")
    except TimeoutError:
        print("nothing")
"""


def test_a_pod_passes_as_nobody_else(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (one, _two):
        one.run("network", one.network())
        one.start(7, 8)
        _send_tagged_frames(one)
        _take_an_address(one)


def _take_an_address(one: Machine) -> None:
    stolen = one.ip_of(9)
    assert one.pod(7, "ip", "-6", "addr", "add", f"{stolen}/128", "dev", "eth0", "nodad").returncode == 0
    # the node may have looked for that neighbour by itself just before
    one.inside("ip", "neigh", "replace", stolen, "dev", BRIDGE, "lladdr", "0a:58:0a:4d:01:07")
    assert one.reaches(7, one.ip_of(8), source=one.ip_of(7))
    assert one.is_cut_off(7, one.ip_of(8), source=stolen)
    assert _called(one) == "refused"
    # past the node, from port to port of its bridge
    one.pod(7, "ip", "-6", "route", "add", one.ip_of(8), "dev", "eth0")
    one.pod(7, "ip", "neigh", "add", one.ip_of(8), "dev", "eth0", "lladdr", FRIEND_MAC)
    assert one.is_cut_off(7, one.ip_of(8), source=one.ip_of(7))
    # with the mark by which the node lets through what a Service's address was exchanged in
    assert _called(one) == "nothing"


def _called(one: Machine) -> str:
    """Return what pod 7 hears of pod 8 when it calls it with the node's mark."""
    done = one.pod(7, sys.executable, "-c", CALL, one.ip_of(8), str(sources.REDIRECTED_BIT), one.ip_of(7))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _send_tagged_frames(one: Machine) -> None:
    """The kernel takes the tag of a VLAN 0 off and delivers what is below it."""
    assert _heard(one) == ["the end"]
    # a table of a release that did not look at tags
    table = f"bridge {sources.table_of(BRIDGE)} arriving"
    one.inside("nft", "flush", "chain", *table.split())
    for rule in sources.RULES[1:]:
        one.inside("nft", "add", "rule", *table.split(), *rule.split())
    heard = _heard(one)
    assert {word.partition(" ")[0] for word in heard} == {"802.1Q", "802.1ad", "both", "the"}
    assert f"802.1Q past the node as {one.ip_of(9)}" in heard
    assert one.run("sandboxes", one.sandboxes(7, 8))["changed"]
    assert _heard(one) == ["the end"]


def _heard(one: Machine) -> list[str]:
    """Return what pod 8 hears while pod 7 sends."""
    hearing = ["nsenter", "-t", str(one.pids[8]), "-n", sys.executable, "-c", HEAR]
    with subprocess.Popen(hearing, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        addresses = (one.ip_of(7), one.ip_of(9), one.ip_of(8), GATEWAY_MAC, FRIEND_MAC)
        done = one.pod(7, sys.executable, "-c", SEND, *addresses)
        assert done.returncode == 0, done.stderr
        return server.stdout.read().strip().split("; ")
