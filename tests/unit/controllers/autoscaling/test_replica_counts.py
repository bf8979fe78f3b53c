"""What one metric asks for: each file of tests/cases/count_replicas, the facts of replica_calculator_test.go."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.controllers.autoscaling.replica_counts import (
    Count,
    Sample,
    Uncountable,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
)
from tests.support.servers.autoscaling import pods_of, samples_of
from tests.support.workloads import NOW

CASES = sorted((Path(__file__).parents[3] / "cases" / "count_replicas").glob("*.yml"))


def count(case: dict[str, Any]) -> Count:
    pods, current = pods_of(case), case["current"]
    if "resource" in case:
        result = case["resource"]
        samples = samples_of(case)
        return by_utilization(current, result["target"], result["name"], pods, samples, NOW, case.get("container", ""))
    result = case["metric"]
    if result["type"] == "pods":
        found = {f"test-pod-{number}": Sample(level, NOW, 60.0) for number, level in enumerate(result["levels"])}
        return by_average(current, result["target"], pods, found, NOW)
    if result["type"] in {"object", "external"}:
        return by_value(current, result["target"], sum(result["levels"]), pods)
    return by_value_per_pod(current, result["target"], sum(result["levels"]))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_count_replicas(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "error" in case:
        with pytest.raises(Uncountable) as refused:
            count(case)
        assert case["error"] in str(refused.value)
        return
    found = count(case)
    assert {"replicas": found.replicas, "utilization": found.utilization, "value": found.value}.items() >= (
        case["says"].items()
    )


def test_there_are_cases():
    assert len(CASES) >= 60


@pytest.mark.parametrize("seed", range(200))
def test_where_all_pods_tell_the_count_brings_the_average_to_the_target(seed: int):
    chance = random.Random(seed)
    current, target = chance.randint(1, 50), chance.randint(1, 5000)
    levels = [chance.randint(0, 10_000) for _ in range(chance.randint(1, 50))]
    samples = {f"test-pod-{number}": Sample(level, NOW, 60.0) for number, level in enumerate(levels)}
    found = by_average(current, target, pods_of({"current": len(levels)}), samples, NOW)
    ratio = (sum(levels) // len(levels)) / target
    if abs(1 - ratio) <= 0.1:
        assert found.replicas == current
    else:
        assert found.replicas - 1 < ratio * len(levels) <= found.replicas


@pytest.mark.parametrize("seed", range(200))
def test_pods_that_tell_nothing_never_turn_the_direction(seed: int):
    chance = random.Random(seed)
    result, silent, level = chance.randint(1, 20), chance.randint(1, 10), chance.randint(0, 2000)
    target = chance.randint(1, 1000)
    samples = {f"test-pod-{number}": Sample(level, NOW, 60.0) for number in range(result)}
    found = by_average(result + silent, target, pods_of({"current": result + silent}), samples, NOW).replicas
    assert found >= result + silent if level > target else found <= result + silent


def test_a_pod_counts_once_its_sample_is_younger_than_its_readiness():
    case = {"current": 1, "resource": {"name": "cpu", "requests": ["1"], "levels": [[900, 900]]}}
    pod = pods_of(case)[0]
    pod["status"]["startTime"] = (NOW - timedelta(seconds=120)).isoformat()
    pod["status"]["conditions"][0]["lastTransitionTime"] = (NOW - timedelta(seconds=70)).isoformat()
    young = {"test-pod-0": Sample(1800, NOW - timedelta(seconds=5), 60.0)}
    old = {"test-pod-0": Sample(1800, NOW - timedelta(seconds=15), 60.0)}
    assert by_utilization(1, 30, "cpu", [pod], young, NOW).replicas == 3
    with pytest.raises(Uncountable, match="pods might be unready"):
        by_utilization(1, 30, "cpu", [pod], old, NOW)
