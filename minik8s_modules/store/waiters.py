"""Threads that wait until a revision is reached, each woken once and only for its own.

A condition that everyone shares wakes all waiting writers with every event; with 16 of them that was 440 futex calls a
created object. The caller holds one lock around all methods.
"""

from __future__ import annotations

import heapq
import itertools
import threading


class Waiters:
    """Who waits for which revision, the lowest first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, threading.Lock]] = []
        self._numbers = itertools.count()

    def join(self, revision: int) -> threading.Lock:
        """Return a lock that is held until ``revision`` is reached: acquire it to wait."""
        held = threading.Lock()
        held.acquire()  # released by another thread: not a ``with``
        heapq.heappush(self._waiting, (revision, next(self._numbers), held))
        return held

    def leave(self, held: threading.Lock) -> None:
        """Forget who waited with ``held``; nothing if it was released."""
        self._waiting = [each for each in self._waiting if each[2] is not held]
        heapq.heapify(self._waiting)

    def reached(self, revision: int) -> None:
        """Release everyone who waits for ``revision`` or one before it."""
        while self._waiting and self._waiting[0][0] <= revision:
            heapq.heappop(self._waiting)[2].release()
