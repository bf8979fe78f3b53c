"""A pass that fails as a whole is told at its Node, again while it lasts, and when it is over."""

from __future__ import annotations

import pytest

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.reconcile.events.pass_events import AGAIN_S, REASON, RECOVERED, PassEvents
from minik8s_modules.reconcile.values.items import Outcome, OutcomeStatus
from tests.unit.reconcile.events.test_services_events import NODE, Notes


def ended(status: OutcomeStatus, message: str = "") -> Outcome:
    """Return how a pass ended."""
    return Outcome("i", "n1", status, {}, message)


@pytest.mark.parametrize("status", ["failed", "unreachable"])
def test_a_failure_is_told_again_while_it_lasts_and_its_end_once(status: OutcomeStatus):
    notes, clock = Notes(), FakeClock()
    event_writer = PassEvents(notes, lambda _: NODE, clock)
    event_writer.on_outcome(ended("ok"))
    for _ in range(3):
        event_writer.on_outcome(ended(status, "the lock\nis held"))
    assert notes.events == [("Node", REASON, "the lock is held")]
    clock.advance(AGAIN_S)
    event_writer.on_outcome(ended(status, "the lock\nis held"))
    assert len(notes.events) == 2
    event_writer.on_outcome(ended("cancelled", "called off"))
    assert len(notes.events) == 2
    event_writer.on_outcome(ended("ok"))
    event_writer.on_outcome(ended("ok"))
    assert [reason for _, reason, _ in notes.events] == [REASON, REASON, RECOVERED]
    assert notes.kinds == ["Warning", "Warning", "Normal"]


def test_of_a_node_that_is_gone_nothing_is_told():
    notes = Notes()
    PassEvents(notes, lambda _: None, FakeClock()).on_outcome(ended("failed", "no"))
    assert notes.events == []
