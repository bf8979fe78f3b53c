"""What a node's kernel tells is looked at soon, once, and not when it is the echo of our own doing."""

from __future__ import annotations

from datetime import UTC, datetime

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.nodestate import GATHER_S, LOOK_EVERY_S, OWN_S, NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.values.items import SECTIONS, Outcome
from minik8s_modules.reconcile.values.values import Entries

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY: dict[str, Entries] = {section: {} for section in SECTIONS}
TOLD: JsonObject = {
    "changed": False, "digest": "d", "base_mismatch": False, "fenced": False, "due": [], "errors": {}, "status": {},
    "steps": [],
}  # fmt: skip
CHANGED = {"network", "services"}


def looked(state: NodeState, now_s: float, *, changed: bool = False) -> set[str]:
    """Let the next item run through; return the sections that it looked at as a whole."""
    requests: dict[str, Request] = state.next_item(NOBODY, now_s)
    if not requests:
        return set()
    state.sent = Sent("item", requests)
    sections = {section: {**TOLD, "changed": changed} for section in requests}
    state.on_outcome(Outcome("item", "n", "ok", sections, ""), NOW, now_s, lambda *_: None)
    return {section for section, request in requests.items() if request.keys is None}


def idle() -> NodeState:
    """Return a node that was just observed as a whole."""
    state = NodeState("n", lambda: 300.0)
    assert looked(state, 0.0) == set(SECTIONS)
    return state


def test_the_sections_concerned_are_looked_at_once_when_the_burst_is_over():
    state = idle()
    assert state.on_changed(CHANGED, 100.0)
    assert not state.on_changed(CHANGED, 100.1), "it is known already"
    assert state.next_moment_s(NOW, 100.1) < GATHER_S
    assert looked(state, 100.1) == set()
    assert looked(state, 100.0 + GATHER_S) == CHANGED
    assert looked(state, 102.0) == set()
    assert state.next_moment_s(NOW, 102.0) == 198.0


def test_the_echo_of_our_own_doing_is_not_looked_at():
    state = idle()
    state.on_changed(CHANGED, 100.0)
    assert looked(state, 101.0, changed=True) == CHANGED
    assert not state.on_changed(CHANGED, 101.0 + OWN_S / 2)
    state.sent = Sent("item", {})
    assert not state.on_changed(CHANGED, 150.0)
    state.sent = None
    assert state.on_changed(CHANGED, 151.0)


def test_a_look_that_changed_nothing_has_no_echo():
    state = idle()
    state.on_changed(CHANGED, 100.0)
    assert looked(state, 101.0) == CHANGED
    assert state.on_changed(CHANGED, 101.0 + OWN_S / 2)


def test_who_changes_things_all_day_does_not_keep_the_node_busy():
    state = idle()
    looks = 0
    for tenth in range(1000, 2000):
        now_s = tenth / 10
        state.on_changed(CHANGED, now_s)
        looks += bool(looked(state, now_s))
    assert looks <= 100.0 / LOOK_EVERY_S + 1
