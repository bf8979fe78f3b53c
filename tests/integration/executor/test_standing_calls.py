"""Calls that follow one another in one process on the node, and what ends it: each call is as if it were the first."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from minik8s_modules.plugins.warm.calls import MOST_WAITING, STAY_S

from .conftest import wait_for
from .test_faults import gone


def waiting(lab: Any) -> list[psutil.Process]:
    """Return the processes that could take the next call: below the server and its templates, those in a session."""
    found = psutil.Process(lab.interpreter()).children(recursive=True)
    return [one for one in found if alive(one) and os.getsid(one.pid) == one.pid]


def alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def pid_of(lab: Any, **options: Any) -> int:
    """Return the process of a call; one that sleeps writes it down."""
    (lab.files / "pid-n0").unlink(missing_ok=True)
    assert lab.run(first={"sleep_s": 0.01, **options}).status == "ok"
    return int((lab.files / "pid-n0").read_text())


def steady(lab: Any) -> int:
    """Return the process that takes calls, once its template has imported what the first one had to."""
    found = wait_for(lambda: {pid_of(lab), pid_of(lab)}, "two calls")
    while len(found) > 1:
        found = {pid_of(lab), pid_of(lab)}
    return int(next(iter(found)))


def test_a_call_follows_another_in_one_process_and_has_nothing_of_it(lab: Any) -> None:
    pid = steady(lab)
    secret = lab.run(check=True, first={"sleep_s": 0.01, "entries": {"a": "1"}, "blob": "secret"})
    changed = lab.run(first={"sleep_s": 0.01, "entries": {"b": "2"}})
    assert pid_of(lab) == pid
    assert [step["key"] for step in secret.sections["first"]["steps"]] == ["a"]
    assert [step["key"] for step in changed.sections["first"]["steps"]] == ["b"]
    assert {file.name for file in lab.files.iterdir()} == {"b", "pid-n0"}


def test_a_process_that_waits_goes_by_itself(lab: Any) -> None:
    process = psutil.Process(steady(lab))
    wait_for(lambda: gone(process), f"its end after {STAY_S} s")
    assert lab.run(first={}).status == "ok"


def test_a_process_killed_while_it_waits_costs_nothing(lab: Any) -> None:
    os.kill(steady(lab), signal.SIGKILL)
    assert lab.run(first={"entries": {"a": "1"}}).status == "ok"
    assert all(len(outcomes) == 1 for outcomes in lab.outcomes.values())


@pytest.mark.parametrize(
    "options", [{"fail": "no"}, {"leave": "thread"}, {"leave": "environment"}, {"leave": "folder"}]
)
def test_nothing_follows_a_call_that_failed_or_left_something(lab: Any, options: dict[str, str]) -> None:
    process = psutil.Process(steady(lab))
    lab.run(first={"sleep_s": 0.01, **options})
    wait_for(lambda: gone(process), "its end")
    assert lab.run(first={}).status == "ok"


def test_a_module_that_is_not_ours_has_a_process_for_each_call(lab: Any) -> None:
    pids = set()
    for _ in range(3):
        (lab.files / "pid-n0").unlink(missing_ok=True)
        assert lab.run(foreign={"sleep_s": 0.01}).status == "ok"
        pids.add((lab.files / "pid-n0").read_text())
    assert len(pids) == 3


def test_a_call_of_many_that_is_cancelled_ends_there_and_the_next_has_another_process(lab: Any) -> None:
    process = psutil.Process(steady(lab))
    (lab.files / "pid-n0").unlink()
    item = lab.submit(first={"sleep_s": 30, "entries": {"a": "1"}})
    assert lab.running_module() == process
    lab.runner.cancel(item)
    assert lab.outcome(item).status == "cancelled"
    wait_for(lambda: gone(process), "the module's end")
    assert lab.run(first={}).status == "ok"
    assert not (lab.files / "a").exists()


def test_after_many_at_once_few_wait(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({f"n{number}": {"ansible_connection": "warm_local"} for number in range(4)})
    lab.run("n0", first={})
    items = [lab.submit(f"n{number}", first={"sleep_s": 0.5}) for number in range(4)]
    assert {lab.outcome(item).status for item in items} == {"ok"}
    wait_for(lambda: len(waiting(lab)) <= MOST_WAITING, "the end of the others")
