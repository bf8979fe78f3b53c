"""Attack: answer what is meant for another's Service, by a ``hostPort`` of that number at all of a node's addresses.

An address of a load balancer lies on the node that announces it, so it is one of these, and a node port is a port of
them all. Whether the table of host ports or that of Services is the older one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.pods.host_ports import table_of
from tests.support.dual_stack import DUAL, Machine, two_machines

VICTIMS = {4: "192.0.2.50", 6: "2001:db8::50"}
TAKEN = (80, 30080)
PORTS = [{"ip": "", "protocol": "TCP", "host_port": port, "port": 8080} for port in (*TAKEN, 81)]


def services(machine: Machine) -> dict[str, Any]:
    """Return the section with the victim's Service, at an address of a load balancer and at a node port."""
    ranges = {"cluster_cidr": DUAL.ipv4, "pod_cidr": machine.cidr, "gateway": machine.gateway}
    second = {"cluster_cidr": DUAL.cluster_cidr, "gateway": DUAL.gateway_of(machine.cidr)}
    ipv6 = {"service_cidr": "fd00:100::/112", "pod_cidr": DUAL.range_of(machine.cidr), **second}
    whole = {"mode": "nftables", "table": "minik8s", "service_cidr": "100.0.0.0/24", "bridge": "mk8t-br"}
    node = {"node_ip": machine.address, **ranges, "ipv6": {**ipv6, "node_ip": f"2001:db8::{machine.number}"}}
    found: dict[str, Any] = {"dataplane": {**whole, **node}}
    for family, suffix, address in ((4, "", "100.0.0.9"), (6, "/IPv6", "fd00:100::9")):
        outside = {"outside": [VICTIMS[family]], "announced": {VICTIMS[family]: machine.node}}
        ends = [[machine.ip_of(8, family), 8080]]
        port = {"protocol": "TCP", "address": address, "port": 80, "endpoints": ends, "node_port": 30080}
        found[f"bank/web:80{suffix}"] = {**port, **outside}
    return found


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with two_machines(tmp_path) as (one, two):
        for each, peer in ((one, two), (two, one)):
            each.run("network", each.network(peer))
        yield one, two


@pytest.mark.parametrize("ports_first", [False, True])
def test_a_port_of_all_addresses_leads_to_no_service(machines: tuple[Machine, Machine], *, ports_first: bool) -> None:
    one, two = machines
    if not ports_first:
        one.start(8)
        one.run("services", services(one))
    one.start(7, host_ports=PORTS)
    one.start(7, 8)
    pods = {**one.sandboxes(7, host_ports=PORTS), **one.sandboxes(8)}
    one.run("sandboxes", pods)
    if ports_first:
        one.run("services", services(one))
    one.serve(7, 8080)
    one.serve(8, 8080)
    mallory, bank = (f"{one.node}-{number}" for number in (7, 8))

    def holds() -> None:
        for family, node in ((4, one.address), (6, f"2001:db8::{one.number}")):
            asks = [(VICTIMS[family], 80), (node, 30080)]
            assert [two.ask(*place).name for place in asks] == [bank, bank]
            # nor does a port that the Service does not have answer at its address
            assert two.ask(VICTIMS[family], 81).name == "refused"
            assert two.ask(node, 81).name == mallory, "the port is the attacker's to have elsewhere"

    holds()
    assert not one.run("sandboxes", pods)["changed"]
    # a table that stands where it once did is made again
    prerouting = f"ip {table_of(one.node)} prerouting"
    one.inside("nft", "delete", "chain", *prerouting.split())
    hook = "{ type nat hook prerouting priority dstnat; policy accept; }"
    one.inside("nft", "add", "chain", *prerouting.split(), hook)
    one.inside("nft", "add", "rule", *prerouting.split(), "fib", "daddr", "type", "local", "jump", "ports")
    assert two.ask(VICTIMS[4], 80).name == mallory, "nothing else keeps it"
    assert [step["action"] for step in one.run("sandboxes", pods)["steps"]] == ["ports"]
    holds()
