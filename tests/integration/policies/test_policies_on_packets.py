"""The section ``policies`` with real packets: upstream's matrix of nine Pods in three namespaces, and what goes wrong.

Cases of the matrix are called as in kubernetes ``test/e2e/network/netpol/network_policy.go``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.integration.policies.policed import (
    ADDRESSES,
    EVERYBODY,
    FILTER,
    NAMED,
    X_A,
    A,
    Policed,
    entries,
    labelled,
    policy,
)
from tests.integration.services.machines import entry, on_lab
from tests.lab.lab import Lab
from tests.support.policies import Dice, allows

BY_NAME = dict(zip(ADDRESSES, EVERYBODY, strict=True))
GENERATED, BY_DAY = 20, 4
Open = Callable[[str, str, int], bool]


Y_A = {"namespaceSelector": labelled(ns="y"), "podSelector": labelled(pod="a")}
NOT_X = {"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x"]}]}
BLOCK, ONE = "10.32.0.0/28", f"{ADDRESSES['x-a']}/32"


def into(target: str, allowed: Open) -> Open:
    """Return that everything is open but to Pods whose name begins with ``target``, where ``allowed`` decides."""
    return lambda source, to, port: not to.startswith(target) or allowed(source, to, port)


def out_of(source: str, allowed: Open) -> Open:
    """Return the same for what Pods send."""
    return lambda by, to, port: not by.startswith(source) or allowed(by, to, port)


CASES: dict[str, tuple[list[JsonObject], Open]] = {
    "should support a 'default-deny-ingress' policy": (
        [policy("x", policyTypes=["Ingress"])],
        into("x-", lambda *_: False),
    ),
    "should support a 'default-deny-all' policy": (
        [policy("x", policyTypes=["Ingress", "Egress"])],
        lambda source, target, _: "x-" not in source + target,
    ),
    "should enforce policy to allow traffic from pods within server namespace based on PodSelector": (
        [policy("x", select=A, ingress=[{"from": [{"podSelector": labelled(pod="b")}]}])],
        into("x-a", lambda source, *_: source == "x-b"),
    ),
    "should enforce policy to allow traffic only from a different namespace, based on NamespaceSelector": (
        [policy("x", select=A, ingress=[{"from": [{"namespaceSelector": labelled(ns="y")}]}])],
        into("x-a", lambda source, *_: source.startswith("y-")),
    ),
    "should enforce policy based on NamespaceSelector with MatchExpressions": (
        [policy("x", select=A, ingress=[{"from": [{"namespaceSelector": NOT_X}]}])],
        into("x-a", lambda source, *_: not source.startswith("x-")),
    ),
    "should enforce policy based on PodSelector or NamespaceSelector": (
        [policy("x", select=A, ingress=[{"from": [{"namespaceSelector": NOT_X}, {"podSelector": labelled(pod="b")}]}])],
        into("x-a", lambda source, *_: source != "x-c"),
    ),
    "should enforce policy based on PodSelector and NamespaceSelector": (
        [policy("x", select=A, ingress=[{"from": [Y_A]}])],
        into("x-a", lambda source, *_: source == "y-a"),
    ),
    "should enforce policy based on Ports": (
        [policy("x", select=A, ingress=[{"ports": [{"protocol": "TCP", "port": 9090}]}])],
        into("x-a", lambda _, _to, port: port == 9090),
    ),
    "should enforce multiple, stacked policies with overlapping podSelectors": (
        [
            policy("x", "one", A, ingress=[{"ports": [{"protocol": "TCP", "port": 9090}]}]),
            policy("x", "two", A, ingress=[{"ports": [{"protocol": "TCP", "port": 8080}]}]),
        ],
        lambda *_: True,
    ),
    "should support allow-all policy": ([policy("x", ingress=[{}])], lambda *_: True),
    "should allow ingress access on one named port": (
        [policy("x", select=A, ingress=NAMED)],
        into("x-a", lambda _, _to, port: port == 9090),
    ),
    "should allow egress access on one named port": (
        [policy("x", select=A, egress=NAMED)],
        out_of("x-a", lambda _, _to, port: port == 9090),
    ),
    "should enforce egress policy allowing traffic to a server in a different namespace based on PodSelector and "
    "NamespaceSelector": (
        [policy("x", select=A, egress=[{"to": [Y_A]}])],
        out_of("x-a", lambda _, to, _port: to == "y-a"),
    ),
    "should work with Ingress, Egress specified together": (
        [policy("x", select=A, ingress=[{"from": [Y_A]}], egress=[{"ports": [{"protocol": "TCP", "port": 8080}]}])],
        lambda source, to, port: (to != "x-a" or source == "y-a") and (source != "x-a" or port == 8080),
    ),
    "should allow egress access to server in CIDR block": (
        [policy("y", select=A, egress=[{"to": [{"ipBlock": {"cidr": ONE}}]}])],
        out_of("y-a", lambda _, to, _port: to == "x-a"),
    ),
    "should enforce except clause while egress access to server in CIDR block": (
        [policy("y", select=A, egress=[{"to": [{"ipBlock": {"cidr": BLOCK, "except": [ONE]}}]}])],
        out_of("y-a", lambda _, to, _port: to != "x-a"),
    ),
    "should ensure an IP overlapping both IPBlock.CIDR and IPBlock.Except is allowed": (
        [
            policy("y", "one", A, egress=[{"to": [{"ipBlock": {"cidr": BLOCK, "except": [ONE]}}]}]),
            policy("y", "two", A, egress=[{"to": [{"ipBlock": {"cidr": ONE}}]}]),
        ],
        lambda *_: True,
    ),
    "should enforce policies to check ingress and egress policies can be controlled independently based on "
    "PodSelector": (
        [
            policy("x", "in", A, ingress=[{"from": [{"podSelector": labelled(pod="b")}]}]),
            policy("x", "out", A, egress=[{}]),
        ],
        into("x-a", lambda source, *_: source == "x-b"),
    ),
    "should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP', even if the plugin doesn't support SCTP": (
        [policy("x", select=A, ingress=[{"ports": [{"protocol": "SCTP", "port": 8080}]}])],
        into("x-a", lambda *_: False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_packets_go_where_the_policies_of_upstreams_matrix_let_them(machine: Policed, name: str) -> None:
    policies, is_open = CASES[name]
    machine.policies(policies)
    for (source, target, port), reached in machine.reached().items():
        assert reached is (source == target or is_open(source, target, port)), (source, target, port)
    assert not machine.policies(policies)["changed"]


def test_policies_that_are_deleted_are_enforced_no_more(policed: Policed) -> None:
    policed.policies(CASES["should support a 'default-deny-all' policy"][0])
    policed.policies([])
    assert all(policed.reached().values())


SEEDS = [pytest.param(seed, marks=[pytest.mark.nightly] * (seed >= BY_DAY)) for seed in range(GENERATED)]


@pytest.mark.parametrize("seed", SEEDS)
def test_packets_go_where_a_model_lets_them(machine: Policed, seed: int) -> None:
    policies = Dice(seed).policies()
    machine.policies(policies)
    protocol = "UDP" if seed % 4 == 0 else "TCP"
    for (source, target, port), reached in machine.reached(protocol).items():
        wanted = allows(policies, BY_NAME[source], BY_NAME[target], protocol, port)
        assert reached is wanted, (source, target, port)


def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(policed: Policed) -> None:
    policies = Dice(3).policies() + CASES["should work with Ingress, Egress specified together"][0]
    assert policed.call("killed", folder=policed.folder, section="policies", entries=entries(policies)) > 1


HARM = {
    "all rules are flushed": "nft flush ruleset",
    "the table is deleted": "nft delete table ip minik8s_policies",
    "a chain is flushed": "nft flush chain ip minik8s_policies ingress",
    "a rule lets everybody in": "nft insert rule ip minik8s_policies ingress accept",
    "a Pod is taken off the map": f"nft delete element ip minik8s_policies ingress_of {{ {ADDRESSES['x-a']} }}",
    "somebody else's rule stands in the refusal": "nft insert rule ip minik8s_policies refuse accept",
    "packets of the bridge are shown to no rules": "ip link set mk8s-br0 type bridge nf_call_iptables 0",
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_what_somebody_changes_is_seen_and_put_right(policed: Policed, harm: str) -> None:
    policies = CASES["should support a 'default-deny-ingress' policy"][0]
    policed.policies(policies)
    policed.shell(shlex.split(harm))
    assert policed.reached()["y-a", "x-a", 8080], "the harm does what it says"
    planned = policed.policies(policies, check=True)
    healed = policed.policies(policies)
    assert healed["steps"] == planned["steps"] != []
    assert not policed.reached()["y-a", "x-a", 8080]
    assert not policed.policies(policies)["changed"]


def test_a_pod_that_comes_is_one_delta_and_isolated_at_once(policed: Policed) -> None:
    policies = [policy("x", ingress=[{"from": [X_A]}])]
    known = entries(policies, [pod for pod in EVERYBODY if pod["metadata"]["name"] != "a"])
    policed.converge(entries=known)
    assert not policed.reached()["x-a", "x-b", 8080]
    assert policed.reached()["x-b", "x-a", 8080]
    upsert = {key: one for key, one in entries(policies).items() if known.get(key) != one}
    assert [*upsert] == ["pod/x/a"]
    result = policed.converge(mode="delta", base=policed.digest, upsert=upsert, delete=[])
    assert [step["key"] for step in result["steps"]] == ["pod/x/a"]
    assert policed.reached()["x-a", "x-b", 8080]
    assert not policed.reached()["x-b", "x-a", 8080]
    policed.converge(mode="delta", base=policed.digest, upsert={}, delete=["pod/x/a"])
    assert not policed.reached()["x-a", "x-b", 8080]
    assert not policed.converge(entries=known)["changed"]


def test_services_are_judged_by_the_pods_behind_them(policed: Policed) -> None:
    ends = [[ADDRESSES["x-a"], 8080]]
    policed.declare(**{"web:80": {**entry("100.0.0.7"), "endpoints": ends, "node_port": 30080}})
    policed.policies([policy("x", select=A, ingress=[{"from": [{"podSelector": labelled(pod="b")}]}])])
    asked = {source: policed.ask("100.0.0.7", 80, pod=source) for source in ("x-a", "x-b")}
    assert asked == {"x-a": {"x-a": 1}, "x-b": {"x-a": 1}}
    # within a bridge the kernel sends the reset past the translation of addresses: the client hears nothing
    assert set(policed.ask("100.0.0.7", 80, pod="y-b")) <= {"refused", "silent"}
    assert set(policed.ask("10.32.0.1", 30080, pod="y-b")) <= {"refused", "silent"}
    assert policed.ask("100.0.0.7", 80) == {"x-a": 1}, "a node reaches its Pods"
    policed.pass_(entries={})


def test_after_a_boot_the_last_document_is_enforced_with_nobody_to_say_so(policed: Policed) -> None:
    policies = CASES["should support a 'default-deny-ingress' policy"][0]
    policed.policies(policies)
    before = policed.rules()
    policed.shell(["nft", "flush", "ruleset"])  # as a boot leaves it
    state, run = f"{policed.folder}/state", f"{policed.folder}/run"
    words = ["-m", "minik8s.reapply", "--attended-too", "--state-dir", state, "--run-dir", run]
    policed.shell(["env", f"PYTHONPATH={policed.folder}", policed.python, *words])
    assert policed.rules() == before
    assert not policed.reached()["y-a", "x-a", 8080]


def test_a_policy_ends_connections_under_way_that_it_does_not_allow(policed: Policed) -> None:
    ends = {"from": "y-a", "to": "x-a", "address": ADDRESSES["x-a"]}
    passed = {"section": "policies", "folder": policed.folder}
    policies = [policy("x", select=A, ingress=[{"from": [Y_A]}])]
    assert policed.call("cut", **ends, **{"pass": {**passed, "entries": entries(policies)}}) == "open"
    policies = CASES["should support a 'default-deny-ingress' policy"][0]
    assert policed.call("cut", **ends, **{"pass": {**passed, "entries": entries([])}}) == "open"
    answer = policed.call("cut", **ends, **{"pass": {**passed, "entries": entries(policies)}})
    assert answer == "ConnectionResetError"


@pytest.mark.nightly
def test_with_ipvs_on_a_kernel_of_its_own_policies_see_the_pods_behind_services(lab: Lab) -> None:
    made = on_lab(lab, "node1", "ipvs")
    made.__class__ = Policed
    assert isinstance(made, Policed)
    made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=ADDRESSES)
    ends = [[ADDRESSES["x-a"], 8080]]
    made.declare(**{"web:80": {**entry("100.0.0.7"), "endpoints": ends}})
    wall = CASES["should enforce policy to allow traffic from pods within server namespace based on PodSelector"]
    try:
        made.policies(wall[0])
        for (source, target, port), reached in made.reached().items():
            assert reached is (source == target or wall[1](source, target, port)), (source, target, port)
        asked = {source: made.ask("100.0.0.7", 80, pod=source) for source in ("x-a", "x-b", "y-b")}
        assert {name: one for name, one in asked.items() if one == {"x-a": 1}}.keys() == {"x-a", "x-b"}
        assert made.ask("100.0.0.7", 80) == {"x-a": 1}, "a node reaches its Pods"
        made.policies([policy("y", select=A, egress=[{"to": [Y_A]}])])
        assert made.ask("100.0.0.7", 80, pod="y-a") != {"x-a": 1}
        assert made.ask("100.0.0.7", 80, pod="y-b") == {"x-a": 1}
    finally:
        made.converge(entries={})
        made.pass_(entries={})
        made.call("down")


def test_without_a_driver_of_ours_it_is_said_that_nothing_is_enforced(policed: Policed) -> None:
    known = entries(CASES["should support a 'default-deny-ingress' policy"][0])
    policed.converge(entries=known)
    result = policed.pass_(section="policies", entries={**known, "filter": {**FILTER, "driver": "weave"}})
    assert result["errors"]["filter"]["reason"] == "PolicyNotEnforced"
    assert policed.rules() == ""


def test_an_entry_that_cannot_be_used_lets_nobody_in(policed: Policed) -> None:
    known = entries([policy("x", ingress=[{}])])
    known["policy/x/policy"]["ingress"] = [{"peers": None, "ports": [["TCP", "; accept; #"]]}]
    result = policed.pass_(section="policies", entries=known)
    assert list(result["errors"]) == ["policy/x/policy"]
    assert not policed.reached()["y-a", "x-a", 8080]
    assert policed.reached()["x-a", "y-a", 8080]


def test_a_table_of_somebody_else_is_an_error_and_stays(policed: Policed) -> None:
    policed.shell(["nft", "add", "table", "ip", "minik8s_policies"])
    result = policed.pass_(section="policies", entries=entries([policy("x", ingress=[{}])]))
    assert "is not ours" in result["errors"]["filter"]["message"]
    policed.shell(["nft", "delete", "table", "ip", "minik8s_policies"])
