"""Threads and errands that wait until a revision is reached, each woken once and only for its own.

A condition that everyone shares wakes all waiting writers with every event; with 16 of them that was 440 futex calls a
created object. The caller holds one lock around all methods.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from minik8s_modules.base import errands
from minik8s_modules.base.errands import Pause


class _Blocked:
    """Where a thread waits; as ``Pause``."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()  # released by another thread: not a ``with``

    def wait(self, timeout_s: float) -> bool:
        return self._held.acquire(timeout=timeout_s)

    def end(self) -> None:
        self._held.release()


Waiter = Pause | _Blocked


class Waiters:
    """Who waits for which revision, the lowest first; ``on_join`` is called with each one that begins to."""

    def __init__(self, on_join: Callable[[], None] = lambda: None) -> None:
        self._on_join = on_join
        self._waiting: list[tuple[int, int, Waiter]] = []
        self._numbers = itertools.count()

    @property
    def some(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def join(self, revision: int) -> Waiter:
        """Return where to wait until ``revision`` is reached."""
        here = errands.current()
        waiter: Waiter = _Blocked() if here is None else Pause(here)
        self._on_join()
        heapq.heappush(self._waiting, (revision, next(self._numbers), waiter))
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Forget who waited there; nothing if it was told."""
        self._waiting = [each for each in self._waiting if each[2] is not waiter]
        heapq.heapify(self._waiting)

    def reached(self, revision: int) -> None:
        """Tell everyone who waits for ``revision`` or one before it."""
        while self._waiting and self._waiting[0][0] <= revision:
            heapq.heappop(self._waiting)[2].end()
