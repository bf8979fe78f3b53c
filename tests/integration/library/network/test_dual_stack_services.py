"""Services with addresses of IPv6 on two nodes, with real connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dual_stack import DUAL, OUTSIDE, Machine, two_machines
from tests.support.node import command

PORT = 8080


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with two_machines(tmp_path) as (one, two):
        for machine, peer in ((one, two), (two, one)):
            machine.run("network", machine.network(peer))
            machine.start(7, 8)
            for number in (7, 8):
                machine.serve(number, PORT)
        yield one, two


def plane(machine: Machine, *, ipv6: bool = True) -> dict[str, Any]:
    """Return how the machine realizes services."""
    entry: dict[str, Any] = {
        "mode": "nftables",
        "table": "minik8s",
        "service_cidr": "100.0.0.0/24",
        "cluster_cidr": DUAL.ipv4,
        "pod_cidr": machine.cidr,
        "bridge": "mk8t-br",
        "overlay": "mk8t-vx",
        "gateway": machine.gateway,
        "node_ip": machine.address,
    }
    if ipv6:
        entry["ipv6"] = {
            "service_cidr": "fd00:100::/112",
            "cluster_cidr": DUAL.cluster_cidr,
            "pod_cidr": DUAL.range_of(machine.cidr),
            "gateway": DUAL.gateway_of(machine.cidr),
            "node_ip": f"2001:db8::{machine.number}",
        }
    return {"dataplane": entry}


def port(address: str, *ends: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a port 80 of a Service."""
    return {"protocol": "TCP", "address": address, "port": 80, "endpoints": [[end, PORT] for end in ends], **more}


