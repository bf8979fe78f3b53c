"""ReplicaSets: every file of tests/cases/decide_replica_set is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, REPLICA_SET, REPLICATION_CONTROLLER, Kind
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.pods import is_active
from minik8s_modules.controllers.core.steps import Create, WriteStatus
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads.replicasets import Trouble, decide_replica_set
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


def test_there_are_cases():
    assert len(CASES) >= 20
