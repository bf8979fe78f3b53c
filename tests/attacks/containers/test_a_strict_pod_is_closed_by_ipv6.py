"""Attack: reach a strict Pod in plain text by IPv6, of which sidecars' other rules say nothing; with a real Envoy.

The ways: the Pod's address, its link-local one, a Service's, a port of its node; the sidecar's own ports; a certificate
of another authority; and the time at which the sidecar does not run. Rules of iptables and of nftables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.pods.mutual_tls import PERMISSIVE, STRICT
from minik8s_modules.module_utils.minik8s.network.interception import IPTABLES, NFTABLES
from tests.support.dual_stack import DUAL, Machine, two_machines
from tests.support.mutual_tls import sidecar
from tests.support.pki import Authority, Certificate

PORT, LEFT_OUT, HOST_PORT = 8080, 8081, 23471
SERVICE, CALLED = "fd00:100::2", 80
OWN_PORTS = (15001, 15006, 15008)
ASK = """
import socket, ssl, sys
address, port, cert, key = sys.argv[1:]
try:
    with socket.create_connection((address, int(port)), 20) as talking:
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.load_cert_chain(cert, key)
            context.set_alpn_protocols(["minik8s-mesh"])
            talking = context.wrap_socket(talking)
        print(talking.recv(200).decode().partition(" ")[0] or "closed")
except OSError:
    print("closed")
"""
CLOSED = "closed"


class Town:
    """Two machines; Pod 7 of the first one serves, and Pod 8 of each calls it."""

    def __init__(self, one: Machine, two: Machine, folder: Path) -> None:
        self.one, self.two = one, two
        self.mesh, self.other = Authority(folder, "mesh"), Authority(folder / "other", "other")
        for machine, peer in ((one, two), (two, one)):
            machine.run("network", machine.network(peer))
        port = {"ip": "", "protocol": "TCP", "host_port": HOST_PORT, "port": PORT}
        one.start(7, host_ports=[port])
        one.start(7, 8)  # which tells the process of each
        one.run("sandboxes", {**one.sandboxes(7, host_ports=[port]), **one.sandboxes(8)})
        two.start(8)
        for number in (PORT, LEFT_OUT):
            one.serve(7, number)
        service = {"protocol": "TCP", "address": SERVICE, "port": CALLED, "endpoints": [[one.ip_of(7), PORT]]}
        for machine in (one, two):
            machine.run("services", {**_plane(machine), "default/web:80/IPv6": service})
        self.served, self.address = f"{one.node}-7", one.ip_of(7)
        (self.uid,) = one.sandboxes(7)

    def asks(
        self, machine: Machine, number: int, address: str = "", port: int = PORT, own: Certificate | None = None
    ) -> str:
        """Return who answers a Pod, or with the number 0 the machine itself."""
        files = [str(own.cert), str(own.key)] if own is not None else ["", ""]
        words = [sys.executable, "-c", ASK, address or self.address, str(port), *files]
        return (machine.pod(number, *words).stdout if number else machine.inside(*words)).strip()

    def ways(self) -> list[Callable[[], str]]:
        """Return the ways of strangers to the Pod's port."""
        one, two, node = self.one, self.two, f"2001:db8::{self.one.number}"
        return [
            lambda: self.asks(one, 8),
            lambda: self.asks(two, 8),
            lambda: self.asks(two, 0),
            lambda: self.asks(one, 8, SERVICE, CALLED),
            lambda: self.asks(two, 8, SERVICE, CALLED),
            lambda: self.asks(two, 0, node, HOST_PORT),
            lambda: self.asks(one, 8, node, HOST_PORT),
        ]

    def link_local(self) -> str:
        """Return the address that the Pod has given itself."""
        shown = self.one.pod(7, "ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").stdout
        return shown.split(" inet6 ")[1].partition("/")[0] + "%eth0" if " inet6 " in shown else self.address

    def rules(self, **more: Any) -> dict[str, Any]:
        """Return the section's entries for the Pod that serves."""
        own = [self.one.gateway, DUAL.gateway_of(self.one.cidr)]
        entry = {"attempt": 0, "node_addresses": own, "exclude_inbound_ports": [LEFT_OUT], "mutual_tls": True}
        return {self.uid: {**entry, **more}}

    def writes_by(self, program: str) -> None:
        """Have the machine write rules with a program."""
        module = "minik8s_modules.module_utils.minik8s.network.sidecars"
        self.one.setup = f"import {module} as sidecars; sidecars.program = lambda: {program!r}"


def _plane(machine: Machine) -> dict[str, Any]:
    ranges = {"cluster_cidr": DUAL.ipv4, "pod_cidr": machine.cidr, "gateway": machine.gateway}
    second = {"cluster_cidr": DUAL.cluster_cidr, "gateway": DUAL.gateway_of(machine.cidr)}
    ipv6 = {"service_cidr": "fd00:100::/112", "pod_cidr": DUAL.range_of(machine.cidr), **second}
    whole = {"mode": "nftables", "table": "minik8s", "service_cidr": "100.0.0.0/24", "bridge": "mk8t-br"}
    return {"dataplane": {**whole, "node_ip": machine.address, **ranges, "ipv6": ipv6}}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    with two_machines(folder) as (one, two):
        yield Town(one, two, folder)


