"""What a work queue tells of itself, under the names client-go gives it (``util/workqueue/metrics.go``).

One ``QueueMetrics`` a process holds the families; each queue counts into them by its name. Called under the queue's
lock, so nothing here waits.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.metrics import Registry


class QueueCounts(Protocol):
    """What a queue calls; ``now_s`` is its clock's monotonic time."""

    def added(self, key: Hashable, now_s: float) -> None:
        """Note that ``key`` waits now."""

    def taken(self, key: Hashable, now_s: float) -> None:
        """Note that a worker has ``key``."""

    def done(self, key: Hashable, now_s: float) -> None:
        """Note that the worker has given ``key`` back."""

    def retried(self) -> None:
        """Note that a key failed."""


class _Uncounted:
    """Counts nothing."""

    def added(self, key: Hashable, now_s: float) -> None:
        """Do nothing."""

    def taken(self, key: Hashable, now_s: float) -> None:
        """Do nothing."""

    def done(self, key: Hashable, now_s: float) -> None:
        """Do nothing."""

    def retried(self) -> None:
        """Do nothing."""


UNCOUNTED: QueueCounts = _Uncounted()


class QueueMetrics:
    """The families ``workqueue_*`` of one process."""

    def __init__(self, registry: Registry, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._queues: dict[str, _Counts] = {}
        label = ("name",)
        self.adds = registry.counter("workqueue_adds_total", "Keys queued.", label)
        self.retries = registry.counter("workqueue_retries_total", "Keys queued again after a failure.", label)
        self.waiting_s = registry.histogram("workqueue_queue_duration_seconds", "Time a key waited.", label)
        self.working_s = registry.histogram("workqueue_work_duration_seconds", "Time a key was worked on.", label)
        registry.gauge("workqueue_depth", "Keys that wait.", label, lambda: self._read(_Counts.depth))
        registry.gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work under way.",
            label,
            lambda: self._read(lambda counts: counts.unfinished_s(self._clock.monotonic())),
        )
        registry.gauge(
            "workqueue_longest_running_processor_seconds",
            "The longest work under way.",
            label,
            lambda: self._read(lambda counts: counts.longest_s(self._clock.monotonic())),
        )

    def queue(self, name: str) -> QueueCounts:
        """Return the counts of the queue ``name``; a queue that starts over under the name goes on counting."""
        self._queues[name] = _Counts(self, name)
        return self._queues[name]

    def _read(self, value: _Reading) -> dict[tuple[str, ...], float]:
        return {(name,): value(counts) for name, counts in self._queues.copy().items()}


class _Reading(Protocol):
    def __call__(self, counts: _Counts, /) -> float:
        """Return a value of one queue."""


class _Counts:
    def __init__(self, metrics: QueueMetrics, name: str) -> None:
        self._adds, self._retries = metrics.adds.labels(name), metrics.retries.labels(name)
        self._waited_s, self._worked_s = metrics.waiting_s.labels(name), metrics.working_s.labels(name)
        self._waiting: dict[Hashable, float] = {}
        self._working: dict[Hashable, float] = {}

    def added(self, key: Hashable, now_s: float) -> None:
        self._adds.inc()
        self._waiting.setdefault(key, now_s)

    def taken(self, key: Hashable, now_s: float) -> None:
        self._waited_s.observe(now_s - self._waiting.pop(key, now_s))
        self._working[key] = now_s

    def done(self, key: Hashable, now_s: float) -> None:
        self._worked_s.observe(now_s - self._working.pop(key, now_s))

    def retried(self) -> None:
        self._retries.inc()

    def depth(self) -> float:
        return float(len(self._waiting))

    def unfinished_s(self, now_s: float) -> float:
        return sum((now_s - since for since in self._working.copy().values()), 0.0)

    def longest_s(self, now_s: float) -> float:
        return max((now_s - since for since in self._working.copy().values()), default=0.0)
