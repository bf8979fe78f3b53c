"""Pods and Services with IPv6 addresses alone, on two machines that have no IPv4 address either, with real packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ipv6_alone as alone
from tests.support.dual_stack import DUAL, OUTSIDE, Machine, two_machines

PORT = 8080
POLICY, WEB = "policy/default/web", "group/" + "a" * 24


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with two_machines(tmp_path) as (one, two):
        for machine in (one, two):
            alone.give_up_ipv4(machine)
        yield one, two


def test_pods_without_ipv4_reach_each_other_and_nothing_is_left(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    before = one.traces()
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", alone.network(machine, peer))
    alone.start(one, 7, 8)
    alone.start(two, 7)
    for machine in machines:
        assert "inet " not in machine.inside("ip", "addr", "show", "mk8t-br")
    assert "inet 1" not in one.pod(7, "ip", "addr", "show").stdout.replace("inet 127.", "")
    assert _reaches(one, 7, two.ip_of(7)), one.traces()
    assert _reaches(one, 7, one.ip_of(8))
    assert _reaches(one, 7, DUAL.gateway_of(one.cidr))
    assert _reaches(one, 7, OUTSIDE)
    assert not _reaches(one, 7, "fd00:77:5::7", wait_s=1)  # of no node
    hosts = one.pod(7, "cat", f"/proc/{one.pids[7]}/root/etc/hosts").stdout
    assert f"{one.ip_of(7)}\tpod-7" in hosts
    assert "\n\t" not in hosts
    # a second pass finds nothing to do
    assert not one.run("network", alone.network(one, two))["changed"]
    again = one.run("sandboxes", alone.sandboxes(one, 7, 8))
    assert not again["changed"], again["diff"]
    assert {each["ip"] for each in again["status"].values()} == {one.ip_of(7), one.ip_of(8)}
    # what somebody takes away comes back
    one.inside("ip", "neigh", "del", one.ip_of(7), "dev", "mk8t-br")
    one.pod(8, "ip", "-6", "route", "del", "default")
    one.run("sandboxes", alone.sandboxes(one, 7, 8))
    one.inside("ip", "-6", "addr", "flush", "dev", "mk8t-br", "scope", "global")
    one.run("network", alone.network(one, two))
    assert _reaches(one, 8, two.ip_of(7))
    assert _reaches(one, 7, two.ip_of(7))
    for machine in machines:
        machine.run("sandboxes", {})
        machine.run("network", {})
    assert one.traces() == before


def test_a_pod_without_ipv4_sends_as_itself_alone(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", alone.network(machine, peer))
    alone.start(one, 7, 8)
    listing = one.inside("nft", "list", "table", "bridge", "minik8s_sources_mk8t-br")
    assert one.ip_of(7) in listing
    forged = "fd00:77:1::9"
    one.pod(7, "ip", "-6", "addr", "add", f"{forged}/128", "dev", "eth0", "nodad")
    one.inside("ip", "-6", "neigh", "add", forged, "lladdr", "0a:58:00:00:00:07", "dev", "mk8t-br")
    assert not _reaches(one, 7, one.ip_of(8), source=forged, wait_s=1)
    assert _reaches(one, 7, one.ip_of(8), source=one.ip_of(7))
    # nor by an IPv4 address that it gives itself
    for number in (7, 8):
        one.pod(number, "ip", "addr", "add", f"192.0.2.{100 + number}/24", "dev", "eth0")
    assert not _reaches(one, 7, "192.0.2.108", wait_s=1)


def test_a_policy_isolates_a_pod_without_ipv4_before_it_starts(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", alone.network(machine, peer))
    open_to: dict[str, Any] = {"peers": {"groups": [WEB], "blocks": []}, "ports": None}
    nobody: dict[str, Any] = {"address": "", "groups": [], "ports": [], "ingress": None, "egress": None}
    config: dict[str, Any] = {"table": "minik8s_policies", "bridge": "mk8t-br", "driver": "vxlan"}
    entries = {
        "filter": config,
        POLICY: {"ingress": [open_to], "egress": None},
        "pod/default/db": {**nobody, "address_ipv6": one.ip_of(7), "ingress": [POLICY]},
        "pod/default/web": {**nobody, "address_ipv6": two.ip_of(7), "groups": [WEB]},
    }
    one.run("policies", entries)
    errors = one.attempt("sandboxes", alone.sandboxes(one, 7))["errors"]
    assert [each["reason"] for each in errors.values()] == ["PolicyNotEnforced"]  # the filter has no IPv6
    entries["filter"] = {**config, "ipv6": True}
    one.run("policies", entries)
    alone.start(one, 7, 8)
    alone.start(two, 7, 8)
    target = one.ip_of(7)
    assert _reaches(two, 7, target)
    assert not _reaches(two, 8, target, wait_s=1)
    assert not _reaches(one, 8, target, wait_s=1)
    assert _reaches(one, 7, two.ip_of(8))
    assert not one.run("policies", entries)["changed"]
    one.run("policies", {})


def test_services_of_ipv6_are_the_only_ones(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    before = one.traces()
    port = {"ip": "", "protocol": "TCP", "host_port": 8081, "port": PORT}
    for machine, peer in ((one, two), (two, one)):
        machine.run("network", alone.network(machine, peer))
        alone.start(machine, 7, 8, host_ports=[port])
        for number in (7, 8):
            machine.serve(number, PORT)
    ends = [[one.ip_of(7), PORT], [two.ip_of(7), PORT]]
    web = {"protocol": "TCP", "address": "fd00:100::2", "port": 80, "endpoints": ends, "node_port": 30080}
    idle = {"protocol": "TCP", "address": "fd00:100::4", "port": 80, "endpoints": []}
    entries = {"default/web:80/IPv6": web, "default/idle:80/IPv6": idle}
    both = {f"{machine.node}-7" for machine in machines}
    for machine in machines:
        declared = {**alone.plane(machine), **entries}
        foreseen = machine.run("services", declared, check=True)
        done = machine.run("services", declared)
        assert (foreseen["changed"], foreseen["diff"]) == (True, done["diff"])
        assert not machine.run("services", declared)["changed"]
    for ask in (one.ask, one.asking(8), two.asking(8), one.asking(7)):
        assert {ask("fd00:100::2", 80).name for _ in range(4)} == both
        assert ask("fd00:100::4", 80).name == "refused"
    assert {two.ask(alone.machine_of(one), 30080).name for _ in range(4)} == both
    assert two.ask(alone.machine_of(one), 8081).name == f"{one.node}-7"
    pods = {**alone.sandboxes(one, 7, host_ports=[port]), **alone.sandboxes(one, 8)}
    again = one.run("sandboxes", pods)
    assert not again["changed"], again["diff"]
    assert "table ip minik8s" not in one.inside("nft", "list", "tables").splitlines()
    refused = one.attempt(
        "services", {**alone.plane(one), **entries, "default/old:80": {**web, "address": "100.0.0.2"}}
    )
    assert list(refused["errors"]) == ["default/old:80"]
    for machine in machines:
        for section in ("services", "sandboxes", "network"):
            machine.run(section, {})
    assert one.traces() == before


def _reaches(machine: Machine, number: int, target: str, *, source: str = "", wait_s: int = 10) -> bool:
    options = ["-c1", f"-W{wait_s}", "-s", "1382", *(["-I", source] if source else [])]
    return machine.pod(number, "/bin/busybox", "ping", *options, target).returncode == 0
