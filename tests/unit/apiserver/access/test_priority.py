"""Seats for kinds of requests: bounds, turns, and which request is of which kind."""

from __future__ import annotations

import threading
import time

import pytest

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.apiserver.access.priority import LEVELS, LISTS, READS, SYSTEM, WRITES, Priority, Seats, level_of
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.http.target import parse
from minik8s_modules.base.metrics import Registry

PODS, WEB = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/web"
JANE, ADMIN = User("jane", ()), User("admin", (MASTERS,))


@pytest.mark.parametrize(
    ("user", "verb", "path", "level"),
    [
        (JANE, "list", PODS, LISTS),
        (ADMIN, "list", PODS, LISTS),
        (ADMIN, "create", PODS, SYSTEM),
        (JANE, "create", PODS, WRITES),
        (JANE, "patch", f"{WEB}/status", WRITES),
        (JANE, "get", WEB, READS),
        (JANE, "get", f"{WEB}/log", ""),
        (JANE, "deletecollection", PODS, WRITES),
        (User("system:kube-scheduler", ()), "list", PODS, SYSTEM),
        (User("system:minik8s:reconciler", ()), "patch", f"{WEB}/status", SYSTEM),
        (User("system:node:n1", ("system:nodes",)), "list", PODS, SYSTEM),
        (User("system:serviceaccount:a:b", ()), "list", PODS, LISTS),
        (JANE, "create", "/apis/minik8s.io/v1/plans", ""),
    ],
)
def test_the_level_of_a_request(user: User, verb: str, path: str, level: str):
    target = parse(path)
    assert target is not None
    assert level_of(user, verb, target, lists_first=False) == level


def test_a_watch_needs_a_seat_when_it_lists_first():
    target = parse(PODS)
    assert target is not None
    assert level_of(JANE, "watch", target, lists_first=True) == LISTS
    assert level_of(JANE, "watch", target, lists_first=False) == ""


def test_the_queues_leave_threads_to_the_system():
    threads = 128
    assert sum(level.seats + level.queue * threads for level in LEVELS.values()) < threads


def eventually(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert holds()


class Waiting:
    """Takes a seat in a thread of its own and keeps the order in which seats came."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self.order: list[str] = []
        self.threads: list[threading.Thread] = []

    def take(self, flow: str, label: str) -> None:
        """Wait in line; returns once the waiter stands in it."""
        before = self._seats.waiting
        thread = threading.Thread(target=self._take, args=(flow, label))
        thread.start()
        self.threads.append(thread)
        eventually(lambda: self._seats.waiting == before + 1)

    def _take(self, flow: str, label: str) -> None:
        if not self._seats.take(flow):
            self.order.append(label)
            self._seats.give_back()


def test_users_take_turns():
    seats = Seats(1, 20, 60.0)
    assert seats.take("flood") == ""
    line = Waiting(seats)
    for number in range(4):
        line.take("flood", f"flood-{number}")
    line.take("jane", "jane")
    seats.give_back()
    for thread in line.threads:
        thread.join()
    assert line.order == ["flood-0", "jane", "flood-1", "flood-2", "flood-3"]
    assert seats.waiting == 0
    assert seats.take("x") == "", "the seat came back"


def test_a_full_queue_refuses_at_once_and_no_user_fills_it():
    seats = Seats(1, 4, 60.0)
    seats.take("a")
    line = Waiting(seats)
    line.take("flood", "1")
    line.take("flood", "2")
    assert seats.take("flood") == "queue-full", "half of the queue is one user's"
    line.take("jane", "3")
    line.take("joe", "4")
    assert seats.take("ann") == "queue-full"
    seats.give_back()
    for thread in line.threads:
        thread.join()


def test_who_waits_too_long_is_told_and_loses_no_seat():
    seats = Seats(1, 4, 0.01)
    seats.take("a")
    assert seats.take("b") == "time-out"
    seats.give_back()
    assert seats.take("c") == ""


def test_refusals_are_429_and_counted():
    metrics = Registry()
    priority = Priority(4, metrics)
    seats = LEVELS[LISTS].seats
    held = [priority.seat(LISTS, JANE) for _ in range(seats)]
    for each in held:
        each.__enter__()
    with priority.seat(WRITES, JANE), priority.seat("", JANE), priority.seat(SYSTEM, JANE):
        pass
    blocker = threading.Thread(target=lambda: priority.seat(LISTS, ADMIN).__enter__())
    blocker.start()
    eventually(lambda: 'current_inqueue_requests{priority_level="lists"} 1' in metrics.text())
    with pytest.raises(TooManyRequests) as refused, priority.seat(LISTS, JANE):
        pass
    assert refused.value.retry_after_s == 1
    assert 'rejected_requests_total{priority_level="lists",reason="queue-full"} 1' in metrics.text()
    held[0].__exit__(None, None, None)
    blocker.join()


def test_an_error_gives_the_seat_back():
    priority = Priority(0, Registry())
    for _ in range(LEVELS[LISTS].seats + 1):
        with pytest.raises(ZeroDivisionError), priority.seat(LISTS, JANE):
            raise ZeroDivisionError
