"""A work queue with the promises of client-go's workqueue (``client-go/util/workqueue/queue.go``).

A key is in at most one worker's hands. Added again before it was taken, it is one entry; added while a
worker has it, it is *dirty* and comes back after ``done``. So handlers may add as often as they like, and
no change is missed.

    add ─▶ dirty + ready ─get─▶ processing ─done─▶ ready again if dirty, else gone
    add_after ─▶ heap of due times ─(due)─▶ add

A queue with a name counts itself under Kubernetes' ``workqueue_*`` names (``queue_metrics.py``).
"""

from __future__ import annotations

import heapq
import itertools
import random as random_module
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.runtime.queue_metrics import UNCOUNTED, QueueCounts

_JITTER = 0.25
Key = TypeVar("Key", bound=Hashable)

# 5 ms as client-go's per-item limiter (default_rate_limiters.go); capped at 30 s instead of 1000 s, so that
# nothing stays broken for a quarter of an hour after its cause is gone
FAILURES = Backoff(initial_s=0.005, maximum_s=30.0)


class QueueShutDown(Minik8sError):
    """``get`` on a queue that was shut down and is empty."""


class WorkQueue(Generic[Key]):
    """Keys to work on; thread-safe.

    Args:
        clock: tells when delayed keys are due.
        backoff: of keys that failed; a quarter more at most is added by ``random``, so that what failed together does
            not come back together.
        random: returns a number in [0, 1).
        counts: counts and times what happens to keys.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        backoff: Backoff = FAILURES,
        random: Callable[[], float] = random_module.random,
        counts: QueueCounts = UNCOUNTED,
    ) -> None:
        self._random = random
        self._counts = counts
        self._clock = clock or SystemClock()
        self._backoff = backoff
        self._changed = threading.Condition()
        self._ready: deque[Key] = deque()
        self._dirty: set[Key] = set()
        self._processing: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._ticket = itertools.count()
        self._failures: dict[Key, int] = {}
        self._down = False

    def add(self, key: Key) -> None:
        """Queue ``key`` unless it is waiting already; after ``shut_down`` nothing is queued."""
        with self._changed:
            self._add(key)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Queue ``key`` in ``delay_s`` seconds; of several delays of one key the earliest counts."""
        with self._changed:
            if self._down:
                return
            if delay_s <= 0:
                self._add(key)
                return
            due = self._clock.monotonic() + delay_s
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._heap, (due, next(self._ticket), key))
                self._changed.notify()

    def add_rate_limited(self, key: Key) -> float:
        """Queue ``key`` after a back-off that grows with each call until ``forget``; return its seconds."""
        with self._changed:
            self._failures[key] = self._failures.get(key, 0) + 1
            delay_s = self._backoff.delay_s(self._failures[key]) * (1.0 + _JITTER * self._random())
            self._counts.retried()
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: Key) -> None:
        """Start ``key``'s back-off over; call it after a success."""
        with self._changed:
            self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """Return how often ``key`` was added rate-limited since it was last forgotten."""
        with self._changed:
            return self._failures.get(key, 0)

    def get(self, timeout_s: float | None = None) -> Key | None:
        """Return the next key, or None when none came within ``timeout_s``; call ``done`` with it afterwards.

        Raises:
            QueueShutDown: the queue was shut down and holds nothing more.
        """
        with self._changed:
            end = None if timeout_s is None else self._clock.monotonic() + timeout_s
            while not self._take_due():
                if self._down:
                    raise QueueShutDown("the work queue was shut down")
                wait_s = self._wait_s(end)
                if wait_s is not None and wait_s <= 0:
                    return None
                self._changed.wait(wait_s)
            key = self._ready.popleft()
            self._counts.taken(key, self._clock.monotonic())
            self._processing.add(key)
            self._dirty.discard(key)
            if self._ready or self._heap:
                # hand the watch over the heap on: the next delayed key must not wait for this worker to
                # come back
                self._changed.notify()
            return key

    def done(self, key: Key) -> None:
        """Give ``key`` back; if it was added meanwhile, it is ready again."""
        with self._changed:
            self._processing.discard(key)
            self._counts.done(key, self._clock.monotonic())
            if key in self._dirty:
                self._ready.append(key)
                self._changed.notify()

    def shut_down(self, *, drop: bool = False) -> None:
        """Take no more keys, drop the delayed ones; ``get`` raises once the ready ones are handed out, or dropped."""
        with self._changed:
            self._down = True
            if drop:
                self._ready.clear()
            self._heap.clear()
            self._due.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return how many keys are ready."""
        with self._changed:
            return len(self._ready)

    def _add(self, key: Key) -> None:
        if self._down or key in self._dirty:
            return
        self._dirty.add(key)
        self._counts.added(key, self._clock.monotonic())
        if key not in self._processing:
            self._ready.append(key)
            self._changed.notify()

    def _take_due(self) -> bool:
        """Move the keys whose time has come to the ready ones; return whether any is ready."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
        return bool(self._ready)

    def _wait_s(self, end: float | None) -> float | None:
        """Return the seconds until the next delayed key or ``end``: None for no limit, 0 when it has come."""
        now = self._clock.monotonic()
        if end is not None and end <= now:
            return 0.0
        times = [time for time in (end, self._heap[0][0] if self._heap else None) if time is not None]
        # at least a microsecond, so that a due time rounded onto now is not taken for the end
        return max(min(times) - now, 1e-6) if times else None
