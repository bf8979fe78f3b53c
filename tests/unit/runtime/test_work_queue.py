"""The promises of the work queue."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.runtime.queue import QueueShutDown, WorkQueue
from tests.support.waiting import until


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue(clock, Backoff(initial_s=1.0, maximum_s=4.0), random=lambda: 0.0)


def test_keys_come_in_order_and_once(queue):
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [queue.get(0), queue.get(0), queue.get(0)] == ["a", "b", None]


def test_a_key_added_while_a_worker_has_it_comes_back_after_done_only(queue):
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    queue.add("a")
    assert queue.get(0) is None
    queue.done("a")
    assert queue.get(0) == "a"
    queue.done("a")
    assert queue.get(0) is None


def test_a_delayed_key_comes_at_its_earliest_time(queue, clock):
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    clock.advance(4.9)
    assert queue.get(0) is None
    clock.advance(0.1)
    assert queue.get(0) == "a"
    queue.done("a")
    clock.advance(10)
    assert queue.get(0) is None


def test_a_delay_of_nothing_is_an_add(queue):
    queue.add_after("a", 0)
    assert queue.get(0) == "a"


def test_failures_delay_longer_each_time_until_forgotten(queue, clock):
    assert [queue.add_rate_limited("a") for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]
    assert queue.failures("a") == 4
    clock.advance(1.0)
    assert queue.get(0) == "a"
    queue.done("a")
    queue.forget("a")
    assert queue.add_rate_limited("a") == 1.0


@pytest.mark.parametrize("drop", [False, True])
def test_shut_down_hands_out_or_drops_what_is_ready_and_then_ends(queue, clock, drop):
    queue.add("a")
    queue.add_after("later", 1)
    queue.shut_down(drop=drop)
    queue.add("b")
    queue.add_after("c", 0)
    clock.advance(5)
    if not drop:
        assert queue.get() == "a"
        queue.done("a")
    with pytest.raises(QueueShutDown):
        queue.get()


def test_a_waiting_get_is_woken_by_add_and_by_shut_down():
    queue: WorkQueue[str] = WorkQueue()
    got = []

    def take() -> None:
        got.append(queue.get())
        with pytest.raises(QueueShutDown):
            queue.get()

    thread = threading.Thread(target=take)
    thread.start()
    queue.add("a")
    time.sleep(0.02)
    queue.shut_down()
    thread.join(60)
    assert got == ["a"]
    assert not thread.is_alive()


def test_a_delayed_key_does_not_wait_for_a_busy_worker():
    queue: WorkQueue[str] = WorkQueue()
    busy, got = threading.Event(), []

    def take() -> None:
        with contextlib.suppress(QueueShutDown):
            while key := queue.get():
                got.append(key)
                if key == "long":
                    busy.wait(120)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    queue.add_after("long", 0.05)
    queue.add_after("short", 0.1)
    until(lambda: got == ["long", "short"])  # "long" is still busy
    queue.shut_down()
    busy.set()
    for thread in threads:
        thread.join(60)


def test_no_key_is_in_two_hands_and_no_add_is_lost():
    queue: WorkQueue[int] = WorkQueue()
    lock, held, seen = threading.Lock(), set(), dict.fromkeys(range(5), 0)
    wanted = dict.fromkeys(range(5), 0)

    def work() -> None:
        while True:
            try:
                key = queue.get()
            except QueueShutDown:
                return
            assert key is not None
            with lock:
                assert key not in held
                held.add(key)
                seen[key] = wanted[key]
            time.sleep(0.0005)
            with lock:
                held.discard(key)
            queue.done(key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for count in range(1, 101):
        for key in wanted:
            wanted[key] = count
            queue.add(key)
    queue.shut_down()
    for thread in threads:
        thread.join(60)
    assert seen == wanted
