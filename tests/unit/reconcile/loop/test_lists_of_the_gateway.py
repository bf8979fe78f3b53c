"""What a list of the gateway means beside what was learned a moment ago."""

from __future__ import annotations

from datetime import UTC, datetime

from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.loop.agenda import SETTLE_S
from minik8s_modules.reconcile.loop.nodestate import FRESH_S, NodeState, Sent
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.values import NodeDocument

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY: NodeDocument = {section: {} for section in SECTIONS}
TOLD = {
    "digest": "",
    "base_mismatch": False,
    "fenced": False,
    "due": [],
    "held": [],
    "errors": {},
    "steps": [],
    "status": {},
}
RUNNING = ObservedContainer(
    "1",
    "app",
    "u",
    "p",
    "default",
    "app",
    0,
    "running",
    0,
    oom_killed=False,
    error="",
    created_at=NOW,
    started_at=NOW,
    finished_at=None,
    image="i",
    image_id="sha256:1",
)


def observed(state: NodeState, now_s: float) -> bool:
    """Let the next item run through at ``now_s``; return whether it observed the whole node."""
    requests = state.next_item(EMPTY, now_s)
    if not requests:
        return False
    state.sent = Sent("item", requests)
    outcome = Outcome("item", "n", "ok", dict.fromkeys(requests, TOLD), "")
    state.on_outcome(outcome, NOW, now_s, lambda *_: None)
    return len(requests) == len(SECTIONS)


def test_a_fresh_container_that_a_list_lacks_is_kept_and_looked_for_again():
    state = NodeState("n", lambda: 300.0)
    assert observed(state, 0.0)
    state.on_event("1", RUNNING, 9.0, lambda *_: None)
    assert state.on_state([], [], 10.0, lambda *_: None) == set()
    assert not state.observed.pod("u").empty
    assert state.next_moment_s(NOW, 10.0) == FRESH_S
    assert observed(state, 10.0 + FRESH_S)
    assert state.relist_wanted
    assert state.on_state([], [], 10.0 + FRESH_S, lambda *_: None) == {"u"}
    assert state.observed.pod("u").empty
    assert state.next_moment_s(NOW, 13.0) == 300.0


def test_a_list_that_has_all_that_is_known_asks_for_nothing():
    state = NodeState("n", lambda: 300.0)
    assert observed(state, 0.0)
    state.on_event("1", RUNNING, 9.0, lambda *_: None)
    state.on_state([RUNNING], [], 10.0, lambda *_: None)
    assert state.next_moment_s(NOW, 10.0) == 290.0


def test_a_node_that_answers_again_gets_its_item_at_once_whatever_failed_meanwhile():
    state = NodeState("n", lambda: 300.0)
    assert observed(state, 0.0)
    for number in range(8):
        state.observe_fully()
        requests = state.next_item(EMPTY, 100.0 * (number + 1))
        assert requests
        state.sent = Sent("item", requests)
        outcome = Outcome("item", "n", "unreachable", {}, "no route")
        state.on_outcome(outcome, NOW, 100.0 * (number + 1), lambda *_: None)
    assert not state.next_item(EMPTY, 801.0)
    state.on_return()
    assert len(state.next_item(EMPTY, 801.0)) == len(SECTIONS)


def test_a_node_that_is_back_is_observed_again_once_its_services_have_started():
    state = NodeState("n", lambda: 300.0)
    state.on_return()
    assert observed(state, 0.0)
    assert state.next_moment_s(NOW, 0.0) == 300.0
    state.on_return()
    assert observed(state, 50.0)
    assert state.next_moment_s(NOW, 50.0) == SETTLE_S
    assert observed(state, 80.0)
    assert state.next_moment_s(NOW, 80.0) == 300.0


def test_a_node_that_did_not_answer_for_a_moment_is_observed_whole_and_once_more():
    """It may have booted, and lost its network, before anybody called it dead."""
    state = NodeState("n", lambda: 300.0)
    assert observed(state, 0.0)
    state.sent = Sent("item", {})
    state.on_outcome(Outcome("item", "n", "unreachable", {}, "connection reset"), NOW, 50.0, lambda *_: None)
    assert observed(state, 51.0)
    assert state.next_moment_s(NOW, 51.0) == SETTLE_S
    assert observed(state, 81.0)
    assert state.next_moment_s(NOW, 81.0) == 300.0


def test_a_sandbox_that_ended_without_an_event_has_the_node_observed():
    state = NodeState("n", lambda: 300.0)
    sandbox = RUNNING._replace(type="sandbox", container="")
    state.on_state([sandbox], [], 0.0, lambda *_: None)
    assert observed(state, 0.0)
    state.on_state([sandbox], [], 10.0, lambda *_: None)
    assert state.next_moment_s(NOW, 10.0) == 290.0
    state.on_state([sandbox._replace(state="exited", finished_at=NOW)], [], 20.0, lambda *_: None)
    assert observed(state, 20.0)


def test_a_list_tells_what_no_event_told_but_the_first_one_only_how_things_are():
    state, result = NodeState("n", lambda: 300.0), []

    def happened(uid: str, before: ObservedPod, after: ObservedPod) -> None:
        result.append((uid, [one.state for one in before.attempts()], [one.state for one in after.attempts()]))

    state.on_state([RUNNING], [], 0.0, happened)
    state.on_state([RUNNING], [], 5.0, happened)
    assert result == []
    state.on_state([RUNNING._replace(state="exited", finished_at=NOW, oom_killed=True)], [], 10.0, happened)
    assert result == [("u", ["running"], ["exited"])]
    state.on_gateway_lost()
    state.on_state([RUNNING._replace(id="2", attempt=1)], [], 20.0, happened)
    assert len(result) == 1, "what happened while nobody listened is not known"
