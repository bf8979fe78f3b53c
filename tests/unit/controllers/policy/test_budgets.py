"""Disruption budgets: each file of tests/cases/decide_budget, cut off after every step; and evictions in a storm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, POD_DISRUPTION_BUDGET, REPLICA_SET
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.core.steps import Step, WriteStatus
from minik8s_modules.controllers.policy.disruption import Scale, decide_budget
from minik8s_modules.controllers.simulation.simulated_cluster import World
from tests.support.workloads import NOW, SPACE, ago, cut_off, pod, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_budget").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


class Case:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.case = yaml.safe_load(path.read_text(encoding="utf-8"))
        declared = dict(self.case["budget"])
        status = dict(declared.pop("status", {}))
        if "disruptedPods" in status:
            status["disruptedPods"] = {name: ago(seconds) for name, seconds in status["disruptedPods"].items()}
        meta = {"name": "web", "namespace": SPACE, "uid": "uid-web", "generation": 1}
        selector = {"matchLabels": {"app": "web"}}
        self.budget: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"selector": selector, **declared},
            "status": status,
        }
        owner = workload(REPLICA_SET, {})
        self.pods = [pod(each, REPLICA_SET, owner) for each in self.case["pods"]]
        for each, made in zip(self.case["pods"], self.pods, strict=True):
            if "targeted" in each:
                made["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})

    def decide(self, world: World, budget: dict[str, Any]) -> list[Step]:
        """Decide in a world."""
        scale = Scale("uid-web", self.case["scale"]) if "scale" in self.case else None
        pods = world.all(POD)
        return decide_budget(budget, pods, {objects.uid(each): scale for each in pods}, NOW)


@EACH
def test_decide_budget(path: Path):
    case = Case(path)
    steps = case.decide(World([case.budget, *case.pods], NOW), case.budget)
    expected = case.case["steps"]
    assert [words(step)[: len(text)] for step, text in zip(steps, expected, strict=True)] == expected
    for step in steps:
        if isinstance(step, WriteStatus):
            check(step.status, dict(case.case["status"]))


def check(status: dict[str, Any], expected: dict[str, Any]) -> None:
    assert status["conditions"][0]["reason"] == expected.pop("reason", status["conditions"][0]["reason"])
    assert [*status.get("disruptedPods", {})] == expected.pop("disruptedPods", [])
    assert status.items() >= expected.items()
    assert unknown_fields(POD_DISRUPTION_BUDGET, {"status": status}) == []


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    case = Case(path)
    key = objects.Key(SPACE, "web")
    ends = cut_off(lambda: [case.budget, *case.pods], POD_DISRUPTION_BUDGET, key, case.decide)
    assert len({str((world.get(POD_DISRUPTION_BUDGET, key) or {})["status"]) for world in ends}) == 1


def test_there_are_cases():
    assert len(CASES) >= 15