@pytest.mark.parametrize("program", [IPTABLES, NFTABLES])
def test_no_way_of_ipv6_leads_to_a_strict_pod(town: Town, program: str):
    town.writes_by(program)
    ways, ours = town.ways(), town.mesh.issue("caller", "sidecar")
    assert [way() for way in ways] == [town.served] * len(ways), "each way is one, without mutual TLS"
    # a sidecar that takes no TLS has no rules of IPv6
    plain = town.rules(mutual_tls=False, node_addresses=[town.one.gateway])
    assert town.one.run("sidecars", plain)["status"] == {town.uid: {"by": program}}
    assert [way() for way in ways] == [town.served] * len(ways)
    foreseen = town.one.run("sidecars", town.rules(), check=True)
    assert town.one.run("sidecars", town.rules())["steps"] == foreseen["steps"]
    assert "ipv6 MINIK8S_INBOUND" in str(foreseen["differences"])
    assert not town.one.run("sidecars", town.rules())["changed"]
    # before there is a sidecar, nobody is let in
    assert [way() for way in ways] == [CLOSED] * len(ways)
    assert town.asks(town.one, 8, town.link_local()) == CLOSED
    with sidecar(town.one.pids[7], STRICT, town.mesh):
        assert [way() for way in ways] == [CLOSED] * len(ways)
        assert town.asks(town.one, 8, town.link_local()) == CLOSED
        assert [town.asks(town.two, 8, port=port) for port in OWN_PORTS] == [CLOSED] * len(OWN_PORTS)
        assert [town.asks(town.two, 8, port=port, own=ours) for port in OWN_PORTS] == [CLOSED] * len(OWN_PORTS)
        assert town.asks(town.two, 8, own=town.other.issue("thief", "sidecar")) == CLOSED
        # those of the mesh are served; what is left out, the node itself and the Pod's own programs pass
        assert town.asks(town.two, 8, own=ours) == town.served
        assert town.asks(town.one, 8, SERVICE, CALLED, ours) == town.served
        assert town.asks(town.two, 8, port=LEFT_OUT) == town.served
        assert town.asks(town.one, 0) == town.served
        assert town.asks(town.one, 7) == town.served
    with sidecar(town.one.pids[7], PERMISSIVE, town.mesh):
        assert [way() for way in ways] == [town.served] * len(ways)
        assert town.asks(town.two, 8, own=ours) == town.served
    for harm in HARM[program]:
        assert town.one.pod(7, *harm).returncode == 0
        assert town.one.run("sidecars", town.rules(), check=True)["changed"], harm
        town.one.run("sidecars", town.rules())
        assert town.asks(town.two, 8) == CLOSED, harm
    town.one.run("sidecars", {})
    assert [way() for way in ways] == [town.served] * len(ways)
    assert "15008" not in town.one.pod(7, "nft", "list", "ruleset").stdout


HARM = {
    IPTABLES: [
        ["ip6tables", "-t", "nat", "-F", "MINIK8S_INBOUND"],
        ["ip6tables", "-t", "nat", "-F", "PREROUTING"],
        ["ip6tables", "-t", "nat", "-I", "MINIK8S_INBOUND", "-j", "RETURN"],
    ],
    NFTABLES: [
        ["nft", "delete", "table", "ip6", "minik8s_sidecar"],
        ["nft", "insert", "rule", "ip6", "minik8s_sidecar", "MINIK8S_INBOUND", "return"],
    ],
}


# a packet that begins no connection, which the listener drops without a word as it is signed; then one that does
AHEAD = """
import socket, struct, sys
address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.socket(family, socket.SOCK_STREAM) as talking:
    talking.bind(("", 0))
    talking.settimeout(20)
    own = talking.getsockname()[1]
    signed = bytes([19, 18]) + bytes(16) + bytes([1, 1])
    head = struct.pack("!HHIIBBHHH", own, port, 1, 1, 10 << 4, 0x10, 1024, 0, 0) + signed
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        if family == socket.AF_INET6:
            raw.setsockopt(socket.IPPROTO_IPV6, 7, 16)
        else:
            raw.connect((address, 0))
            ends = socket.inet_aton(raw.getsockname()[0]) + socket.inet_aton(address)
            words = struct.unpack(f"!{(len(head) + 12) // 2}H", ends + struct.pack("!HH", 6, len(head)) + head)
            total = sum(words)
            total = (total >> 16) + (total & 0xFFFF)
            check = ~(total + (total >> 16)) & 0xFFFF
            head = head[:16] + struct.pack("!H", check) + head[18:]
        raw.sendto(head, (address, 0))
    try:
        talking.connect((address, port))
        print(talking.recv(200).decode().partition(" ")[0] or "closed")
    except OSError:
        print("closed")
"""


@pytest.mark.parametrize("program", [IPTABLES, NFTABLES])
def test_a_packet_that_begins_no_connection_lets_none_in(town: Town, program: str):
    """The kernel would take it for part of a connection that is older than the rules, and let pass what follows."""
    town.writes_by(program)
    targets = [town.address, town.one.ip_of(7, 4)]

    def answers() -> list[str]:
        asked = (town.two.pod(8, sys.executable, "-c", AHEAD, each, str(PORT)) for each in targets)
        return [done.stdout.strip() or done.stderr for done in asked]

    assert answers() == [town.served] * len(targets), "the tool works"
    town.one.run("sidecars", town.rules())
    assert answers() == [CLOSED] * len(targets)
    town.one.run("sidecars", {})
