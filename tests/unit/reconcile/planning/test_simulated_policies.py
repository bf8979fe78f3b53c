"""Who would lose or gain a connection, as a plan tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minik8s_modules.api.network.network_policies import parse_policy, pod_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.network.policies import PolicyBook
from minik8s_modules.reconcile.planning.simulated_policies import MOST_PAIRS, ImaginedPolicies, World
from minik8s_modules.reconcile.values.values import Settings
from tests.support.policies import SPACES, pods


def world(policies: Iterable[JsonObject], everybody: Iterable[JsonObject], spaces: Any = SPACES) -> World:
    found = [pod for one in everybody if (pod := pod_of(one, one["status"]["podIP"])) is not None]
    parsed = [parse_policy(one) for one in policies]
    return World({one.key: one for one in parsed}, spaces, {pod.key: pod for pod in found})


def policy(name: str = "wall", **spec: Any) -> JsonObject:
    spec = {"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"], **spec}
    return {"metadata": {"namespace": "x", "name": name}, "spec": spec}


def told(before: World, after: World) -> list[str]:
    return [note.text for note in ImaginedPolicies(before, after, Settings()).notes()]


def test_what_a_new_policy_closes_is_told_pair_by_pair():
    few = pods()[:3]
    closed = "TCP 8080, TCP 9090, other TCP ports, other UDP ports would be closed"
    assert told(world([], few), world([policy()], few)) == [
        f"connections from Pod x/b to Pod x/a: {closed}",
        f"connections from Pod x/c to Pod x/a: {closed}",
    ]


def test_what_a_rule_more_opens_is_told_by_port():
    few = pods()[:3]
    rule = {"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": 8080}, {"port": "serve-81"}]}
    after = world([policy(ingress=[rule])], few)
    assert told(world([policy()], few), after) == [
        "connections from Pod x/b to Pod x/a: TCP 8080, TCP 9090 would be opened"
    ]
    assert told(after, after) == []


def test_ports_are_told_to_those_who_may_read_the_policies_that_name_them():
    few = pods()[:2]
    before = world([policy("old", ingress=[{"ports": [{"port": 7777}]}])], few)
    after = world([policy("old"), policy("else", podSelector={"matchLabels": {"pod": "b"}}, ingress=[{}])], few)
    (note,) = ImaginedPolicies(before, after, Settings()).notes()
    assert "TCP 7777" in note.text
    assert [(one.kind, one.namespace, one.name) for one in note.about] == [
        ("Pod", "x", "b"),
        ("Pod", "x", "a"),
        ("NetworkPolicy", "x", "old"),
    ]


def test_labels_of_pods_and_namespaces_count():
    few = pods()[:4]
    rules = [{"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}]
    before = world([policy(ingress=rules)], few)
    after = world([policy(ingress=rules)], few, {**SPACES, "y": {"ns": "y"}})
    assert [text.partition(":")[0] for text in told(before, after)] == ["connections from Pod y/a to Pod x/a"]


def test_of_many_pairs_some_are_told_and_the_others_counted():
    many = []
    for number in range(60):
        one = pods()[number % 9]
        one["metadata"]["name"], one["status"]["podIP"] = f"p{number}", f"10.32.1.{number + 1}"
        many.append(one)
    found = told(world([], many), world([policy()], many))
    assert len(found) == MOST_PAIRS + 1
    assert found[-1].endswith("more pairs of Pods would change")


def test_of_thousands_of_pods_some_pairs_are_looked_at():
    many = []
    for number in range(2000):
        one = pods()[number % 9]
        one["metadata"]["name"], one["status"]["podIP"] = f"p{number}", f"10.32.{number // 250}.{number % 250 + 1}"
        many.append(one)
    policies = [policy(f"wall{number}") for number in range(30)]
    found = told(world([], many), world(policies, many))
    assert found[-1].startswith("connections were checked between")


def test_a_world_is_what_nodes_are_told_of():
    found = world([policy()], pods()).book()
    assert isinstance(found, PolicyBook)
    assert found.policies_on("n1") == ["x/wall"]
