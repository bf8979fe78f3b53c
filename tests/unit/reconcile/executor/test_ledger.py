"""Where each item is: decided without any process."""

from __future__ import annotations

import pytest

from minik8s_modules.reconcile.executor.ledger import Answer, Ledger
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem

OK = Answer("ok", "", ("first",))


def item(item_id: str, node: str = "n0") -> WorkItem:
    return WorkItem(item_id, node, check=False, token=(1, 1), sections={"first": SectionRequest({})})


def ids(items: list[WorkItem]) -> list[str]:
    return [each.id for each in items]


def with_items(*items: WorkItem) -> Ledger:
    ledger = Ledger()
    for each in items:
        ledger.add(each)
    return ledger


@pytest.mark.parametrize("order", ["result first", "answer first"])
def test_an_outcome_needs_the_answer_and_all_results(order: str) -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    steps = [
        lambda: ledger.result(1, "a", "first", {"changed": True}),
        lambda: ledger.answered(1, "a", OK, 0.0),
    ]
    if order == "answer first":
        steps.reverse()
    assert steps[0]() is None
    outcome = steps[1]()
    assert outcome == Outcome("a", "n0", "ok", {"first": {"changed": True}}, "")
    assert len(ledger) == 0


def test_a_second_result_or_answer_is_ignored() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    ledger.result(1, "a", "first", {})
    assert ledger.answered(1, "a", OK, 0.0)
    assert ledger.answered(1, "a", OK, 0.0) is None
    assert ledger.result(1, "a", "first", {}) is None


def test_results_of_another_run_or_section_are_ignored() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(2)
    ledger.result(1, "a", "first", {})
    ledger.result(2, "a", "other", {})
    assert ledger.answered(2, "a", OK, 0.0) is None


def test_a_new_run_gets_no_item_of_a_host_that_is_busy_in_the_old() -> None:
    ledger = with_items(item("a"), item("b", "n1"))
    assert ids(ledger.sendable(1)) == ["a", "b"]
    ledger.add(item("c"))
    ledger.add(item("d", "n2"))
    assert ids(ledger.sendable(2)) == ["d"]
    ledger.result(1, "a", "first", {})
    assert ledger.answered(1, "a", OK, 0.0)
    assert ids(ledger.sendable(2, "n0")) == ["c"]


def test_items_of_a_dead_run_go_out_again_first_and_in_order() -> None:
    ledger = with_items(item("a"), item("b"))
    ledger.sendable(1)
    ledger.add(item("c", "n1"))
    assert ledger.run_ended(1, "died") == []
    ledger.add(item("d"))
    assert ids(ledger.sendable(2)) == ["a", "b", "d", "c"]


def test_an_item_whose_run_dies_twice_fails_once() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    ledger.run_ended(1, "died")
    ledger.sendable(2)
    assert ledger.run_ended(2, "died again") == [Outcome("a", "n0", "failed", {}, "tried 2 times: died again")]
    assert len(ledger) == 0
    assert ledger.sendable(3) == []


def test_half_of_a_dead_runs_results_does_not_count_for_the_next() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    ledger.result(1, "a", "first", {})
    ledger.run_ended(1, "died")
    ledger.sendable(2)
    assert ledger.answered(2, "a", OK, 0.0) is None


def test_a_cancelled_item_is_not_sent_again() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    assert ledger.cancel("a") == 1
    assert [outcome.status for outcome in ledger.run_ended(1, "died")] == ["cancelled"]


def test_a_waiting_item_is_cancelled_at_once() -> None:
    ledger = with_items(item("a"))
    outcome = ledger.cancel("a")
    assert isinstance(outcome, Outcome)
    assert outcome.status == "cancelled"
    assert ledger.cancel("a") is None
    assert ledger.sendable(1) == []


def test_items_fail_when_no_run_can_be_started_twice() -> None:
    ledger = with_items(item("a"))
    assert ledger.start_failed("bad playbook") == []
    assert [outcome.message for outcome in ledger.start_failed("bad playbook")] == ["tried 2 times: bad playbook"]
    assert ledger.sendable(1) == []


def test_a_lost_event_fails_its_item_after_a_while() -> None:
    ledger = with_items(item("a"))
    ledger.sendable(1)
    ledger.answered(1, "a", OK, now_s=10.0)
    assert ledger.awaits_results()
    assert ledger.overdue(before_s=10.0) == []
    outcomes = ledger.overdue(before_s=10.1)
    assert [(outcome.status, outcome.message) for outcome in outcomes] == [
        ("failed", "the runner event of section first was lost")
    ]


def test_a_result_of_the_wrong_shape_fails_its_item() -> None:
    ledger = with_items(WorkItem("a", "n0", check=False, token=(1, 1), sections={"network": SectionRequest({})}))
    ledger.sendable(1)
    ledger.result(1, "a", "network", {"steps": "rm -rf"})
    outcome = ledger.answered(1, "a", Answer("ok", "", ("network",)), 0.0)
    assert outcome is not None
    assert outcome.status == "failed"
    assert outcome.message == "network: the node's result is not what the module returns: steps is str"
    assert outcome.sections == {}


def test_an_id_is_used_once() -> None:
    with pytest.raises(ValueError, match="item a was submitted already"):
        with_items(item("a"), item("a"))
