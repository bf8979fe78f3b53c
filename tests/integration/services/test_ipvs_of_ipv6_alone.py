"""Services by IPVS in a cluster of IPv6 alone, on a lab node, whose kernel has it, with real packets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.integration.services.machines import Machine
from tests.integration.services.test_ipvs_of_both_families import (
    ADDRESS,
    BOTH,
    CLIENT,
    OWN,
    SECOND,
    SERVICE,
    Dual,
    prepared,
    second,
    servers,
)
from tests.lab.lab import Lab

DEVICE = "minik8s-dummy"


class Alone(Dual):
    """A machine whose Services have no addresses of IPv4."""

    @property
    def plane(self) -> JsonObject:
        """The entry ``dataplane``."""
        nothing = dict.fromkeys(("service_cidr", "cluster_cidr", "pod_cidr", "gateway"), "")
        return {**super().plane, **nothing, "node_ip": OWN}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    # of its own: what the tests of both families leave on a machine is in the way of these
    with Lab(f"t{uuid.uuid4().hex[:7]}") as lab:
        lab.up(1, "uml")
        with prepared(lab, Alone) as made:
            yield made


def test_a_service_is_reached_from_everywhere_and_leaves_nothing(machine: Machine) -> None:
    declared = {
        "web:80/IPv6": second("pod2", "pod3", node_port=30080),
        "sticky:80/IPv6": {**second("pod2", "pod3"), "address": "fd00:100::3", "affinity_s": 60},
        "idle:80/IPv6": {**second(), "address": "fd00:100::4"},
    }
    entries = {"dataplane": machine.plane, **{f"default/{name}": one for name, one in declared.items()}}
    foreseen = machine.pass_(entries=entries, check=True)
    assert foreseen["diff"] == machine.declare(**declared)["diff"]
    assert not machine.pass_(entries=machine.entries)["changed"]
    for client in ("", *SECOND):
        assert set(machine.ask(SERVICE, 80, count=10, pod=client)) == BOTH, client
    assert len(machine.ask("fd00:100::3", 80, count=6, pod="pod4")) == 1
    for address, port in ((SERVICE, 81), ("fd00:100::4", 80), ("fd00:100::99", 80)):
        assert machine.ask(address, port, pod="pod4") == {"refused": 1}
    assert machine.clients(SERVICE, 80, "pod4") == [SECOND["pod4"]]
    assert set(machine.ask(OWN, 30080, count=10, pod="outsider")) == BOTH
    assert CLIENT not in machine.clients(OWN, 30080, "outsider")
    assert "ip minik8s" not in " ".join(machine.lines("nft", "list", "tables")).replace("table ip6", "table six")
    machine.declare()
    assert servers(machine) == []
    machine.pass_(entries={})
    assert DEVICE not in machine.shell(["ip", "link"])
    assert "minik8s" not in " ".join(machine.lines("nft", "list", "tables"))


def test_an_address_of_a_load_balancer_is_announced(machine: Machine) -> None:
    balanced = second("pod2", "pod3", outside=[ADDRESS], announced={ADDRESS: "n1"}, at_nodes=True)
    machine.declare(**{"web:80/IPv6": balanced})
    for address in (ADDRESS, OWN):
        assert set(machine.ask(address, 80, count=10, pod="outsider")) == BOTH
    assert machine.ask(ADDRESS, 81, pod="outsider") == {"refused": 1}
    assert not machine.pass_(entries=machine.entries)["changed"]


def test_what_somebody_changes_by_hand_comes_back(machine: Machine) -> None:
    machine.declare(**{"web:80/IPv6": second("pod2", node_port=30080)})
    for damage in (
        f"ip link del {DEVICE}",
        f"ip -6 addr del {SERVICE}/128 dev {DEVICE}",
        "sysctl -w net.ipv4.vs.conntrack=0",
        f"ipvsadm -D -t [{SERVICE}]:80",
        "nft delete table ip6 minik8s",
    ):
        machine.shell(damage.split())
        assert machine.pass_(entries=machine.entries, check=True)["changed"], damage
        assert machine.pass_(entries=machine.entries)["errors"] == {}, damage
        assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}, damage
        assert not machine.pass_(entries=machine.entries)["changed"], damage


def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(machine: Machine) -> None:
    machine.pass_(entries={})
    entries = {"dataplane": machine.plane, "default/web:80/IPv6": second("pod2", node_port=30080)}
    assert machine.call("killed", folder=machine.folder, entries=entries)
    assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}


def test_other_rules_take_over_and_give_back(machine: Machine) -> None:
    services = {"default/web:80/IPv6": second("pod2", node_port=30080)}
    machine.pass_(entries={"dataplane": machine.plane, **services})
    for mode in ("nftables", "ipvs"):
        moved = {"dataplane": {**machine.plane, "mode": mode}, **services}
        assert machine.pass_(entries=moved)["errors"] == {}
        assert bool(servers(machine)) is (mode == "ipvs")
        assert machine.ask(SERVICE, 80, pod="pod4") == {"pod2": 1}, mode
        assert not machine.pass_(entries=moved)["changed"]