def test_a_service_is_reached_at_its_ipv6_address(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    before = one.traces()
    ends = [one.ip_of(7), two.ip_of(7)]
    both = {f"{machine.node}-7" for machine in machines}
    entries = {
        "default/web:80": port("100.0.0.2", one.ip_of(7, 4), two.ip_of(7, 4), node_port=30082),
        "default/web:80/IPv6": port("fd00:100::2", *ends, node_port=30080),
        "default/udp:80/IPv6": port("fd00:100::3", two.ip_of(8), protocol="UDP"),
        "default/idle:80/IPv6": port("fd00:100::4"),
        "default/sticky:80/IPv6": port("fd00:100::5", *ends, affinity_s=60),
        "default/own:80/IPv6": port("fd00:100::6", one.ip_of(7)),
        "default/kept:80/IPv6": port(
            "fd00:100::7", *ends, node_port=30081, node_endpoints=[[one.ip_of(7), PORT]], keep_source=True
        ),
    }
    declared = {**plane(one), **entries}
    foreseen = one.run("services", declared, check=True)
    done = one.run("services", declared)
    assert (foreseen["changed"], foreseen["diff"]) == (True, done["diff"])
    two.run("services", {**plane(two), **entries})
    assert not one.run("services", declared)["changed"]
    # from the machine, a pod of it, and a pod of another
    for ask in (one.ask, one.asking(8), two.asking(8), one.asking(7)):
        assert {ask("fd00:100::2", 80).name for _ in range(4)} == both
        assert {ask("100.0.0.2", 80).name for _ in range(4)} == both
        assert ask("fd00:100::4", 80).name == "refused"
        assert ask("fd00:100::2", 81).name == "refused"
        assert len({ask("fd00:100::5", 80).name for _ in range(4)}) == 1
        assert ask("fd00:100::3", 80, "UDP").name == f"{two.node}-8"
    # a pod is seen with its own address, and reaches itself
    assert two.asking(8)("fd00:100::6", 80).client == two.ip_of(8)
    assert one.asking(8)("fd00:100::6", 80).client == one.ip_of(8)
    assert one.asking(7)("fd00:100::6", 80) == (f"{one.node}-7", DUAL.gateway_of(one.cidr))
    # from outside, at the node's address; with policy Local the client keeps its own
    outside = one.asking_outside()
    assert {outside("2001:db8::1", 30080).name for _ in range(4)} == both
    assert outside("2001:db8::1", 30081) == (f"{one.node}-7", OUTSIDE)
    # no node port at ::1, which is told at once: who asks for localhost takes 127.0.0.1 then
    assert one.ask("::1", 30080).name == "refused"
    # which leads to the pods of both machines, through the tunnel, too
    assert {one.ask("127.0.0.1", 30082).name for _ in range(4)} == both
    # what somebody changes by hand is put right
    for damage in (
        "nft delete table ip6 minik8s",
        "nft flush map ip6 minik8s cluster_ips",
        "nft flush chain ip6 minik8s services",
        "sysctl -w net.ipv4.conf.mk8t-vx.route_localnet=0",
        "ip -6 route del fd00:100::/112",
    ):
        one.inside(*damage.split())
        assert one.run("services", declared, check=True)["changed"], damage
        one.run("services", declared)
        assert one.ask("fd00:100::2", 80).name in both, damage
        assert not one.run("services", declared, check=True)["changed"], damage
    # what goes leaves nothing, and IPv4 does not notice
    one.run("services", {**plane(one, ipv6=False), "default/web:80": entries["default/web:80"]})
    assert one.ask("100.0.0.2", 80).name in both
    assert "ip6 minik8s" not in one.inside("nft", "list", "tables").replace("ip6 minik8s_", "")
    one.run("services", {})
    assert one.traces() == before


def test_services_of_sctp_lead_to_pods_by_both_families(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine in machines:
        for family in (4, 6):
            machine.serve(7, PORT, sctp=machine.ip_of(7, family))
    both = {f"{machine.node}-7" for machine in machines}
    ends = {family: [one.ip_of(7, family), two.ip_of(7, family)] for family in (4, 6)}
    entries = {
        "default/sctp:80": port("100.0.0.2", *ends[4], protocol="SCTP", node_port=30090),
        "default/sctp:80/IPv6": port("fd00:100::2", *ends[6], protocol="SCTP", node_port=30090),
        # of another protocol at the same places
        "default/tcp:80": port("100.0.0.2", one.ip_of(7, 4)),
    }
    for machine in machines:
        machine.run("services", {**plane(machine), **entries})
        assert not machine.run("services", {**plane(machine), **entries})["changed"]
    for ask in (one.ask, one.asking(8), two.asking(8)):
        for address in ("100.0.0.2", "fd00:100::2"):
            assert {ask(address, 80, "SCTP").name for _ in range(4)} == both
    assert {one.ask(one.address, 30090, "SCTP").name for _ in range(4)} == both
    assert {one.asking_outside()("2001:db8::1", 30090, "SCTP").name for _ in range(4)} == both
    assert one.asking(8)("100.0.0.2", 80, "SCTP").client == one.ip_of(8, 4)
    one.run("services", {**plane(one), "default/tcp:80": entries["default/tcp:80"]})
    assert one.asking(8)("100.0.0.2", 80, "SCTP", wait_s=1).name == "silent"
    # a kernel that does not know SCTP is told of by name, and the rest goes on
    one.setup = (
        "from minik8s_modules.module_utils.minik8s.services import services\nservices.follows_sctp = lambda: False"
    )
    result = one.attempt("services", {**plane(one), **entries})
    assert {key: why["reason"] for key, why in result["errors"].items()} == dict.fromkeys(
        ("default/sctp:80", "default/sctp:80/IPv6"), "ProtocolNotSupported"
    )
    assert one.ask("100.0.0.2", 80).name == f"{one.node}-7"


BALANCED = "2001:db8::50"


def balanced(*ends: str, by: Machine, **more: Any) -> dict[str, Any]:
    """Return a Service with an address from outside that a machine announces."""
    entry = port("fd00:100::2", *ends, outside=[BALANCED], announced={BALANCED: by.node}, **more)
    return {"default/web:80/IPv6": entry}


def shown(machine: Machine) -> list[str]:
    """Return the addresses of /128 on the machine's card."""
    lines = machine.inside("ip", "-6", "-oneline", "addr", "show", "dev", "eth0").splitlines()
    return [line.split()[3] for line in lines if "/128" in line]


def test_a_load_balancer_has_an_ipv6_address_that_one_machine_announces(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    ends, both = [one.ip_of(7), two.ip_of(7)], {f"{machine.node}-7" for machine in machines}
    outside = one.asking_outside()
    for machine in machines:
        foreseen = machine.run("services", {**plane(machine), **balanced(*ends, by=one)}, check=True)
        done = machine.run("services", {**plane(machine), **balanced(*ends, by=one)})
        assert (foreseen["changed"], foreseen["diff"]) == (True, done["diff"])
        assert not machine.run("services", {**plane(machine), **balanced(*ends, by=one)})["changed"]
    assert (shown(one), shown(two)) == ([f"{BALANCED}/128"], [])
    for ask in (outside, one.ask, one.asking(8), two.asking(8)):
        assert {ask(BALANCED, 80).name for _ in range(4)} == both
    # nothing of the machine's own answers there, and it never sends from there
    assert outside(BALANCED, 22).name == "refused"
    assert "2001:db8::1 " in one.inside("ip", "-6", "route", "get", OUTSIDE)
    # the next one takes it over while the first has it still, and neighbours know at once
    two.run("services", {**plane(two), **balanced(*ends, by=two)})
    hardware = two.inside("ip", "-oneline", "link", "show", "eth0").split("link/ether ")[1].split()[0]
    assert hardware in command("ip", "-n", one.switch, "-6", "neigh", "show", BALANCED)
    one.run("services", {**plane(one), **balanced(*ends, by=two)})
    assert (shown(one), shown(two)) == ([], [f"{BALANCED}/128"])
    assert {outside(BALANCED, 80).name for _ in range(4)} == both
    # only the Pods of this machine, who see the client
    local = {"node_endpoints": [[two.ip_of(7), PORT]], "keep_source": True}
    two.run("services", {**plane(two), **balanced(*ends, by=two, **local)})
    assert {outside(BALANCED, 80) for _ in range(3)} == {(f"{two.node}-7", OUTSIDE)}
    for sources, name in (([f"{OUTSIDE}/128"], f"{two.node}-7"), (["2001:db8:1::/48"], "silent"), ([], "silent")):
        two.run("services", {**plane(two), **balanced(*ends, by=two, **local, sources=sources)})
        assert outside(BALANCED, 80, wait_s=20 if name != "silent" else 1).name == name, sources
    declared = {**plane(two), **balanced(*ends, by=two)}
    two.run("services", declared)
    two.inside("ip", "-6", "addr", "del", f"{BALANCED}/128", "dev", "eth0")
    assert two.run("services", declared, check=True)["changed"]
    two.run("services", declared)
    assert shown(two) == [f"{BALANCED}/128"]
    # one of somebody else's is left, and told
    one.inside("ip", "-6", "addr", "add", "2001:db8::51/128", "dev", "eth0", "nodad")
    taken = {**port("fd00:100::3", *ends), "outside": ["2001:db8::51"], "announced": {"2001:db8::51": one.node}}
    result = one.attempt("services", {**plane(one), "default/taken:80/IPv6": taken})
    assert "not ours" in result["errors"]["dataplane"]["message"]
    for machine in machines:
        machine.run("services", {})
    assert (shown(one), shown(two)) == (["2001:db8::51/128"], [])


def test_a_service_is_reached_at_the_machines_own_address_and_at_one_that_others_route_here(
    machines: tuple[Machine, Machine],
) -> None:
    one, two = machines
    ends, both = [one.ip_of(7), two.ip_of(7)], {f"{machine.node}-7" for machine in machines}
    declared = {
        **plane(one),
        "default/web:80/IPv6": port("fd00:100::2", *ends, at_nodes=True, sources=[f"{OUTSIDE}/128"]),
        "default/ext:80/IPv6": port("fd00:100::3", one.ip_of(7), outside=["2001:db8:7::7"]),
    }
    foreseen = one.run("services", declared, check=True)
    assert foreseen["diff"] == one.run("services", declared)["diff"]
    assert not one.run("services", declared)["changed"]
    outside = one.asking_outside()
    assert {outside("2001:db8::1", 80).name for _ in range(4)} == both
    assert outside("2001:db8::1", 81).name == "refused", "other ports are the machine's own"
    assert shown(one) == [], "the machine has no other address than before"
    command("ip", "-n", one.switch, "-6", "route", "add", "2001:db8:7::7", "via", "2001:db8::1")
    for ask in (outside, one.asking(8)):
        assert ask("2001:db8:7::7", 80).name == f"{one.node}-7"
    closed = {**declared, "default/web:80/IPv6": {**declared["default/web:80/IPv6"], "sources": ["2001:db8:1::/48"]}}
    one.run("services", closed)
    assert outside("2001:db8::1", 80, wait_s=1).name == "silent"
    one.run("services", plane(one))
    assert outside("2001:db8::1", 80).name == "refused"


def test_a_pod_reaches_another_of_its_node_again_and_again(machines: tuple[Machine, Machine]) -> None:
    """The first time the router says that they are neighbours, which must not be believed: it alone may be called."""
    one, _two = machines
    assert [one.asking(8)(one.ip_of(7), PORT, wait_s=60) for _ in range(3)] == [(f"{one.node}-7", one.ip_of(8))] * 3


def test_policies_hold_for_what_reaches_a_pod_through_a_service(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    allowed: dict[str, Any] = {"peers": {"groups": [], "blocks": [[f"{two.ip_of(8)}/128", []]]}, "ports": None}
    nobody: dict[str, Any] = {"groups": [], "ports": [], "ingress": None, "egress": None}
    rules = {
        "filter": {"table": "minik8s_policies", "bridge": "mk8t-br", "driver": "vxlan", "ipv6": True},
        "policy/default/web": {"ingress": [allowed], "egress": None},
        "pod/default/db": {
            **nobody,
            "address": one.ip_of(7, 4),
            "address_ipv6": one.ip_of(7),
            "ingress": ["policy/default/web"],
        },
    }
    service = {"default/db:80/IPv6": port("fd00:100::6", one.ip_of(7))}
    for machine in machines:
        machine.run("services", {**plane(machine), **service})
    one.run("policies", rules)
    assert two.asking(8)("fd00:100::6", 80).name == f"{one.node}-7"
    # from another node, and from the same one, where the kernel sends the packet on within the bridge
    for ask in (two.asking(7), one.asking(8)):
        assert ask("fd00:100::6", 80, wait_s=3).name in {"refused", "silent"}
    one.run("policies", {})
    assert one.asking(8)("fd00:100::6", 80).name == f"{one.node}-7"
