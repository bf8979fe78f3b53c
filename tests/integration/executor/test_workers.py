"""Workers wait for their host's next item, and leave nothing of one item to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minik8s_modules.plugins.live import workers

from .conftest import wait_for

LOCAL = {"ansible_connection": "warm_local"}


def pids(lab: Any) -> set[int]:
    return {child.pid for child in lab.play.children()}


def only_worker(lab: Any) -> int:
    """Return the play's worker once those that were to end have ended."""
    wait_for(lambda: len(pids(lab)) == 1, "a single worker")
    return next(iter(pids(lab)))


def ended(lab: Any, pid: int) -> None:
    wait_for(lambda: pid not in pids(lab), "the worker's end")


def test_items_that_follow_share_a_worker_which_ends_when_none_does(lab: Any) -> None:
    lab.run(first={})
    first = only_worker(lab)
    lab.run(second={}, third={})
    assert pids(lab) == {first}
    ended(lab, first)
    assert lab.run(first={}).status == "ok"


def test_an_item_has_nothing_of_the_one_before(lab: Any) -> None:
    lab.run(check=True, first={"entries": {"a": "1"}, "blob": "secret"})
    worker = only_worker(lab)
    changed = lab.run(first={"entries": {"b": "{{ 2 }}"}})
    empty = lab.run(first={})
    assert pids(lab) == {worker}
    assert [step["key"] for step in changed.sections["first"]["steps"]] == ["b"]
    assert sorted(file.name for file in lab.files.iterdir()) == ["b"]
    assert (lab.files / "b").read_text() == "{{ 2 }}"
    assert (empty.sections["first"]["steps"], empty.sections["first"]["status"]) == ([], {})


def test_a_worker_whose_item_failed_gets_no_other(lab: Any) -> None:
    lab.run(first={})
    worker = only_worker(lab)
    assert lab.run(first={"fail": "no"}, second={}).status == "failed"
    ended(lab, worker)
    assert lab.run(first={}, second={}).status == "ok"


def test_a_large_item_has_a_worker_of_its_own(lab: Any) -> None:
    lab.run(first={})
    worker = only_worker(lab)
    text = "x" * (workers.MAX_REQUEST_BYTES + 1)
    assert lab.run(first={"entries": {"a": text}}).status == "ok"
    assert (lab.files / "a").read_text() == text
    ended(lab, worker)


def test_a_waiting_worker_that_is_killed_costs_no_item(lab: Any) -> None:
    lab.run(first={})
    worker = lab.play.children()[0]
    worker.kill()
    ended(lab, worker.pid)
    assert lab.run(first={"entries": {"a": "1"}}).status == "ok"
    assert (lab.files / "a").read_text() == "1"


def test_another_inventory_has_other_workers(lab: Any) -> None:
    lab.run(first={})
    worker = only_worker(lab)
    lab.set_hosts({"n0": {**LOCAL, "other": "value"}})
    assert lab.run(first={}).status == "ok"
    ended(lab, worker)


def test_no_more_workers_wait_than_may_run(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({f"n{number}": LOCAL for number in range(6)}, forks=2)
    items = [lab.submit(node, first={}) for node in lab.nodes]
    assert {lab.outcome(item).status for item in items} == {"ok"}
    wait_for(lambda: len(pids(lab)) <= 2, "the others' end")
