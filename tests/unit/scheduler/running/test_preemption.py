"""A pod of higher priority takes the place of others: nomination, eviction, and where it ends up."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.deciding import Profiles, decide_node
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.unit.scheduler.worlds import condition_of, events, node, node_of, pod, until


def asking(name: str, cpu: str, priority: int = 0, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return pod(name, containers=containers, priority=priority, **spec)


def bound(name: str, cpu: str, priority: int = 0, on: str = "a", **meta: Any) -> JsonObject:
    made = asking(name, cpu, priority, nodeName=on)
    made["metadata"] |= {"uid": name, **meta}
    made["status"] = {"phase": "Running", "startTime": meta.pop("started", "2026-01-01T00:00:00Z")}
    return made


def lives(api: FakeApi, name: str) -> bool:
    try:
        return not api.get(POD, name, "default")["metadata"].get("deletionTimestamp")
    except NotFound:
        return False


def test_a_pod_of_higher_priority_takes_the_place_of_others(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", cpu="1"))
    for name in ("low", "lower"):
        api.create(POD, asking(name, "500m", 10 if name == "low" else 1))
        until(partial(node_of, api, name))
    api.create(POD, asking("high", "500m", 100))
    until(lambda: node_of(api, "high") == "a" or not lives(api, "lower"))
    if "lower" in [one["metadata"]["name"] for one in api.list(POD).items]:
        status = api.get(POD, "high", "default")["status"].get("nominatedNodeName")
        assert status == "a"
        api.delete(POD, "lower", "default", grace_s=0)
    until(lambda: node_of(api, "high") == "a")
    assert lives(api, "low")
    until(lambda: any(reason == "Preempted" for reason, _ in events(api)))


def test_a_pod_that_never_preempts_waits(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", cpu="1"))
    api.create(POD, asking("low", "1"))
    until(lambda: node_of(api, "low"))
    api.create(POD, asking("high", "1", 100, preemptionPolicy="Never"))
    until(lambda: condition_of(api, "high"))
    assert condition_of(api, "high")["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    )
    assert lives(api, "low")


def test_a_pod_goes_where_a_nomination_has_ended(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", cpu="1"))
    kept = asking("kept", "1", 100, schedulingGates=[{"name": "test/one"}])
    kept["status"]["nominatedNodeName"] = "a"
    api.create(POD, kept)
    api.create(POD, asking("low", "1"))
    until(lambda: "Insufficient cpu" in condition_of(api, "low").get("message", ""))
    api.delete(POD, "kept", "default", grace_s=0)
    until(lambda: node_of(api, "low") == "a")


def chosen(pods: list[JsonObject], *nodes: str, budgets: list[JsonObject] | None = None) -> tuple[str, list[str]]:
    snapshot = Snapshot.of([node(name, cpu="1") for name in nodes], pods)
    snapshot.budgets = budgets or []
    nomination = decide_node(asking("new", "1", 100), snapshot).nomination
    assert nomination is not None
    return nomination.node, [victim.key.name for victim in nomination.victims]


@pytest.mark.parametrize(
    ("pods", "node_name", "victims"),
    [
        ([bound("p", "1", 10), bound("q", "1", 5, "b")], "b", ["q"]),
        ([bound("p", "1", 5), bound("q", "500m", 5, "b"), bound("r", "500m", 5, "b")], "a", ["p"]),
        ([bound("p", "1", 5), bound("q", "600m", 5, "b"), bound("r", "500m", 5, "b")], "a", ["p"]),
        ([bound("p", "1", 5), bound("q", "1", 5, "b", started="2026-02-01T00:00:00Z")], "b", ["q"]),
        ([bound("p", "1", 200), bound("q", "1", 50, "b")], "b", ["q"]),
    ],
    ids=["least important", "fewer victims", "smaller sum", "started last", "only lower ones"],
)
def test_the_node_with_the_lightest_victims_is_taken(pods: list[JsonObject], node_name: str, victims: list[str]):
    assert chosen(pods, "a", "b") == (node_name, victims)


def test_as_many_as_possible_stay():
    pods = [bound("small", "100m", 1), bound("large", "900m", 50), bound("tiny", "0", 1)]
    snapshot = Snapshot.of([node("a", cpu="1")], pods)
    nomination = decide_node(asking("new", "900m", 100), snapshot).nomination
    assert nomination is not None
    assert [one.key.name for one in nomination.victims] == ["large"]


def test_budgets_are_kept_where_another_node_will_do():
    budget: JsonObject = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    pods = [bound("db", "1", 1, labels={"app": "db"}), bound("web", "1", 50, "b", labels={"app": "web"})]
    assert chosen(pods, "a", "b", budgets=[budget]) == ("b", ["web"])
    assert chosen(pods[:1], "a", budgets=[budget]) == ("a", ["db"])
    budget["status"]["disruptionsAllowed"] = 1
    assert chosen(pods, "a", "b", budgets=[budget]) == ("a", ["db"])


def test_anti_affinity_that_a_victim_takes_with_it_is_no_obstacle():
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "x"}}}
    far = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    low = bound("low", "100m", 1, labels={"app": "x"})
    snapshot = Snapshot.of([node("a", labels={"host": "a"})], [low])
    nomination = decide_node(asking("new", "100m", 100, affinity=far), snapshot).nomination
    assert nomination is not None
    assert (nomination.node, [one.key.name for one in nomination.victims]) == ("a", ["low"])


def test_the_room_of_a_nominated_pod_is_not_given_to_a_lesser_one():
    snapshot = Snapshot.of([node("a", cpu="1")], [])
    snapshot.nominated = {"a": (PodInfo.of(asking("nominated", "1", 100)),)}
    assert decide_node(asking("lesser", "1", 10), snapshot).node == ""
    assert decide_node(asking("greater", "1", 1000), snapshot).node == "a"


def test_nobody_is_sent_away_where_that_would_not_help():
    snapshot = Snapshot.of([node("a", cpu="1", unschedulable=True)], [bound("p", "1", 1)])
    decision = decide_node(asking("new", "1", 100), snapshot)
    assert decision.nomination is not None
    assert decision.nomination.node == ""
    assert decision.help == "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def test_pods_that_are_alike_preempt_on_nodes_of_their_own_while_the_victims_are_still_there():
    snapshot = Snapshot.of([node("a", cpu="1"), node("b", cpu="1")], [bound("p", "1"), bound("q", "1", on="b")])
    profiles, taken = Profiles(), list[str]()
    for number in range(3):
        new = asking(f"new{number}", "1", 100)
        nomination = profiles.decide(new, snapshot).nomination
        assert nomination is not None
        taken.append(nomination.node)
        if nomination.node:
            snapshot.nominated = {**snapshot.nominated, nomination.node: (PodInfo.of(new),)}
    assert taken == ["a", "b", ""]
