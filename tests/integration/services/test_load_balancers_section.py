"""Addresses from outside by both backends, with real packets of a client in the machine's own network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.integration.services.machines import PODS, Machine, entry, namespace, on_lab

CLIENT, OWN, ADDRESS = "192.0.2.9", "192.0.2.1", "192.0.2.50"
BOTH = {"pod2", "pod3"}
UPLINK = "mk8t-up"


@pytest.fixture(scope="module", params=["nftables", "ipvs on a lab node"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    mode, _, place = str(request.param).partition(" ")
    with ExitStack() as stack:
        here = None if place else stack.enter_context(namespace(mode))
        made = here or on_lab(request.getfixturevalue("lab"), "node1", mode)
        made.node_ip = OWN
        made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=PODS)
        made.call("pods", bridge=UPLINK, gateway=OWN, pods={"outsider": CLIENT})
        try:
            yield made
        finally:
            made.pass_(entries={})
            if place:
                made.call("down")


def balanced(*pods: str, **more: object) -> dict[str, object]:
    """Return a Service with an address from outside that this machine announces."""
    return entry("100.0.0.2", *pods, outside=[ADDRESS], announced={ADDRESS: "n1"}, **more)


def announced(machine: Machine) -> list[str]:
    """Return the addresses on the uplink that are not the machine's own."""
    found = [line.split() for line in machine.lines("ip", "-4", "-oneline", "addr", "show", "dev", UPLINK)]
    return sorted(words[3] for words in found if words[3] != f"{OWN}/24")


def test_a_client_outside_reaches_the_pods_at_an_address_that_the_machine_announces(machine: Machine) -> None:
    machine.declare(**{"web:80": balanced("pod2", "pod3")})
    assert announced(machine) == [f"{ADDRESS}/32"]
    for client in ("outsider", "", "pod4"):
        assert set(machine.ask(ADDRESS, 80, count=10, pod=client)) == BOTH, client
    # an answer must come back through the machine, whatever node the pod is on
    assert machine.clients(ADDRESS, 80, "outsider") != [CLIENT]
    assert not machine.pass_(entries=machine.entries)["changed"]
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", "pod3")})
    assert announced(machine) == []
    assert machine.ask("100.0.0.2", 80) != {"refused": 1}


def test_with_policy_local_clients_keep_their_address(machine: Machine) -> None:
    local = {"node_endpoints": [[PODS["pod2"], 8080]], "keep_source": True}
    machine.declare(**{"web:80": balanced("pod2", "pod3", **local)})
    assert machine.ask(ADDRESS, 80, count=4, pod="outsider") == {"pod2": 4}
    assert machine.clients(ADDRESS, 80, "outsider") == [CLIENT]
    if machine.mode == "nftables":  # IPVS cannot tell clients apart
        assert set(machine.ask(ADDRESS, 80, count=10, pod="pod4")) == BOTH


def test_at_an_announced_address_nothing_of_the_machines_own_answers(machine: Machine) -> None:
    machine.declare(**{"web:80": balanced("pod2"), "idle:81": {**balanced(), "address": "100.0.0.3", "port": 81}})
    for port in (81, 8080, 22):
        assert machine.ask(ADDRESS, port, pod="outsider") == {"refused": 1}, port


def test_only_clients_of_the_ranges_come_in(machine: Machine) -> None:
    machine.declare(**{"web:80": balanced("pod2", sources=["198.51.100.0/24", f"{CLIENT}/32"])})
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}
    machine.declare(**{"web:80": balanced("pod2", sources=["198.51.100.0/24", "192.0.2.128/25"])})
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"silent": 1}
    assert machine.ask("100.0.0.2", 80) == {"pod2": 1}
    machine.declare(**{"web:80": balanced("pod2", sources=[])})  # all of them are of the other family
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"silent": 1}
    machine.declare(**{"web:80": balanced("pod2")})
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}
    assert not [line for line in machine.lines("nft", "list", "table", "ip", "minik8s") if "from_" in line]


def test_at_the_machines_own_address_the_port_of_the_service_leads_to_it(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", "pod3", at_nodes=True)})
    assert set(machine.ask(OWN, 80, count=10, pod="outsider")) == BOTH
    assert announced(machine) == []
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", "pod3")})
    assert machine.ask(OWN, 80, pod="outsider") == {"refused": 1}


def test_who_takes_an_address_over_tells_the_neighbours(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", outside=[ADDRESS], announced={ADDRESS: "another"})})
    assert announced(machine) == []
    inside = ["nsenter", f"--net=/proc/{machine.lines('cat', f'{machine.folder}/pods/outsider')[0]}/ns/net"]
    known = [*inside, "ip", "neigh"]
    machine.shell([*known, "replace", ADDRESS, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "reachable"])
    machine.declare(**{"web:80": balanced("pod2")})
    words = machine.shell(["ip", "-oneline", "link", "show", "dev", UPLINK]).split()
    assert words[words.index("link/ether") + 1] in machine.shell([*known, "show", ADDRESS])
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}


def test_what_somebody_takes_away_by_hand_comes_back(machine: Machine) -> None:
    machine.declare(**{"web:80": balanced("pod2")})
    machine.shell(["ip", "addr", "del", f"{ADDRESS}/32", "dev", UPLINK])
    machine.shell(["nft", "delete", "table", "ip", "minik8s"])
    seen = machine.pass_(entries=machine.entries, check=True)
    assert seen["changed"]
    assert announced(machine) == [], "a check changes nothing"
    assert machine.pass_(entries=machine.entries)["errors"] == {}
    assert announced(machine) == [f"{ADDRESS}/32"]
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}


def test_a_delta_moves_an_address_and_leaves_that_of_other_ports(machine: Machine) -> None:
    ports = {"default/web:http": balanced("pod2"), "default/web:other": {**balanced("pod3"), "port": 90}}
    entries = {"dataplane": machine.plane, **ports}
    digest = machine.pass_(entries=entries)["digest"]
    gone = machine.pass_(mode="delta", base=digest, upsert={}, delete=["default/web:other"])
    assert gone["errors"] == {}
    assert announced(machine) == [f"{ADDRESS}/32"]
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}
    away = {"default/web:http": {**ports["default/web:http"], "announced": {ADDRESS: "another"}}}
    assert machine.pass_(mode="delta", base=gone["digest"], upsert=away, delete=[])["errors"] == {}
    assert announced(machine) == []


def test_an_address_that_is_somebody_elses_is_told_and_left(machine: Machine) -> None:
    machine.declare()
    machine.shell(["ip", "addr", "add", f"{ADDRESS}/32", "dev", UPLINK])
    try:
        result = machine.pass_(entries={"dataplane": machine.plane, "default/web:80": balanced("pod2")})
        assert "not ours" in result["errors"]["dataplane"]["message"]
        assert machine.pass_(entries={"dataplane": machine.plane})["errors"] == {}
        assert announced(machine) == [f"{ADDRESS}/32"]
    finally:
        machine.shell(["ip", "addr", "del", f"{ADDRESS}/32", "dev", UPLINK])


def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(machine: Machine) -> None:
    entries = {"dataplane": machine.plane, "default/web:80": balanced("pod2", sources=["192.0.2.0/24"])}
    assert machine.call("killed", folder=machine.folder, entries=entries)
    assert machine.ask(ADDRESS, 80, pod="outsider") == {"pod2": 1}
