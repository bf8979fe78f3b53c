"""A Pod that policies isolate starts with its rules or not at all, unless the installation says otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.isolation import check_isolated
from tests.integration.services.machines import Machine, namespace

FILTER = {"table": "minik8s_policies", "bridge": "mk8s-br0", "driver": "bridge"}
WALL: JsonObject = {"ingress": [], "egress": None}
ISOLATED, OPEN = "10.32.0.9", "10.32.0.10"


def entries(**more: Any) -> JsonObject:
    """Return a section with one Pod that a policy isolates."""
    pod = {"address": ISOLATED, "groups": [], "ports": [], "ingress": ["policy/default/wall"], "egress": None}
    return {"filter": {**FILTER, **more}, "policy/default/wall": WALL, "pod/default/db": pod}


def sandbox(ip: str, *, host_network: bool = False) -> JsonObject:
    """Return what a check reads of a sandbox."""
    return {"ip": ip, "host_network": host_network}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with namespace("nftables") as made:
        made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods={})
        yield made
        made.pass_(section="policies", entries={})


def without_nft(machine: Machine, declared: JsonObject) -> JsonObject:
    """Run a pass of the section on a machine that has no nft."""
    argv = ["env", "PATH=/nowhere", machine.python, f"{machine.folder}/services_machine.py", "apply"]
    options = {"folder": machine.folder, "section": "policies", "entries": declared}
    return dict(json.loads(machine.shell(argv, json.dumps(options))))


def test_without_rules_an_isolated_pod_waits_and_others_do_not(machine: Machine) -> None:
    state = f"{machine.folder}/state"
    machine.pass_(section="policies", entries={})
    assert "nft is not installed" in without_nft(machine, entries())["errors"]["filter"]["message"]
    with pytest.raises(KeyFault, match="their rules are not there: the command nft") as refused:
        check_isolated(state, "uid", sandbox(ISOLATED))
    assert refused.value.reason == "PolicyNotEnforced"
    check_isolated(state, "uid", sandbox(OPEN))
    check_isolated(state, "uid", sandbox(ISOLATED, host_network=True))
    assert machine.pass_(section="policies", entries=entries())["errors"] == {}
    check_isolated(state, "uid", sandbox(ISOLATED))


def test_where_the_installation_says_so_it_starts_all_the_same(machine: Machine) -> None:
    machine.pass_(section="policies", entries={})
    assert "filter" in without_nft(machine, entries(required=False))["errors"]
    check_isolated(f"{machine.folder}/state", "uid", sandbox(ISOLATED))


def test_a_policy_that_cannot_be_used_keeps_its_pods_closed_and_others_open(machine: Machine) -> None:
    declared = entries()
    declared["pod/default/db"]["address"] = "nowhere"
    assert set(machine.pass_(section="policies", entries=declared)["errors"]) == {"pod/default/db"}
    check_isolated(f"{machine.folder}/state", "uid", sandbox(OPEN))
