"""Attack: answer other Pods' DNS questions, by a port 53 of all of the node's addresses.

The name server's address is one of each node's own, so ``hostPort: 53`` without an address means it, too, and so does a
port that somebody has Docker publish. Each of these works once the guard is gone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.names.dns_guard import table_of
from tests.support.dual_stack import Machine, two_machines

LISTENS = ("169.254.20.10", "fd00:169:254:20::10")
OTHER = 8080
PORTS = [
    {"ip": "", "protocol": protocol, "host_port": port, "port": 53}
    for protocol, port in (("UDP", 53), ("TCP", 53), ("TCP", OTHER))
]
OURS = "ours"
# at each of the addresses, over TCP and UDP, whether the machine has it yet or not (IP_FREEBIND, IPV6_FREEBIND)
NAME_SERVER = """
import select, socket, sys
sockets = []
for address in sys.argv[2:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        ipv6 = ":" in address
        made = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, kind)
        made.setsockopt(*((socket.IPPROTO_IPV6, 78) if ipv6 else (socket.IPPROTO_IP, 15)), 1)
        made.bind((address, 53))
        if kind == socket.SOCK_STREAM:
            made.listen(64)
        sockets.append(made)
print("ready", flush=True)
told = f"{sys.argv[1]} -".encode()
while True:
    for one in select.select(sockets, [], [])[0]:
        if one.type == socket.SOCK_DGRAM:
            one.sendto(told, one.recvfrom(64)[1])
        else:
            asking = one.accept()[0]
            asking.sendall(told)
            asking.close()
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with two_machines(tmp_path) as (one, two):
        for each, peer in ((one, two), (two, one)):
            each.run("network", each.network(peer))
        yield one


@contextmanager
def name_server(machine: Machine) -> Iterator[None]:
    argv = ["ip", "netns", "exec", machine.netns, sys.executable, "-c", NAME_SERVER, OURS, *LISTENS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            server.kill()


def names(listen: str) -> dict[str, Any]:
    config = {"listen": listen, "port": 53, "domain": "cluster.local", "forward": ["192.0.2.9"]}
    return {"server": {**config, "host_resolver": False}}


def publish(machine: Machine) -> None:
    """Lead port 53 of all of the machine's addresses to the attacker's Pod, as Docker does with a published port."""
    for family, program in ((4, "iptables"), (6, "ip6tables")):
        address = machine.ip_of(7, family)
        target = f"[{address}]:53" if family == 6 else f"{address}:53"
        for chain in ("PREROUTING", "OUTPUT"):
            for protocol in ("udp", "tcp"):
                local = ["-m", "addrtype", "--dst-type", "LOCAL", "-p", protocol, "--dport", "53"]
                machine.inside(program, "-t", "nat", "-A", chain, *local, "-j", "DNAT", "--to-destination", target)


def answers(machine: Machine, address: str) -> set[str]:
    """Return who answers questions to an address: a Pod's on this node, and the node's own, over both protocols."""
    asks = (machine.asking(8), machine.ask)
    return {ask(address, 53, protocol).name for ask in asks for protocol in ("UDP", "TCP")}


@pytest.mark.parametrize("listen", LISTENS)
@pytest.mark.parametrize("way", ["hostPort", "published"])
def test_questions_go_to_the_clusters_dns(machine: Machine, listen: str, way: str) -> None:
    mallory, victim = f"{machine.node}-7", f"ip{6 if ':' in listen else ''}"
    with name_server(machine):
        foreseen = machine.run("dns", names(listen), check=True)
        assert machine.run("dns", names(listen))["steps"] == foreseen["steps"]
        ports = PORTS if way == "hostPort" else []
        machine.start(7, host_ports=ports)
        machine.start(7, 8)
        machine.run("sandboxes", {**machine.sandboxes(7, host_ports=ports), **machine.sandboxes(8)})
        if way == "published":
            publish(machine)
        machine.serve(7, 53)
        assert answers(machine, listen) == {OURS}
        node = f"2001:db8::{machine.number}" if ":" in listen else machine.address
        # between neighbours on the bridge a published port takes more than one rule: the machine itself asks then
        ask = machine.asking(8) if way == "hostPort" else machine.ask
        assert ask(node, 53, "UDP").name == mallory, "the port itself is the attacker's to have"
        if way == "hostPort":
            assert ask(listen, OTHER).name == mallory, "other ports of the address are as all of the machine's"
        machine.inside("nft", "flush", "table", victim, table_of(machine.node))
        for protocol in ("UDP", "TCP"):
            assert ask(listen, 53, protocol).name == mallory, "nothing else keeps it"
        assert [step["action"] for step in machine.run("dns", names(listen))["steps"]] == ["guard-address"]
        assert not machine.run("dns", names(listen))["changed"]
        assert answers(machine, listen) == {OURS}
        # another address, and none
        other = next(each for each in LISTENS if each != listen)
        machine.run("dns", names(other))
        assert answers(machine, other) == {OURS}
    machine.run("dns", {})
    assert table_of(machine.node) not in machine.inside("nft", "list", "tables")
