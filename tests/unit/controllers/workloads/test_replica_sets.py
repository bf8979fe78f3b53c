"""ReplicaSets: every file of tests/cases/decide_replica_set is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, REPLICA_SET, REPLICATION_CONTROLLER, Kind
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.watches import WatchEvent
from minik8s_modules.controllers.core.pods import is_active
from minik8s_modules.controllers.core.steps import Create, Delete, Step, WriteStatus
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads import replicasets
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController, Trouble, decide_replica_set
from minik8s_modules.runtime.controller import Context
from tests.support.workloads import NOW, SPACE, cut_off, pod, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_replica_set").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    kind = kind_of(case)
    declared = workload(kind, case["set"])
    return case, declared, [pod(each, kind, declared) for each in case.get("pods", [])]


def kind_of(case: dict[str, Any]) -> Kind:
    return REPLICATION_CONTROLLER if case.get("kind") == "ReplicationController" else REPLICA_SET


@EACH
def test_decide_replica_set(path: Path):
    case, declared, pods = read(path)
    found = [each for each in pods if (objects.controller_of(each) or {}).get("uid", "uid-web") == "uid-web"]
    trouble = Trouble(*case["trouble"]) if "trouble" in case else None
    steps = decide_replica_set(declared, found, pods, NOW, trouble, kind_of(case))
    assert [words(step) for step in steps] == case["steps"]
    for step in steps:
        if isinstance(step, Create):
            assert step.obj["metadata"]["ownerReferences"][0]["kind"] == declared["kind"]
        if isinstance(step, WriteStatus):
            assert step.kind == kind_of(case)
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(step.kind, {"status": step.status}) == []


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    case, declared, pods = read(path)
    kind = kind_of(case)
    ends = cut_off(lambda: [declared, *pods], kind, objects.Key(SPACE, "web"), DECIDERS[kind])
    assert len({str(summary(kind, world)) for world in ends}) == 1


def summary(kind: Kind, world: World) -> tuple[Any, ...]:
    own = world.get(kind, objects.Key(SPACE, "web")) or {}
    active = [each for each in world.controlled(POD, own) if is_active(each)]
    kept = sorted(objects.name(each) for each in world.all(POD) if "generateName" not in each["metadata"])
    return kept, len(active), objects.status(own)


def test_no_more_than_500_pods_are_made_or_deleted_at_once():
    many = workload(REPLICA_SET, {"replicas": 10_000})
    assert len(decide_replica_set(many, [], [], NOW)) == 501
    none = workload(REPLICA_SET, {"replicas": 0})
    pods = [pod({"name": f"p{number}"}, REPLICA_SET, none) for number in range(600)]
    assert len(decide_replica_set(none, pods, [], NOW)) == 501


@pytest.mark.parametrize(
    ("takes_s", "steps", "rest_s"),
    [
        (0.03, [], 0.3),
        (0.03, [WriteStatus(REPLICA_SET, {}, {})], 0.3),
        (5.0, [], 1.0),
        (0.0005, [], 0.0),
        (0.03, [Delete(POD, {})], 0.0),
    ],
)
def test_a_set_that_takes_long_to_count_rests_before_it_is_counted_again(
    takes_s: float, steps: list[Step], rest_s: float, context: Context, clock: FakeClock, monkeypatch: Any
):
    counted: list[float] = []

    def counting(*_arguments: Any, **_named: Any) -> list[Step]:
        clock.advance(takes_s)
        counted.append(clock.monotonic())
        return steps

    monkeypatch.setattr(replicasets, "decide_replica_set", counting)
    controller = ReplicaSetController(context)
    monkeypatch.setattr(controller._acting, "take", lambda *_: [])
    replica_set = workload(REPLICA_SET, {"replicas": 3})
    key, queue = objects.key(replica_set), controller.loop._queue
    controller.own._on_event(WatchEvent("ADDED", replica_set))
    assert queue.get(0) == key
    queue.done(key)
    controller.sync(key)
    clock.advance(max(rest_s - 0.001, 0))
    controller.sync(key)
    assert len(counted) == (1 if rest_s else 2)
    clock.advance(0.002)
    assert queue.get(0) == (key if rest_s else None)
    controller.sync(key)
    assert len(counted) == (2 if rest_s else 3)


def test_there_are_cases():
    assert len(CASES) >= 20
