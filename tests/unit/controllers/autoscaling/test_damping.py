"""Windows, policies and bounds: tests/cases/limit_replicas and stabilize_replicas, and what holds for all of them."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import HORIZONTAL_POD_AUTOSCALER
from minik8s_modules.controllers.autoscaling.damping import (
    Bounds,
    Change,
    History,
    Recommendation,
    begun,
    changed,
    limited,
    stabilized,
)
from tests.support.workloads import NOW

CASES = Path(__file__).parents[3] / "cases"
LIMITS = sorted((CASES / "limit_replicas").glob("*.yml"))
WINDOWS = sorted((CASES / "stabilize_replicas").glob("*.yml"))


def with_defaults(**behavior: Any) -> dict[str, Any]:
    """Return a behavior as the API server keeps it."""
    autoscaler: dict[str, Any] = {"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 9, "behavior": behavior}}
    apply_defaults(HORIZONTAL_POD_AUTOSCALER, autoscaler)
    found: dict[str, Any] = autoscaler["spec"]["behavior"]
    return found


def changes(expected: list[list[int]]) -> tuple[Change, ...]:
    return tuple(Change(by, NOW - timedelta(seconds=ago, milliseconds=1)) for by, ago in expected)


def recommendations(expected: list[list[int]]) -> tuple[Recommendation, ...]:
    return tuple(Recommendation(replicas, NOW - timedelta(seconds=ago, milliseconds=1)) for replicas, ago in expected)


@pytest.mark.parametrize("path", LIMITS, ids=lambda path: path.stem)
def test_limit_replicas(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    behavior = with_defaults(**{side: case[side] for side in ("scaleUp", "scaleDown") if side in case})
    history = History(ups=changes(case.get("ups", [])), downs=changes(case.get("downs", [])))
    bounds = Bounds(case["current"], case["least"], case["most"])
    verdict = limited(behavior, history, bounds, case["desired"], NOW)
    assert [verdict.replicas, verdict.reason] == case["says"]


@pytest.mark.parametrize("path", WINDOWS, ids=lambda path: path.stem)
def test_stabilize_replicas(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    history = History(recommendations(case["recommendations"]))
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": case["up"]},
        "scaleDown": {"stabilizationWindowSeconds": case["down"]},
    }
    verdict, after = stabilized(behavior, history, case["current"], case["desired"], NOW, 300)
    assert verdict.replicas == case["says"]
    if "remembered" in case:
        assert [each.replicas for each in after.recommendations] == case["remembered"]


def test_there_are_cases():
    assert len(LIMITS) >= 40
    assert len(WINDOWS) >= 10


@pytest.mark.parametrize(
    ("known", "desired", "says", "length"),
    [
        ([], 5, 5, 1),
        ([[4, 120], [5, 60]], 3, 5, 3),
        ([[1, 120], [2, 60]], 3, 3, 3),
        ([[10, 600], [9, 60]], 3, 9, 2),
        ([[6, 60], [5, 600], [4, 360], [7, 120]], 3, 7, 4),
    ],
)
def test_without_behavior_the_highest_of_five_minutes_counts(
    known: list[list[int]], desired: int, says: int, length: int
):
    verdict, after = stabilized(None, History(recommendations(known)), 9, desired, NOW, 300)
    assert (verdict.replicas, len(after.recommendations)) == (says, length)


@pytest.mark.parametrize(
    ("current", "desired", "least", "most", "says", "reason"),
    [
        (3, 7, 1, 10, 6, "ScaleUpLimit"),
        (1, 9, 1, 10, 4, "ScaleUpLimit"),
        (20, 1000, 1, 15, 15, "TooManyReplicas"),
        (1, 0, 0, 10, 0, "DesiredWithinRange"),
        (3, 1, 2, 8, 2, "TooFewReplicas"),
        (4, 4, 1, 8, 4, "DesiredWithinRange"),
    ],
)
def test_without_behavior_replicas_at_most_double(
    current: int, desired: int, least: int, most: int, says: int, reason: str
):
    verdict = limited(None, History(), Bounds(current, least, most), desired, NOW)
    assert (verdict.replicas, verdict.reason) == (says, reason)


def rules_of(chance: random.Random) -> dict[str, Any]:
    kinds = chance.sample(["Pods", "Percent"], chance.randint(1, 2))
    policies = [
        {"type": kind, "value": chance.randint(1, 150), "periodSeconds": chance.randint(1, 180)} for kind in kinds
    ]
    select = chance.choice(["Max", "Min", "Disabled"])
    return {"stabilizationWindowSeconds": chance.randint(0, 120), "selectPolicy": select, "policies": policies}


@pytest.mark.parametrize("seed", range(150))
def test_never_outside_the_bounds_nor_faster_than_a_policy(seed: int):
    """Follow an autoscaler for an hour of random recommendations, and hold each change against its rules."""
    chance = random.Random(seed)
    least = chance.randint(1, 5)
    most = chance.randint(least, 80)
    behavior = with_defaults(scaleUp=rules_of(chance), scaleDown=rules_of(chance))
    current, now, past = chance.randint(least, most), NOW, []
    history = begun(History(), current, now)
    for _ in range(240):
        now += timedelta(seconds=chance.choice([5, 15, 15, 40]))
        desired = chance.randint(0, 100)
        stable, history = stabilized(behavior, history, current, desired, now, 300)
        assert min(current, desired) <= stable.replicas <= max(current, desired)
        wanted = limited(behavior, history, Bounds(current, least, most), stable.replicas, now).replicas
        assert least <= wanted <= most
        past.append((now, current))
        check_rate(behavior["scaleUp" if wanted > current else "scaleDown"], past, current, wanted)
        if wanted != current:
            history = changed(behavior, history, current, wanted, now)
            current = wanted


def check_rate(rules: dict[str, Any], past: list[tuple[Any, int]], current: int, wanted: int) -> None:
    """Hold a change against the lowest and highest number that the policies' periods began with."""
    if wanted == current:
        return
    assert rules["selectPolicy"] != "Disabled"
    now = past[-1][0]
    allowed = []
    for policy in rules["policies"]:
        # what stood before the period began counts: the last number older than it, too
        began = now - timedelta(seconds=policy["periodSeconds"])
        before = [replicas for at, replicas in past if at <= began][-1:]
        seen = [*before, *(replicas for at, replicas in past if at > began)]
        start = min(seen) if wanted < current else max(seen)
        share = policy["value"] if policy["type"] == "Pods" else start * policy["value"] / 100 + 1
        allowed.append(share + (max(seen) - min(seen)))
    most = min(allowed) if rules["selectPolicy"] == "Min" else max(allowed)
    assert abs(wanted - current) <= most
