"""API priority and fairness, small: seats for kinds of requests, so that no flood of one kind starves the others.

One Python process answers everything, so what is scarce is its time: a list of thousands of objects takes as much of it
as a hundred writes. Each level of ``LEVELS`` has seats, and a bounded queue for those that find none free; who finds
the queue full, or waits too long, is told to come back (429 with Retry-After, which clients obey by themselves). In a
queue users take turns, so one user's flood delays the others' requests by one of his at most.

A seat is held while an answer is made, not while it is sent. Watches are handed over once they have begun, and streams
(logs, exec) and plans wait for others most of the time; only the beginning of a watch that lists first needs a seat.
Kubernetes: ``apiserver/pkg/util/flowcontrol``; metrics are named as there.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.api.kinds import PLAN
from minik8s_modules.apiserver.access.node_access import NODES
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import account_of, is_daemon
from minik8s_modules.base.metrics import Registry

SYSTEM, LISTS, WRITES, READS = "system", "lists", "writes", "reads"
_STREAMS = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
RETRY_AFTER_S = 1
AT_ONCE = "minik8s.at-once"
"""The key of a WSGI environment whose request the intake itself answers.

One at a time computes there, so none needs a seat.
"""


class Level(NamedTuple):
    """How many requests of a kind are worked on at once, and how many of the server's threads may wait for that.

    ``queue`` is a share of the threads; no user has more than half of the queue. ``wait_s`` is below a request's
    deadline (intake.REQUEST_S).
    """

    seats: int
    queue: float
    wait_s: float


# One list at a time, because lists only compute: 64 clients that list 2,000 objects without pause got 131 answers a
# second with one seat, 84 with two and 149 without bounds, while a write took 59, 99 and 430 ms (p99 147, 547, 2,398).
# The shares leave an eighth of the threads to the system level, which has no seats of its own: it is never queued
LEVELS: Mapping[str, Level] = {
    LISTS: Level(seats=1, queue=0.25, wait_s=10.0),
    WRITES: Level(seats=16, queue=0.25, wait_s=15.0),
    READS: Level(seats=16, queue=0.125, wait_s=15.0),
}


def level_of(user: User, verb: str, target: Target, *, lists_first: bool) -> str:
    """Return the level of a request, "" for one that needs no seat.

    Args:
        user: who asks.
        verb: the API verb.
        target: what is asked for.
        lists_first: whether a watch begins with all objects.
    """
    if target.kind is PLAN or target.subresource in _STREAMS or (verb == "watch" and not lists_first):
        return ""
    if target.kind.converted:  # who waits for a converter holds no seat that others need
        return ""
    if is_daemon(user) or NODES in user.groups:
        return SYSTEM
    if verb in {"list", "watch"}:
        return LISTS
    if MASTERS in user.groups:
        return SYSTEM
    return WRITES if verb in _WRITES else READS


class _Waiter:
    """One request in a queue."""

    def __init__(self) -> None:
        self.turn = threading.Event()
        self.seated = False


class Seats:
    """The seats of one level and those who wait for them, in turns between users."""

    def __init__(self, seats: int, queue: int, wait_s: float) -> None:
        self._free = seats
        self._queue = queue
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._flows: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self.waiting = 0

    def take(self, flow: str) -> str:
        """Take a seat for ``flow``, waiting for one if need be; return "" or why there is none."""
        with self._lock:
            if self._free:
                self._free -= 1
                return ""
            line = self._flows.get(flow, ())
            if self.waiting >= self._queue or len(line) >= max(1, self._queue // 2):
                return "queue-full"
            waiter = _Waiter()
            self._flows.setdefault(flow, deque()).append(waiter)
            self.waiting += 1
        waiter.turn.wait(self._wait_s)
        with self._lock:
            if waiter.seated:
                return ""
            self._forget(flow, waiter)
            return "time-out"

    def give_back(self) -> None:
        """Give a seat to the next user in turn, or back."""
        with self._lock:
            if not self._flows:
                self._free += 1
                return
            flow, line = next(iter(self._flows.items()))
            waiter = line[0]
            self._forget(flow, waiter)
            if line:
                self._flows.move_to_end(flow)
            waiter.seated = True
            waiter.turn.set()

    def _forget(self, flow: str, waiter: _Waiter) -> None:
        line = self._flows[flow]
        line.remove(waiter)
        self.waiting -= 1
        if not line:
            del self._flows[flow]


class Priority:
    """The levels of one server.

    Args:
        threads: how many the server has; queues are shares of them.
        metrics: gets the figures.
        workers: how many share the seats.
    """

    def __init__(self, threads: int, metrics: Registry, workers: int = 1) -> None:
        self._seats = {
            name: Seats(max(1, level.seats // workers), int(level.queue * threads), level.wait_s)
            for name, level in LEVELS.items()
        }
        prefix, labels = "apiserver_flowcontrol", ("priority_level",)
        self._rejected = metrics.counter(
            f"{prefix}_rejected_requests_total", "Requests told to come back later.", (*labels, "reason")
        )
        self._waited = metrics.histogram(f"{prefix}_request_wait_duration_seconds", "Time in a queue.", labels)
        metrics.gauge(f"{prefix}_current_inqueue_requests", "Requests that wait for a seat.", labels, self._queued)

    def _queued(self) -> dict[tuple[str, ...], float]:
        return {(name,): float(seats.waiting) for name, seats in self._seats.items()}

    @contextmanager
    def seat(self, level: str, user: User) -> Iterator[None]:
        """Hold a seat of ``level``; the levels without seats let everybody through.

        Raises:
            TooManyRequests: there is none, and no place in the queue, or none came in time.
        """
        seats = self._seats.get(level)
        if seats is None:
            yield
            return
        began = time.monotonic()
        why = seats.take(account_of(user).name)
        if why:
            self._rejected.labels(level, why).inc()
            raise TooManyRequests(retry_after_s=RETRY_AFTER_S)
        self._waited.labels(level).observe(time.monotonic() - began)
        try:
            yield
        finally:
            seats.give_back()
