"""A container whose sandbox or volume the pass did not get to is tried again together with it, without an error."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.loop.agenda import KEY_RETRY
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import full
from minik8s_modules.reconcile.values.items import Outcome
from tests.unit.reconcile.worlds import UID

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VOLUME, CONTAINER = f"{UID}/data", f"{UID}/app"
WANTED: dict[str, Any] = {
    **{section: {} for section in SECTIONS},
    "volumes": {VOLUME: {"kind": "emptyDir"}},
    "containers": {CONTAINER: {"attempt": 0}},
}
MISSING = {CONTAINER: {"reason": "VolumeMissing", "message": "needs volume 'data'"}}


def result(**fields: Any) -> dict[str, Any]:
    """Return a module's result of a pass that found no fault but those told."""
    none = {
        "changed": False,
        "base_mismatch": False,
        "fenced": False,
        "digest": "d",
        "due": [],
        "errors": {},
        "held": [],
    }
    return {**none, "status": {}, "steps": [], **fields}


def after(volumes: dict[str, Any], containers: dict[str, Any]) -> NodeState:
    """Return a node whose first pass, at second 100, came back with those results."""
    state = NodeState("n1", lambda: 300.0)
    state.sent = Sent("i", {section: full(WANTED[section]) for section in SECTIONS})
    fields = {**dict.fromkeys(SECTIONS, result()), "volumes": volumes, "containers": containers}
    state.on_outcome(Outcome("i", "n1", "ok", fields, ""), NOW, 100.0, lambda *_: None)
    return state


@pytest.mark.parametrize(
    ("volumes", "after_s"),
    [
        (result(due=[{"key": VOLUME, "after_s": 0, "reason": "PassBudget"}]), 0.0),
        (result(errors={VOLUME: {"reason": "FailedMount", "message": "no"}}), KEY_RETRY.delay_s(1)),
        (result(), KEY_RETRY.delay_s(1)),  # it was made, and removed by hand
    ],
)
def test_volume_and_container_go_in_the_same_item(volumes: dict[str, Any], after_s: float) -> None:
    state = after(volumes, result(errors=MISSING))
    assert after_s == 0.0 or not state.next_item(WANTED, 100.0 + after_s / 2)
    found = state.next_item(WANTED, 100.0 + after_s)
    assert {section: set(request.keys or ()) for section, request in found.items()} == {
        "volumes": {VOLUME},
        "containers": {CONTAINER},
    }
