"""The original's autoscalers: tests/cases/decide_original, what holds for all of them, and their shell."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.controllers.autoscaling.autoscalers import Scale
from minik8s_modules.controllers.autoscaling.originals import Outcome, Used, decide_original
from tests.support.workloads import NOW

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_original").glob("*.yml"))
MIB = 1024 * 1024


def used_of(pods: list[list[list[float]]]) -> dict[str, list[Used]]:
    return {
        f"p{number}": [Used(NOW - timedelta(seconds=ago), cores, int(mib * MIB)) for ago, cores, mib in each]
        for number, each in enumerate(pods)
    }


def decide(case: dict[str, Any]) -> Outcome:
    last = NOW - timedelta(seconds=case["last"]) if "last" in case else None
    scale = Scale(case["current"], case["current"], "app=web")
    return decide_original({"spec": case["spec"]}, scale, used_of(case["pods"]), last, NOW)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_original(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert decide(case).replicas == case["says"]


def test_there_are_cases():
    assert len(CASES) >= 40


@pytest.mark.parametrize("seed", range(300))
def test_never_outside_the_bounds_nor_faster_than_the_policy(seed: int):
    chance = random.Random(seed)
    least = chance.randint(1, 5)
    most, current = chance.randint(least, 40), chance.randint(1, 60)
    value = chance.randint(1, 200)
    policy = {"type": chance.choice(["Pods", "Percent"]), "value": value, "periodSeconds": 60}
    target = {"type": "Utilization", "averageUtilization": chance.randint(1, 200)}
    spec = {
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"name": "cpu", "target": target}],
        "behavior": {"scaleUp": policy, "scaleDown": policy},
    }
    pods = [[[chance.randint(1, 90), chance.random() * 3, 0.0]] for _ in range(chance.randint(0, 8))]
    found = decide({"spec": spec, "current": current, "pods": pods}).replicas
    assert least <= found <= most
    if least <= current <= most:
        allowed = value if policy["type"] == "Pods" else value * current // 100
        assert abs(found - current) <= max(1, allowed)


def test_a_window_under_way_says_how_long_it_is():
    case = yaml.safe_load((CASES[0].parent / "within-the-window-nothing-changes.yml").read_text(encoding="utf-8"))
    assert decide(case).wait_s == 5
