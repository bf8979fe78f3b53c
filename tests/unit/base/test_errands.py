"""Errands: they wait without their loop, each is told once, and none keeps what others need."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

import pytest
from greenlet import getcurrent

from minik8s_modules.base import errands
from minik8s_modules.base.errands import Late, Pause
from tests.support.looped import Looped
from tests.support.waiting import until


@pytest.fixture
def loop() -> Iterator[Looped]:
    made = Looped()
    yield made
    made.close()


def waits(loop: Looped, pauses: dict[str, Pause], name: str, timeout_s: float = 60.0) -> None:
    """Begin an errand that waits."""

    def work() -> bool:
        pauses[name] = Pause(loop.errands)
        return pauses[name].wait(timeout_s)

    loop.begin(name, work)


def test_the_loop_goes_on_while_errands_wait_and_each_goes_on_where_it_was(loop: Looped):
    pauses: dict[str, Pause] = {}
    for name in ("a", "b", "c"):
        waits(loop, pauses, name)
    assert list(pauses) == ["a", "b", "c"]
    assert not loop.ended
    for name in ("b", "c"):
        pauses[name].end()
    loop.turn()
    assert loop.ended == ["b", "c"]
    pauses["a"].end()
    loop.turn()
    assert loop.results == {"a": True, "b": True, "c": True}


def test_what_was_told_before_the_errand_waits_is_not_waited_for(loop: Looped):
    def work() -> bool:
        pause = Pause(loop.errands)
        pause.end()
        return pause.wait(60)

    loop.begin("a", work)
    assert loop.results == {"a": True}
    loop.turn()
    assert loop.ended == ["a"]


def test_another_thread_wakes_the_loop_once_for_all_that_it_tells(loop: Looped):
    pauses: dict[str, Pause] = {}
    for name in ("a", "b"):
        waits(loop, pauses, name)
    thread = threading.Thread(target=lambda: [each.end() for each in pauses.values()])
    thread.start()
    thread.join()
    assert loop.wakes == 1
    loop.turn(60)
    assert loop.results == {"a": True, "b": True}
    waits(loop, pauses, "c")
    thread = threading.Thread(target=pauses["c"].end)
    thread.start()
    thread.join()
    assert loop.wakes == 2


def test_an_errand_goes_on_when_its_time_is_up_and_only_then(loop: Looped):
    pauses: dict[str, Pause] = {}
    waits(loop, pauses, "short", 0.01)
    waits(loop, pauses, "long")
    loop.until(lambda: loop.ended)
    assert loop.results == {"short": False}
    assert not pauses["short"].end()


def test_who_ends_a_pause_first_decides_also_when_many_do_at_once(loop: Looped):
    for _ in range(50):
        pauses: dict[str, Pause] = {}
        waits(loop, pauses, "a")
        told: list[tuple[bool, bool]] = []
        together = threading.Barrier(4)

        def end(*, came: bool) -> None:
            together.wait()  # noqa: B023 - the threads end within the round
            told.append((pauses["a"].end(came=came), came))  # noqa: B023

        threads = [threading.Thread(target=end, kwargs={"came": number % 2 == 0}) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        loop.until(lambda: "a" in loop.results)
        assert [came for first, came in told if first] == [loop.results.pop("a")]


def test_what_would_block_is_done_by_a_thread_and_its_outcome_is_the_errands(loop: Looped):
    go = threading.Event()

    def slow() -> int:
        assert errands.current() is None
        go.wait(60)
        return threading.get_ident()

    def fails() -> int:
        raise KeyError("gone")

    loop.begin("slow", lambda: loop.errands.elsewhere(slow, 60))
    loop.begin("fails", lambda: loop.errands.elsewhere(fails, 60))
    loop.until(lambda: "fails" in loop.results)
    assert isinstance(loop.results["fails"], KeyError)
    assert "slow" not in loop.results
    go.set()
    loop.until(lambda: "slow" in loop.results)
    assert loop.results["slow"] != threading.get_ident()


def test_what_takes_too_long_elsewhere_is_late_and_undone(loop: Looped):
    go = threading.Event()
    undone: list[str] = []

    def slow() -> str:
        go.wait(60)
        return "made"

    loop.begin("a", lambda: loop.errands.elsewhere(slow, 0.01, undone.append))
    loop.until(lambda: loop.ended)
    assert isinstance(loop.results["a"], Late)
    assert not undone
    go.set()
    until(lambda: undone == ["made"])


def test_a_lock_that_another_has_is_waited_for_without_the_loop(loop: Looped):
    lock, pauses = threading.Lock(), dict[str, Pause]()

    def holds() -> str:
        with errands.held(lock, 60):
            pauses["first"] = Pause(loop.errands)
            pauses["first"].wait(60)
        return "had it"

    def wants() -> bool:
        with errands.held(lock, 60):
            return "first" in loop.results

    loop.begin("first", holds)
    loop.begin("second", wants)
    waits(loop, pauses, "another")
    pauses["another"].end()
    loop.until(lambda: loop.ended == ["another"])
    pauses["first"].end()
    loop.until(lambda: "second" in loop.results)
    assert loop.results["second"] is True
    assert not lock.locked()


@pytest.mark.parametrize("ends", ["its time", "the loop"])
def test_a_lock_that_comes_too_late_is_given_back(loop: Looped, monkeypatch: pytest.MonkeyPatch, ends: str):
    lock = threading.Lock()
    lock.acquire()

    def wants() -> None:
        with errands.held(lock, 60):
            raise AssertionError("nobody may have it")

    loop.begin("a", wants)
    assert not loop.ended
    if ends == "the loop":
        loop.errands.end()
    else:  # two minutes from now
        now_s = time.monotonic() + 121
        with monkeypatch.context() as later:
            later.setattr("time.monotonic", lambda: now_s)
            loop.errands.end_late()
        loop.errands.end_turn()
    assert isinstance(loop.results["a"], Late)
    lock.release()  # a thread of the errand still waits for it

    def free() -> bool:
        got = lock.acquire(blocking=False)
        if got:
            lock.release()
        return got and not [each for each in threading.enumerate() if each.name == "elsewhere"]

    until(free)


def test_a_loop_that_ends_lets_each_errand_end_and_none_wait_again(loop: Looped):
    tries: list[int] = []
    released = threading.Event()

    def stubborn() -> int:
        while len(tries) < 100:
            tries.append(Pause(loop.errands).wait(60))
        return len(tries)

    loop.begin("a", stubborn)
    loop.begin("b", lambda: loop.errands.elsewhere(lambda: released.wait(60), 60))
    loop.errands.end()
    released.set()
    assert sorted(loop.ended) == ["a", "b"]
    assert tries == [False] * 100
    assert isinstance(loop.results["b"], Late)
    loop.begin("c", lambda: loop.errands.elsewhere(lambda: 1, 60))
    assert isinstance(loop.results["c"], Late)


def test_a_defect_ends_its_errand_and_neither_the_loop_nor_others(loop: Looped, caplog: pytest.LogCaptureFixture):
    pauses: dict[str, Pause] = {}
    ended = []
    waits(loop, pauses, "a")

    def fails() -> None:
        pauses["b"] = Pause(loop.errands)
        pauses["b"].wait(60)
        raise RuntimeError("a defect")

    loop.errands.run(fails, lambda: ended.append("b"))
    pauses["b"].end()
    loop.turn()
    assert ended == ["b"]
    assert "a defect" in caplog.text
    pauses["a"].end()
    loop.turn()
    assert loop.results == {"a": True}


def test_what_one_request_sets_in_a_context_is_not_there_for_the_next(loop: Looped):
    user = ContextVar("user", default="nobody")
    loop.begin("a", lambda: user.set("alice"))
    loop.begin("b", user.get)
    assert loop.results["b"] == "nobody"


def test_errands_that_have_ended_do_what_comes_next_and_those_that_wait_do_not(loop: Looped):
    pauses: dict[str, Pause] = {}
    waits(loop, pauses, "waits")
    seen = []
    for _ in range(3):
        loop.begin("next", lambda: seen.append(getcurrent()))
    assert len({*seen}) == 1
    pauses["waits"].end()
    loop.turn()
    assert loop.results["waits"] is True
    loop.begin("fails", lambda: 1 // 0)
    loop.begin("last", lambda: 1)
    assert loop.results["last"] == 1
    assert loop.ended == [*["next"] * 3, "waits", "fails", "last"]


def test_few_errands_are_kept_and_none_when_the_loop_has_ended(loop: Looped):
    pauses: dict[str, Pause] = {}
    greenlets = []

    def work(name: str) -> None:
        greenlets.append(getcurrent())
        pauses[name] = Pause(loop.errands)
        pauses[name].wait(60)

    for number in range(40):
        loop.begin(str(number), partial(work, str(number)))
    for each in pauses.values():
        each.end()
    loop.turn()
    assert len(loop.ended) == 40
    assert [each.dead for each in greenlets].count(False) == errands._KEPT
    loop.errands.end()
    assert all(each.dead for each in greenlets)


def test_who_holds_the_loop_for_long_is_told_of(
    loop: Looped, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])  # on a busy machine nothing is short

    def compute() -> None:
        now_s[0] += errands.LONG_S + 0.01

    caplog.set_level(logging.WARNING)
    loop.begin("short", lambda: None)
    assert not caplog.records
    for name in ("long", "again"):
        loop.begin(name, compute)
    (record,) = caplog.records  # once a minute
    assert "the event loop was held" in record.getMessage()
