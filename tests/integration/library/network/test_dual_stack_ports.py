"""Ports of a node lead to pods by IPv6 as they do by IPv4."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.pods.host_ports import table_of
from tests.support.dual_stack import Machine, two_machines

SERVE = """
import socket
server = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    connection, peer = server.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
        print(connection.recv(99).decode())
except OSError as error:
    print(type(error).__name__)
"""
PORTS = [
    {"ip": "", "protocol": "TCP", "host_port": 23461, "port": 8080},
    {"ip": "0.0.0.0", "protocol": "TCP", "host_port": 23462, "port": 8080},  # of IPv4 alone
]
OF_IPV6 = [
    {"ip": "2001:db8::1", "protocol": "TCP", "host_port": 23463, "port": 8080},
    {"ip": "::", "protocol": "TCP", "host_port": 23464, "port": 8080},
]
NOBODY = ("ConnectionRefusedError", "TimeoutError", "OSError")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with two_machines(tmp_path) as made:
        yield made


@contextmanager
def serving(machine: Machine, number: int) -> Iterator[None]:
    argv = ["nsenter", "-t", str(machine.pids[number]), "-n", sys.executable, "-c", SERVE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        try:
            yield
        finally:
            server.kill()


def ask(machine: Machine, target: str, port: int, number: int = 0, *, wait_s: int = 10) -> str:
    argv = [sys.executable, "-c", ASK, target, str(port), str(wait_s)]
    return (machine.pod(number, *argv).stdout if number else machine.inside(*argv)).strip()


def test_a_port_of_the_node_leads_to_its_pod_at_both_addresses(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", machine.network(peer))
    one.start(7, host_ports=PORTS)
    one.start(7, 8)  # which tells the process of each
    entries = {**one.sandboxes(7, host_ports=PORTS), **one.sandboxes(8)}
    one.run("sandboxes", entries)
    ipv6 = f"2001:db8::{one.number}"
    with serving(one, 7):
        assert ask(two, ipv6, 23461) == f"2001:db8::{two.number}"
        assert ask(two, one.address, 23461) == f"::ffff:{two.address}"
        assert ask(two, one.address, 23462) == f"::ffff:{two.address}"
        assert ask(two, ipv6, 23462) in NOBODY
        assert ask(one, ipv6, 23461) == ipv6  # from the node itself
        assert ask(one, "::1", 23461) == "ConnectionRefusedError"  # its own
        assert ask(one, ipv6, 23461, 8) == one.ip_of(8)  # from another pod, and from itself
        assert ask(one, ipv6, 23461, 7) not in NOBODY
        _heals(one, entries, lambda: ask(two, ipv6, 23461) == f"2001:db8::{two.number}")
    # without the second address
    one.run("network", one.network(two, ipv6=False))
    single = {**one.sandboxes(7, ipv6=False, host_ports=PORTS), **one.sandboxes(8, ipv6=False)}
    one.run("sandboxes", single)
    assert f"ip6 {table_of(one.node)}" not in one.inside("nft", "list", "tables")
    with serving(one, 7):
        assert ask(two, one.address, 23461) == f"::ffff:{two.address}"
    one.run("sandboxes", {})
    assert table_of(one.node) not in one.inside("nft", "list", "tables")


def test_a_port_of_an_ipv6_address_of_the_node_is_open_there_alone(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", machine.network(peer))
    one.inside("ip", "-6", "addr", "add", "2001:db8::a1/64", "dev", "eth0", "nodad")
    one.start(7, host_ports=OF_IPV6)
    one.start(7, 8)
    entries = {**one.sandboxes(7, host_ports=OF_IPV6), **one.sandboxes(8)}
    foreseen = one.run("sandboxes", entries, check=True)
    assert "[2001:db8::1]:23463/tcp" in foreseen["diff"]["after"]
    assert one.run("sandboxes", entries)["steps"] == foreseen["steps"]
    assert not one.run("sandboxes", entries)["changed"]
    with serving(one, 7):
        for port, target, answered in (
            (23463, "2001:db8::1", True), (23463, "2001:db8::a1", False), (23463, one.address, False),
            (23464, "2001:db8::1", True), (23464, "2001:db8::a1", True), (23464, one.address, False),
        ):  # fmt: skip
            assert (ask(two, target, port) not in NOBODY) is answered, (port, target)
        assert ask(one, "2001:db8::1", 23463, 8) == one.ip_of(8)
        one.inside("nft", "flush", "map", "ip6", table_of(one.node), "tcp_one")
        assert one.run("sandboxes", entries)["steps"] != []
        assert ask(two, "2001:db8::1", 23463) not in NOBODY
    # a Pod without such an address is told
    result = one.attempt("sandboxes", one.sandboxes(7, ipv6=False, host_ports=OF_IPV6))
    assert "the pod has no IPv6 address" in next(iter(result["errors"].values()))["message"]
    one.run("sandboxes", {})
    assert table_of(one.node) not in one.inside("nft", "list", "tables")


def test_an_isolated_pod_is_not_reached_by_a_port_of_its_node(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", machine.network(peer))
    own: dict[str, Any] = {
        "address": one.ip_of(7, 4),
        "address_ipv6": one.ip_of(7),
        "groups": [],
        "ports": [],
        "egress": None,
    }
    rules = {
        "filter": {"table": "minik8s_policies", "bridge": "mk8t-br", "driver": "vxlan", "ipv6": True},
        "policy/default/wall": {"ingress": [], "egress": None},
        "pod/default/db": {**own, "ingress": ["policy/default/wall"]},
    }
    one.run("policies", rules)
    one.start(7, 8)
    one.run("sandboxes", {**one.sandboxes(7, host_ports=PORTS), **one.sandboxes(8)})
    target = f"2001:db8::{one.number}"
    with serving(one, 7):
        for asking, number in ((two, 0), (one, 8)):
            assert ask(asking, target, 23461, number, wait_s=1) in NOBODY
        one.run("policies", {})
        for asking, number in ((two, 0), (one, 8)):
            assert ask(asking, target, 23461, number) not in NOBODY


def _heals(one: Machine, entries: dict[str, Any], works: Any) -> None:
    for harm in (("flush", "chain", "ports"), ("flush", "map", "tcp_any"), ("delete", "table", "")):
        one.inside("nft", *harm[:2], "ip6", table_of(one.node), *harm[2:][: bool(harm[2])])
        steps = one.run("sandboxes", entries, check=True)["steps"]
        assert [step["action"] for step in steps] == ["ports"], harm
        assert one.run("sandboxes", entries)["steps"] == steps
        assert not one.run("sandboxes", entries)["changed"]
        assert works()
