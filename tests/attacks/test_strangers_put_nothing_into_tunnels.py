"""What comes out of the overlay comes from its nodes: neither a stranger nor a pod puts packets of pods into a tunnel.

A VXLAN device takes what anybody sends to its port, and what is inside could have the address of any pod.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.network.network_vxlan import mac_of
from tests.support.node import command
from tests.support.overlaid import DEVICE, PORT, VNI, Machine, machines_on_a_switch
from tests.support.waiting import until

TABLE = f"minik8s_tunnels_{DEVICE}"
STRANGER = {True: "2001:db8::66", False: "192.0.2.66"}
LATE = "10.99.0.1"
# sends a datagram of a pod, wrapped as the overlay does; with "cut", the outer packet in two parts, the first of which
# ends before the VNI
SEND = """
import socket, struct, sys
outer, port, vni, mac, source, target, word, how = sys.argv[1:]
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
def header(proto, size, source, target):
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    check = checksum(struct.pack("!BBHHHBBH", 0x45, 0, 20 + size, 1, 0, 64, proto, 0) + ends)
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + size, 1, 0, 64, proto, check) + ends
data = word.encode().ljust(64)
udp = struct.pack("!HHHH", 1234, 7777, 8 + len(data), 0) + data
frame = bytes.fromhex(mac.replace(":", "")) + bytes.fromhex("020000000099") + bytes.fromhex("0800")
inside = struct.pack("!II", 8 << 24, int(vni) << 8) + frame + header(17, len(udp), source, target) + udp
family = socket.AF_INET6 if ":" in outer else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as plain:
    plain.connect((outer, int(port)))
    own = plain.getsockname()[0]
    if how == "whole":
        plain.send(inside)
if how == "cut":
    inside = inside.ljust(len(inside) + len(inside) % 2, b"\\0")
    whole = struct.pack("!HHHH", 4321, int(port), 8 + len(inside), 0) + inside
    if family == socket.AF_INET6:
        ends = socket.inet_pton(family, own) + socket.inet_pton(family, outer)
        check = checksum(ends + struct.pack("!IBBBB", len(whole), 0, 0, 0, 17) + whole)
        whole = whole[:6] + struct.pack("!H", check) + whole[8:]
        with socket.socket(family, socket.SOCK_RAW, 44) as raw:
            for part, place in ((whole[:8], 1), (whole[8:], 8)):
                raw.sendto(struct.pack("!BBHI", 17, 0, place, 77) + part, (outer, 0))
    else:
        with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            ends = socket.inet_aton(own) + socket.inet_aton(outer)
            for part, place in ((whole[:8], 0x2000), (whole[8:], 1)):
                head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), 77, place, 64, 17, 0) + ends
                raw.sendto(head + part, (outer, 0))
"""
HEAR = """
import socket
heard, words = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
heard.bind(("", 7777))
heard.settimeout(60)
print("listening", flush=True)
while "the end" not in words:
    words.append(heard.recv(100).decode().strip())
print(";".join(sorted(set(words))))
"""
SAY = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'the end', (sys.argv[1], 7777))"


class Overlay:
    """Two nodes whose machines reach each other by one family, and a stranger on their network."""

    def __init__(self, machines: list[Machine], switch: str) -> None:
        self.one, self.two = machines
        self.switch, self.stranger = switch, STRANGER[self.one.ipv6]
        nodad = ["nodad"] if self.one.ipv6 else []
        address = f"{self.stranger}/{self.one.length}"
        command("ip", "-n", switch, "addr", "add", address, "dev", "switch", *nodad)
        for machine, peer in ((self.one, self.two), (self.two, self.one)):
            assert not machine.run(machine.entries(peer))["errors"]
            machine.start_pod()
        self._listening: subprocess.Popen[str] | None = None

    def listen(self) -> None:
        """Let the pod of the first node listen."""
        inside = ["ip", "netns", "exec", self.one.pod, sys.executable, "-c", HEAR]
        self._listening = subprocess.Popen(inside, stdout=subprocess.PIPE, text=True)
        assert self._listening.stdout is not None
        assert self._listening.stdout.readline() == "listening\n"

    def heard(self) -> str:
        """Return what it heard, once the pod of the other node has spoken through the tunnel."""
        listening = self._listening
        assert listening is not None

        def has_ended() -> bool:
            command("ip", "netns", "exec", self.two.pod, sys.executable, "-c", SAY, "10.77.1.7")
            return listening.poll() is not None

        until(has_ended)
        return listening.communicate()[0].strip()

    def forge(self, netns: str, word: str, how: str = "whole", *, vni: int = VNI) -> None:
        """Send, as the pod of the second node, to the first one's pod from somewhere."""
        argv = [self.one.address, str(PORT), str(vni), mac_of(self.one.node), "10.77.2.7", "10.77.1.7", word, how]
        command("ip", "netns", "exec", netns, sys.executable, "-c", SEND, *argv)


@pytest.fixture(params=[True, False], ids=["ipv6", "ipv4"])
def overlay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Overlay]:
    with machines_on_a_switch(tmp_path, ipv6=request.param) as (machines, switch):
        yield Overlay(machines, switch)


def test_a_stranger_cannot_speak_as_a_pod(overlay: Overlay) -> None:
    overlay.listen()
    overlay.forge(overlay.switch, "whole")
    overlay.forge(overlay.switch, "cut", "cut")
    assert overlay.heard() == "the end"
    # what was sent would have come through
    overlay.one.inside("nft", "delete", "table", "inet", TABLE)
    overlay.listen()
    overlay.forge(overlay.switch, "whole")
    overlay.forge(overlay.switch, "cut", "cut")
    assert overlay.heard() == "cut;the end;whole"
    overlay.one.run(overlay.one.entries(overlay.two))
    overlay.listen()
    overlay.forge(overlay.switch, "whole")
    assert overlay.heard() == "the end"


def test_a_node_that_has_left_is_a_stranger(overlay: Overlay) -> None:
    overlay.listen()
    overlay.forge(overlay.two.netns, "as a node")
    assert overlay.heard() == "as a node;the end"
    assert not overlay.one.run(overlay.one.entries())["errors"]
    overlay.listen()
    overlay.forge(overlay.two.netns, "as a former node")
    assert not overlay.one.run(overlay.one.entries(overlay.two))["errors"]
    assert overlay.heard() == "the end"


def test_an_overlay_of_somebody_else_at_the_same_port_is_left_alone(overlay: Overlay) -> None:
    one = overlay.one
    place = ["id", "10", "local", one.address, "dstport", str(PORT), "nolearning"]
    one.inside("ip", "link", "add", "other", "address", mac_of(one.node), "type", "vxlan", *place)
    one.inside("ip", "link", "set", "other", "up")
    overlay.listen()
    overlay.forge(overlay.switch, "of another overlay", vni=10)
    assert overlay.heard() == "of another overlay;the end"


@pytest.mark.parametrize("how", ["whole", "cut"])
def test_a_pod_cannot_speak_as_its_node_to_another_or_to_its_own(tmp_path: Path, how: str) -> None:
    with machines_on_a_switch(tmp_path) as (machines, switch):
        overlay = Overlay(machines, switch)
        overlay.listen()
        for pod in (overlay.two.pod, overlay.one.pod):
            overlay.forge(pod, "as a node", how)
        assert overlay.heard() == "the end"
        for machine in machines:
            machine.inside("nft", "delete", "table", "inet", TABLE)
        overlay.listen()
        overlay.forge(overlay.two.pod, "as a node", how)
        assert overlay.heard() == "as a node;the end"
