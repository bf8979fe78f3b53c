"""Every file of tests/cases/decide_pod is one decision; the file's name is the sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.values.values import PodDecision
from tests.unit.reconcile.worlds import T0, UID, at, inputs, mismatch, observations, pod

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_pod").glob("*.yml"))


def shown(decision: PodDecision) -> dict[str, Any]:
    """Return the decision in the words of the cases: keys without the pod's uid, times in seconds."""
    entries: dict[str, Any] = {
        section: {} for section in ("secrets", "volumes", "sandboxes", "sidecars", "containers")
    } | {
        section: {key.removeprefix(f"{UID}/"): entry for key, entry in found.items()}
        for section, found in decision.entries.items()
    }
    return {
        "keys": sorted(f"{section}/{key}" for section, found in entries.items() for key in found),
        **entries,
        "pulls": sorted(decision.pulls),
        "wake_at": (decision.wake_at - T0).total_seconds() if decision.wake_at else None,
        "address_wanted": decision.address_wanted,
        "address_released": decision.address_released,
        "gone": decision.gone,
        "phase": decision.phase,
        "reason": decision.reason,
        "waiting": {name: waiting.reason for name, waiting in decision.waiting.items()},
        "messages": {name: waiting.message for name, waiting in decision.waiting.items()},
        "events": [f"{event.type} {event.reason} {event.message}" for event in decision.events],
        "sealed": sorted(decision.sealed),
        "checks": {check["id"]: check for check in decision.checks},
        "resizes": [" ".join(filter(None, one)) for one in decision.resizes],
        "resources": {name: one._asdict() for name, one in decision.resources.items()},
        "health": {name: list(health) for name, health in decision.health.items()},
    }


def test_there_are_cases():
    assert len(CASES) > 40


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_decide_pod(path: Path):
    case = yaml.safe_load(path.read_text())
    unknown = set(case) - {"pod", "observed", "inputs", "now", "expect"}
    assert not unknown
    now = at(case.get("now", 10))
    assert now is not None
    decision = decide_pod(
        pod(**case.get("pod", {})), observations(case.get("observed", [])), inputs(case.get("inputs", {})), now
    )
    assert not mismatch(case["expect"], shown(decision))
