"""A Pod that may forge what it sends (NET_RAW, which Docker gives) still sends with its own address alone.

The attacks: packets with another Pod's source, on IP and as frames of its own, also below the tag of a VLAN 0, which
the kernel takes off; and ARP that says its address is here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from minik8s_modules.module_utils.minik8s.network import sources
from tests.integration.services.machines import PODS, Machine, namespace

BRIDGE, DEVICE = "mk8s-br0", "mk8s-0badc0de"
ATTACKER, FRIEND, SERVER = PODS["pod2"], PODS["pod3"], PODS["pod4"]
SEND = """
import socket, struct
def packet(source, port=9999):
    udp = struct.pack(">HHHH", 1111, port, 9, 0) + b"x"
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, A(source), A("{server}"))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + head[12:] + udp
A = socket.inet_aton
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
frames.bind(("eth0", 0))
own, everybody = frames.getsockname()[4], b"\\xff" * 6
for source in ("{friend}", "{attacker}"):
    for kind in (0x8100, 0x88a8):
        frames.send(everybody + own + struct.pack(">HHH", kind, 0, 0x0800) + packet(source, kind))
    raw.sendto(packet(source), ("{server}", 0))
    frames.send(everybody + own + struct.pack(">H", 0x0800) + packet(source))
    arp = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + own + A(source) + everybody + A("{server}")
    frames.send(everybody + own + struct.pack(">H", 0x0806) + arp)
"""
HEAR = """
import socket, struct, sys
everything = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
everything.bind(("eth0", 3))
print("listening", flush=True)
everything.settimeout(60)
PORTS = {struct.pack(">H", port): name for port, name in ((9999, "ip"), (0x8100, "802.1Q"), (0x88a8, "802.1ad"))}
seen = set()
while ("ip", "{attacker}") not in seen or ("arp", "{attacker}") not in seen:
    frame, (_, _, way, *_) = everything.recvfrom(2000)
    if way == socket.PACKET_OUTGOING:
        continue
    kind = struct.unpack(">H", frame[12:14])[0]
    if kind == 0x0800 and frame[36:38] in PORTS:
        seen.add((PORTS[frame[36:38]], socket.inet_ntoa(frame[26:30])))
    elif kind == 0x0806 and frame[20:22] == struct.pack(">H", 2):
        seen.add(("arp", socket.inet_ntoa(frame[28:32])))
print(sorted(seen))
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with namespace("nftables") as made:
        made.call("pods", bridge=BRIDGE, gateway="10.32.0.1", pods=PODS)
        for words in (["vpod2", "down"], ["vpod2", "name", DEVICE], [DEVICE, "up"]):
            made.shell(["ip", "link", "set", *words])
        yield made


def inside(machine: Machine, pod: str) -> list[str]:
    """Return what runs Python in a Pod, as root with all capabilities."""
    pid = machine.lines("cat", f"{machine.folder}/pods/{pod}")[0]
    return ["nsenter", f"--net=/proc/{pid}/ns/net", machine.python, "-c"]


def heard(machine: Machine) -> str:
    """Return which sources the server hears of while the attacker sends."""
    names = {"attacker": ATTACKER, "friend": FRIEND, "server": SERVER}
    hearing = [*inside(machine, "pod4"), HEAR.replace("{attacker}", ATTACKER)]
    with subprocess.Popen(hearing, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        program = SEND
        for name, address in names.items():
            program = program.replace(f"{{{name}}}", address)
        subprocess.run([*inside(machine, "pod2"), program], check=True)
        return server.stdout.read().strip()


def test_what_a_pod_forges_is_dropped_where_it_comes_from(machine: Machine) -> None:
    kinds = ("ip", "arp", "802.1Q", "802.1ad")
    both = sorted((kind, address) for kind in kinds for address in (ATTACKER, FRIEND))
    assert heard(machine) == str(both), "without the table it is heard"
    machine.shell(["nft", "-f", "-"], sources.script("n1", BRIDGE, sources.Pair(DEVICE, ATTACKER)))
    assert heard(machine) == str([("arp", ATTACKER), ("ip", ATTACKER)])
    listing = machine.shell(["nft", "list", "table", "bridge", sources.table_of(BRIDGE)])
    rules_ipv6 = len(sources.RULES_IPV6) + len(sources.PASSING)
    guard = sources.Guard(frozenset({sources.Pair(DEVICE, ATTACKER)}), len(sources.RULES), rules_ipv6)
    assert sources.parse(listing) == guard
    # whoever sends as itself is answered as before, through a Service too
    assert machine.ask(SERVER, 8080, pod="pod2") == {"pod4": 1}
