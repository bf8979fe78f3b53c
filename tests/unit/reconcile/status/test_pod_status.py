"""Every file of tests/cases/pod_status is one status; the file's name is the sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.status.status import Place, pod_status
from tests.unit.reconcile.worlds import at, inputs, mismatch, observations, pod

CASES = sorted((Path(__file__).parents[3] / "cases" / "pod_status").glob("*.yml"))


def shown(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status with its lists as maps by name."""
    conditions = {one["type"]: one for one in status["conditions"]}
    return status | {
        "conditions": {kind: one["status"] for kind, one in conditions.items()},
        "reasons": {kind: one.get("reason", "") for kind, one in conditions.items()},
        "messages": {kind: one.get("message", "") for kind, one in conditions.items()},
        "times": {kind: one["lastTransitionTime"] for kind, one in conditions.items()},
        "containers": {one["name"]: one for one in status["containerStatuses"]},
        "inits": {one["name"]: one for one in status.get("initContainerStatuses", [])},
    }


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_null(one) for one in value.values())
    return any(has_null(one) for one in value) if isinstance(value, list) else value is None


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_pod_status(path: Path):
    case = yaml.safe_load(path.read_text())
    assert not set(case) - {"pod", "observed", "inputs", "now", "place", "attached", "expect"}
    now = at(case.get("now", 10))
    assert now is not None
    subject, seen = pod(**case.get("pod", {})), observations(case.get("observed", []))
    decision = decide_pod(subject, seen, inputs(case.get("inputs", {})), now)
    place = Place(*case.get("place", ["192.0.2.10", "10.244.0.2"]))
    attached = case.get("attached", True)
    status = pod_status(subject, seen, decision, place, now, attached=attached)
    assert not mismatch(case["expect"], shown(status))
    assert not has_null(status)
    # written and read back, the status is the same: no write follows a write
    assert pod_status({**subject, "status": status}, seen, decision, place, now, attached=attached) == status


def test_there_are_cases():
    assert len(CASES) > 15
