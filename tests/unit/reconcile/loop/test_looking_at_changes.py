"""What a node's kernel tells is looked at soon, once, and not when it is the echo of our own doing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.network.attachment import link_name
from minik8s_modules.reconcile.loop.agenda import GATHER_S, LOOK_EVERY_S, OWN_S
from minik8s_modules.reconcile.loop.drift_holds import Hold
from minik8s_modules.reconcile.loop.nodestate import LATE_S, NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.values import Entries, PodDecision

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY: dict[str, Entries] = {section: {} for section in SECTIONS}
TOLD: JsonObject = {
    "changed": False, "digest": "d", "base_mismatch": False, "fenced": False, "due": [], "errors": {}, "status": {},
    "steps": [], "held": [],
}  # fmt: skip
CHANGED = {"network", "services"}


def looked(state: NodeState, now_s: float, *, changed: bool = False, **sandboxes: object) -> set[str]:
    """Let the next item run through; return the sections that it looked at as a whole."""
    requests: dict[str, Request] = state.next_item(NOBODY, now_s)
    if not requests:
        return set()
    state.sent = Sent("item", requests)
    sections = {section: {**TOLD, "changed": changed} for section in requests}
    sections.get("sandboxes", {}).update(sandboxes)
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


UID = "1a2b3c4d-0000-4000-8000-000000000001"
ATTACH = {"action": "attach", "key": UID, "detail": "its link"}


def cut(state: NodeState, now_s: float) -> bool:
    state.decisions = {UID: PodDecision({})}
    state.on_changed({"sandboxes"}, now_s, link_name(UID))
    return UID in state.detached


def test_a_pod_whose_link_is_gone_is_without_network_until_it_was_looked_at():
    state = idle()
    assert cut(state, 100.0)
    assert state.dirty == {UID}
    assert "sandboxes" in looked(state, 102.0)
    assert state.detached == set()


def test_a_link_that_goes_with_our_own_doing_cuts_nobody_off():
    state = idle()
    state.on_changed(CHANGED, 100.0)
    looked(state, 101.0, changed=True)
    assert not cut(state, 101.0 + LATE_S / 2)
    assert not cut(state, 101.1 + OWN_S)
    assert cut(state, 101.1 + OWN_S + LATE_S)


@pytest.mark.parametrize("left", [{"held": [ATTACH]}, {"steps": [ATTACH], "errors": {UID: {"reason": "NodeError"}}}])
def test_a_pod_that_was_not_attached_again_stays_cut_off(left):
    state = idle()
    cut(state, 100.0)
    looked(state, 102.0, **left)
    assert state.detached == {UID}
    state.observe_fully()
    looked(state, 200.0, steps=[ATTACH])
    assert state.detached == set()


def test_what_nobody_holds_any_more_is_looked_at_at_once():
    state = idle()
    state.on_changed(CHANGED | {"sandboxes"}, 100.0)
    looked(state, 102.0, held=[ATTACH])
    state.on_holds({"sandboxes": Hold(frozenset({UID}))}, 110.0)
    assert looked(state, 110.0) == set()
    state.on_holds({}, 111.0)
    assert looked(state, 111.0) == {"sandboxes"}
    state.on_holds({}, 112.0)
    assert looked(state, 112.0) == set()


def test_to_heal_lasts_until_the_whole_node_was_observed():
    state = idle()
    state.heal()
    assert state.healing
    assert looked(state, 100.0) == set(SECTIONS)
    assert not state.healing
