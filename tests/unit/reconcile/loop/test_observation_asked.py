"""Somebody asks for a node to be observed while an item is at work there: it follows, for that one may have looked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from minik8s_modules.module_utils.minik8s.core.digests import EMPTY_DIGEST
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.values.items import Outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING: dict[str, Any] = {"status": {}, "errors": {}, "due": [], "held": [], "base_mismatch": False, "fenced": False}


def send(state: NodeState, now_s: float) -> bool:
    """Send what there is to send; return whether that is anything."""
    requests = state.next_item({section: {} for section in SECTIONS}, now_s)
    state.sent = Sent("item", requests) if requests else None
    return bool(requests)


def answer(state: NodeState, now_s: float) -> None:
    result = {**NOTHING, "changed": False, "digest": EMPTY_DIGEST, "steps": [], "diff": {}}
    outcome = Outcome("item", "n", "ok", dict.fromkeys(SECTIONS, result), "")
    state.on_outcome(outcome, NOW, now_s, lambda *_: None)


def test_an_observation_asked_for_in_the_middle_of_one_follows_it() -> None:
    state = NodeState("n", lambda: 300.0)
    assert send(state, 1.0)
    state.observe_fully()
    answer(state, 2.0)
    assert send(state, 3.0)
    answer(state, 4.0)
    assert not send(state, 5.0)
    state.observe_fully()
    assert send(state, 6.0)
    answer(state, 7.0)
    assert not send(state, 8.0)
