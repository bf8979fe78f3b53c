"""Pods with an IPv6 address beside that of IPv4, on two nodes, with real packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dual_stack import DUAL, OUTSIDE, SWITCHES, Machine, two_machines

POLICY, WEB = "policy/default/web", "group/" + "a" * 24


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with two_machines(tmp_path) as made:
        yield made


def test_pods_reach_each_other_by_both_families_and_nothing_is_left(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    before = one.traces()
    two.inside("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")  # that devices have one by one
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", machine.network(peer))
    one.start(7, 8)
    two.start(7)
    for family in (4, 6):
        assert one.reaches(7, two.ip_of(7, family)), one.traces()
        assert one.reaches(7, one.ip_of(8, family))
    assert one.reaches(7, DUAL.gateway_of(one.cidr))
    assert one.reaches(7, OUTSIDE)  # it knows no way back to pods: what leaves the cluster is masqueraded
    assert one.is_cut_off(7, "fd00:77:5::7")  # of no node
    hosts = one.pod(7, "cat", f"/proc/{one.pids[7]}/root/etc/hosts").stdout
    assert f"{one.ip_of(7)}\tpod-7" in hosts
    # a second pass finds nothing to do
    assert not one.run("network", one.network(two))["changed"]
    again = one.run("sandboxes", one.sandboxes(7, 8))
    assert not again["changed"], again["diff"]
    # what somebody takes away comes back
    one.inside("ip", "neigh", "del", one.ip_of(7), "dev", "mk8t-br")
    one.pod(8, "ip", "-6", "route", "del", "default")
    assert one.run("sandboxes", one.sandboxes(7, 8), check=True)["changed"]
    one.run("sandboxes", one.sandboxes(7, 8))
    one.inside("ip", "-6", "addr", "flush", "dev", "mk8t-br", "scope", "global")
    one.inside("nft", "flush", "chain", "ip6", "minik8s_pods", "mk8t-br")
    assert one.run("network", one.network(two), check=True)["changed"]
    one.run("network", one.network(two))
    assert one.reaches(7, two.ip_of(7))
    assert one.reaches(8, OUTSIDE)
    # a cluster that gives the addresses up
    one.run("network", one.network(two, ipv6=False))
    assert not one.run("network", one.network(two, ipv6=False))["changed"]
    assert "fd00:77" not in one.inside("ip", "-6", "addr") + one.inside("ip", "-6", "route")
    one.run("network", one.network(two))
    for machine in machines:
        machine.run("sandboxes", {})
        machine.run("network", {})
    assert one.traces() == before


def test_a_policy_isolates_both_addresses(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", machine.network(peer))
    open_to: dict[str, Any] = {"peers": {"groups": [WEB], "blocks": []}, "ports": None}
    nobody: dict[str, Any] = {"groups": [], "ports": [], "ingress": None, "egress": None}
    entries = {
        "filter": {"table": "minik8s_policies", "bridge": "mk8t-br", "driver": "vxlan", "ipv6": True},
        POLICY: {"ingress": [open_to], "egress": None},
        "pod/default/db": {**nobody, **_addresses(one, 7), "ingress": [POLICY]},
        "pod/default/web": {**nobody, **_addresses(two, 7), "groups": [WEB]},
    }
    one.run("policies", entries)
    one.start(7, 8)
    two.start(7, 8)
    for family in (4, 6):
        target = one.ip_of(7, family)
        assert two.reaches(7, target)
        assert two.is_cut_off(8, target)
        assert one.is_cut_off(8, target)  # nor on the same node
        assert one.reaches(7, two.ip_of(8, family))
    assert not one.run("policies", entries)["changed"]
    one.inside("nft", "flush", "chain", "ip6", "minik8s_policies", "ingress")
    assert one.run("policies", entries, check=True)["changed"]
    one.run("policies", entries)
    assert two.is_cut_off(8, one.ip_of(7))
    # by range, of either family
    block = {"peers": {"groups": [], "blocks": [[f"{two.ip_of(8)}/128", []]]}, "ports": None}
    one.run("policies", {**entries, POLICY: {"ingress": [block], "egress": None}})
    assert two.reaches(8, one.ip_of(7))
    assert two.is_cut_off(8, one.ip_of(7, 4))
    assert two.is_cut_off(7, one.ip_of(7))
    one.run("policies", {})
    assert "minik8s_policies" not in one.inside("nft", "list", "tables")


def test_a_pod_that_runs_gets_no_second_address_before_its_rules(machines: tuple[Machine, Machine]) -> None:
    one, _two = machines
    nobody: dict[str, Any] = {"groups": [], "ports": [], "ingress": None, "egress": None}
    config: dict[str, Any] = {"table": "minik8s_policies", "bridge": "mk8t-br", "driver": "vxlan"}
    entries = {
        "filter": config,
        POLICY: {"ingress": [], "egress": None},
        "pod/default/db": {**nobody, "address": one.ip_of(7, 4), "ingress": [POLICY]},
    }
    one.run("network", one.network(ipv6=False))
    one.run("policies", entries)
    one.start(7, 8, ipv6=False)
    one.run("network", one.network())
    pods = one.sandboxes(7, 8)
    errors = one.attempt("sandboxes", pods)["errors"]
    assert {key: each["reason"] for key, each in errors.items()} == {next(iter(pods)): "PolicyNotEnforced"}
    assert one.is_cut_off(8, one.ip_of(7))
    assert one.reaches(7, one.ip_of(8, 4))  # as before
    one.run("policies", {**entries, "filter": {**config, "ipv6": True}, "pod/default/db": _isolated(one, nobody)})
    one.run("sandboxes", pods)
    assert one.reaches(7, one.ip_of(8))
    assert one.is_cut_off(8, one.ip_of(7))
    one.run("policies", {})


@pytest.mark.parametrize("is_removed", [False, True], ids=["without ipv6", "without a network"])
def test_forwarding_is_what_it_was_when_pods_have_no_second_address(
    machines: tuple[Machine, Machine], *, is_removed: bool
) -> None:
    one, _two = machines
    one.inside("sysctl", "-qw", "net.ipv6.conf.lo.forwarding=1")  # some forward, not all
    before = one.inside("sysctl", *SWITCHES)
    assert "all.forwarding = 0" in before
    assert "eth0.accept_ra = 1" in before
    one.run("network", one.network())
    during = one.inside("sysctl", *SWITCHES)
    assert "all.forwarding = 1" in during
    assert "eth0.accept_ra = 2" in during
    after = {} if is_removed else one.network(ipv6=False)
    step = one.run("network", after, check=True)["steps"][-1]
    assert step["action"] == "give_back"
    assert "net.ipv6.conf.all.forwarding=0" in step["detail"]
    one.run("network", after)
    assert one.inside("sysctl", *SWITCHES) == before
    assert not one.run("network", after)["changed"]


def _isolated(machine: Machine, pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, **_addresses(machine, 7), "ingress": [POLICY]}


def _addresses(machine: Machine, number: int) -> dict[str, str]:
    return {"address": machine.ip_of(number, 4), "address_ipv6": machine.ip_of(number)}
