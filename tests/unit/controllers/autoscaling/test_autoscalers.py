"""Decisions on autoscalers: tests/cases/decide_autoscaler, the facts of upstream's horizontal_test."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import HORIZONTAL_POD_AUTOSCALER
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.schema.structural import type_errors, unknown_fields
from minik8s_modules.controllers.autoscaling.autoscalers import (
    Decision,
    Scale,
    ScaleInputs,
    after_scaling,
    decide_autoscaler,
    needs_metrics,
)
from minik8s_modules.controllers.autoscaling.damping import History, Recommendation
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.readings import Use, use_in
from minik8s_modules.controllers.autoscaling.replica_counts import Sample
from tests.support.servers.autoscaling import SPACE, pods_of
from tests.support.workloads import NOW

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_autoscaler").glob("*.yml"))
SELECTOR = "name=test-pod"


def autoscaler_of(spec: dict[str, Any], **status: Any) -> JsonObject:
    reference = {"apiVersion": "v1", "kind": "ReplicationController", "name": "test-rc"}
    made: JsonObject = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "test-hpa", "namespace": SPACE},
        "spec": {"scaleTargetRef": reference, **spec},
        "status": status,
    }
    apply_defaults(HORIZONTAL_POD_AUTOSCALER, made)
    return made


def measured(case: dict[str, Any], metric: JsonObject) -> Measured:
    levels = case.get("levels") or []
    kind = metric["type"]
    if kind in {"Object", "External"}:
        return (levels[0] if kind == "Object" else sum(levels)) if levels else Unread("no metrics")
    if kind == "Pods":
        found = {f"test-pod-{number}": Sample(level, NOW, 60.0) for number, level in enumerate(levels)}
        return found or Unread("no metrics returned from custom metrics API")
    source = metric.get("resource") or metric.get("containerResource") or {}
    uses = {
        f"test-pod-{number}": Use(
            NOW, 60.0, {each: {"cpu": f"{level // 2}m", "memory": "512Ki"} for each in ("container1", "container2")}
        )
        for number, level in enumerate(levels)
    }
    return use_in(SPACE, uses, source.get("name", ""), source.get("container", ""))


def decide(case: dict[str, Any]) -> Decision:
    spec, current = case["spec"], case["current"]
    autoscaler = autoscaler_of(spec, currentReplicas=current, desiredReplicas=current)
    requests = case.get("requests", ["1"] * case["statusReplicas"])
    fields = {
        **case,
        "current": len(requests),
        "resource": {"name": "cpu", "requests": [half(each) for each in requests]},
    }
    scale = Scale(current, case["statusReplicas"], SELECTOR)
    metrics = autoscaler["spec"]["metrics"]
    seen = ScaleInputs(scale)
    if needs_metrics(autoscaler, scale):
        seen = ScaleInputs(
            scale,
            ready_since_they_run(pods_of(fields)),
            [measured(case, each) for each in metrics],
            [Key(SPACE, "test-hpa")],
        )
    # a list that is there, if empty, is one whose first entry is not the replicas there are
    known = [[0, 86400], *case["recommendations"]] if "recommendations" in case else []
    history = History(tuple(Recommendation(each, NOW - timedelta(seconds=ago, milliseconds=1)) for each, ago in known))
    decision = decide_autoscaler(autoscaler, seen, history, NOW)
    return decision if decision.replicas is None else after_scaling(autoscaler, decision, scale, NOW)


def ready_since_they_run(pods: list[JsonObject]) -> list[JsonObject]:
    for pod in pods:
        pod["status"]["conditions"][0]["lastTransitionTime"] = pod["status"]["startTime"]
    return pods


def half(quantity: str) -> str:
    return f"{int(float(quantity) * 500)}m"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_autoscaler(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    says, status = case["says"], decide(case).status
    assert status["desiredReplicas"] == says["desired"]
    assert [[each["type"], each["status"], each["reason"]] for each in status["conditions"]] == says["conditions"]
    if "utilization" in says:
        assert status["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == says["utilization"]
    assert unknown_fields(HORIZONTAL_POD_AUTOSCALER, {"status": status}) == []
    assert type_errors(HORIZONTAL_POD_AUTOSCALER, {"status": status}) == []


def test_there_are_cases():
    assert len(CASES) >= 40
