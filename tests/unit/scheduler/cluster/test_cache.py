"""The cache's snapshot is always what a fresh one would be, with assumed pods in their places."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import orjson
import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import explain
from minik8s_modules.scheduler.framework.infos import PodInfo, amounts, slim
from minik8s_modules.scheduler.framework.snapshot import Snapshot, worth_knowing
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings
from tests.unit.scheduler.worlds import node, placed, pod


def used(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    return {info.name: {key: value for key, value in info.requested.items() if value} for info in snapshot.nodes}


def test_an_assumed_pod_takes_room_at_once_until_it_is_forgotten():
    cache = ClusterCache()
    cache.update_node(None, node("a"))
    waiting = pod("p", containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
    cache.assume(PodInfo.of(waiting), "a")
    cache.update_pod(waiting, {**waiting, "metadata": {**waiting["metadata"], "labels": {"x": "y"}}})
    assert used(cache.snapshot(0)) == {"a": {"cpu": 1000, "pods": 1}}
    cache.forget(PodInfo.of(waiting))
    assert used(cache.snapshot(0)) == {"a": {}}


@pytest.mark.parametrize(
    "part",
    [
        {"spec": "text"},
        {"spec": {"taints": ["x"]}},
        {"spec": {"taints": [None]}},
        {"spec": {"taints": [{"key": "a", "effect": ["NoSchedule"]}]}},
        {"spec": {"taints": [{"key": 5, "effect": {}}]}},
        {"status": ["x"]},
        {"status": 5},
        {"status": {"allocatable": "text"}},
        {"status": {"allocatable": {"cpu": "lots"}}},
        {"status": {"allocatable": {"cpu": None}}},
        {"status": {"images": [{"names": ["a"], "sizeBytes": "big"}]}},
    ],
)
def test_a_node_that_cannot_be_read_takes_no_pods_and_keeps_those_that_it_has(part: JsonObject):
    cache, sound = ClusterCache(), node("a")
    cache.update_node(None, sound)
    cache.update_pod(None, {**pod("p", nodeName="a")})
    cache.update_node(sound, {**sound, **part})
    assert used(cache.snapshot(0)) == {}
    cache.update_node({**sound, **part}, sound)
    assert used(cache.snapshot(0)) == {"a": {"pods": 1}}


def test_an_old_binding_ends_no_assumption_of_a_new_pod_of_the_same_name():
    cache = ClusterCache()
    cache.update_node(None, node("a"))
    old, new = ({**pod("web-0"), "metadata": {**pod("web-0")["metadata"], "uid": uid}} for uid in ("old", "new"))
    cache.assume(PodInfo.of(old), "a")
    assert not cache.is_assumed(PodInfo.of(new))
    cache.update_pod(old, new)
    assert used(cache.snapshot(0)) == {"a": {}}
    cache.assume(PodInfo.of(new), "a")
    cache.forget(PodInfo.of(old))
    assert cache.is_assumed(PodInfo.of(new))
    assert used(cache.snapshot(0)) == {"a": {"pods": 1}}


def test_an_assumed_pod_is_nominated_nowhere_whatever_its_status_still_says():
    cache = ClusterCache()
    cache.update_node(None, node("a"))
    waiting = pod("p", containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
    waiting["status"]["nominatedNodeName"] = "a"
    cache.update_pod(None, waiting)
    assert [one.key.name for one in cache.nominated_to("a")] == ["p"]
    cache.assume(PodInfo.of(waiting), "a")
    cache.update_pod(waiting, {**waiting, "metadata": {**waiting["metadata"], "labels": {"x": "y"}}})
    assert cache.nominated_to("a") == []
    assert used(cache.snapshot(0)) == {"a": {"cpu": 1000, "pods": 1}}


def test_it_tells_where_room_that_was_only_kept_comes_free():
    cache = ClusterCache()
    waiting = pod("p")
    waiting["status"]["nominatedNodeName"] = "a"
    assert cache.update_pod(None, waiting) == frozenset()
    assert cache.nominate(PodInfo.of(waiting), "b") == {"a"}
    assert cache.assume(PodInfo.of(waiting), "b") == frozenset()
    assert cache.update_pod(waiting, None) == {"b"}
    cache.update_pod(None, waiting)
    assert cache.assume(PodInfo.of(waiting), "b") == {"a"}
    cache.forget(PodInfo.of(waiting))
    cache.update_pod(None, waiting)
    assert cache.update_pod(waiting, pod("p")) == {"a"}


def test_a_bound_pod_ends_its_assumption_and_may_be_elsewhere():
    cache = ClusterCache()
    for name in "ab":
        cache.update_node(None, node(name))
    waiting = pod("p")
    cache.assume(PodInfo.of(waiting), "a")
    assert cache.is_assumed(PodInfo.of(waiting))
    cache.update_pod(waiting, {**waiting, "spec": {**waiting["spec"], "nodeName": "b"}})
    assert not cache.is_assumed(PodInfo.of(waiting))
    assert used(cache.snapshot(0)) == {"a": {}, "b": {"pods": 1}}
    cache.forget(PodInfo.of(waiting))
    assert used(cache.snapshot(0))["b"] == {"pods": 1}


def test_pods_of_a_node_that_comes_later_count():
    cache = ClusterCache()
    cache.update_pod(None, placed(1, {"node": "late", "requests": {"cpu": "2"}}))
    assert cache.snapshot(0).nodes == []
    cache.update_node(None, node("late"))
    assert used(cache.snapshot(0)) == {"late": {"cpu": 2000, "pods": 1}}


def test_after_any_changes_it_equals_a_fresh_snapshot():
    dice = random.Random(7)
    cache = ClusterCache()
    nodes: dict[str, JsonObject | None] = {}
    pods: dict[int, JsonObject | None] = {}
    for _ in range(400):
        number = dice.randrange(6)
        if dice.random() < 0.3:
            name = f"n{number % 3}"
            old, new = nodes.get(name), dice.choice([None, node(name, cpu=str(1 + number))])
            cache.update_node(old, new) if old or new else None
            nodes[name] = new
        else:
            fields = {"node": f"n{dice.randrange(3)}", "phase": dice.choice(["Running", "Failed"])}
            old = pods.get(number)
            new = dice.choice([None, placed(number, {**fields, "requests": {"cpu": f"{number}00m"}})])
            cache.update_pod(old, new) if old or new else None
            pods[number] = new
        fresh = Snapshot.of([each for each in nodes.values() if each], [each for each in pods.values() if each])
        kept = cache.snapshot(0)
        assert used(kept) == used(fresh)
        assert [amounts(info.allocatable) for info in kept.nodes] == [amounts(info.allocatable) for info in fresh.nodes]


def test_a_pod_on_a_node_is_kept_without_what_no_decision_depends_on():
    shown = orjson.loads((Path(__file__).parents[3] / "benchmarks" / "deciding" / "running_pod.json").read_bytes())
    shown["spec"] |= {
        "volumes": [*shown["spec"]["volumes"], {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    }
    shown["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    less = slim(shown)
    assert PodInfo.of(less).shape is PodInfo.of(shown).shape
    assert len(orjson.dumps(less)) < len(orjson.dumps(shown)) / 3
    assert objects.condition(less, "DisruptionTarget") == {"type": "DisruptionTarget", "status": "True"}
    assert (
        slim({**shown, "metadata": {**shown["metadata"], "name": "other"}})["spec"]["tolerations"]
        is (less["spec"]["tolerations"])
    )


def test_a_pod_that_is_being_resized_keeps_what_it_counts_for():
    mine = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    resized = pod("p", nodeName="a", containers=[mine])
    given = {"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}}
    in_progress = {"type": "PodResizeInProgress", "status": "True"}
    resized["status"] = {"phase": "Running", "conditions": [in_progress], "containerStatuses": [given]}
    assert PodInfo.of(resized).requests.milli_cpu == 3000
    assert PodInfo.of(slim(resized)).shape is PodInfo.of(resized).shape


def test_changes_are_not_kept_for_a_decision_that_does_not_come():
    """Heartbeats and pods that go would fill the memory of a scheduler that has nothing to do."""
    cache, snapshot = ClusterCache(), Snapshot()
    shown = [node(name) for name in "ab"]
    for one in shown:
        cache.update_node(None, one)
    assert used(cache.update(snapshot)) == {"a": {}, "b": {}}
    tracemalloc.start()
    try:
        for _ in range(2_000):
            newer = node("a")
            cache.update_node(shown[0], newer)
            shown[0] = newer
            cache.update_pod(None, bound := placed(1, {"node": "b"}))
            cache.update_pod(bound, None)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 2_000_000
    cache.update_pod(None, placed(2, {"node": "b", "requests": {"cpu": "1"}}))
    assert used(cache.update(snapshot)) == {"a": {}, "b": {"cpu": 1000, "pods": 1}}


def test_what_nodes_were_is_kept_for_no_longer_than_it_is_followed():
    cache, snapshot, made = ClusterCache(), Snapshot(), bench(ProfileSettings())
    for name in "ab":
        cache.update_node(None, node(name, cpu="1000", pods=5_000, labels={"kubernetes.io/hostname": name}))
    apart = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    web = pod("web", topologySpreadConstraints=[{**apart, "labelSelector": {"matchLabels": {"app": "web"}}}])
    web["metadata"]["labels"] = {"app": "web"}
    assert all(one.status is None for one in explain(web, cache.update(snapshot), made))
    first = snapshot.version
    for number in range(1_000):
        cache.update_pod(None, placed(number, {"node": "a", "labels": {"app": "web"}}))
        cache.update(snapshot)
    assert snapshot.since(first) is None
    assert len(snapshot.since(snapshot.version - worth_knowing(2)) or ()) == worth_knowing(2)
    after = explain(web, cache.update(snapshot), made)
    assert after == explain(web, cache.snapshot(0), bench(ProfileSettings()))
    assert [(one.node, one.status is None) for one in after] == [("b", True), ("a", False)]
