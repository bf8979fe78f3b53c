"""A Store that tells how long another one takes: etcd_request_duration_seconds by operation and outcome.

``slowness`` says in words when its answers of the last minute take too long.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.errors import StoreError, StoreUnavailable
from minik8s_modules.store.interface import Entry, Page, Put, Store, Watch

T = TypeVar("T")
WINDOW_S = 60.0
_MOST = 1000
_LEAST = 20
"""Of fewer answers no percentile is told; an idle cluster renews its Leases about twice a second."""
SLOW_S = 0.5
"""Kubernetes promises 99 of 100 calls within 1 s, and most calls wait for etcd at least once; a healthy etcd needs
under 0.025 s for a commit. Sources: sig-scalability/slos/api_call_latency.md; etcd.io/docs/v3.5/faq."""


def slowness(answers_s: Sequence[float]) -> str:
    """Return in words that 99 of 100 answers do not come within ``SLOW_S``, "" where they do or are too few."""
    if len(answers_s) < _LEAST:
        return ""
    ordered = sorted(answers_s)
    worst_s, median_s = ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[len(ordered) // 2]
    if worst_s <= SLOW_S:
        return ""
    late = sum(each > SLOW_S for each in ordered)
    took = f"{late} of its {len(ordered)} answers of the last minute took longer than {SLOW_S:g} s"
    return f"slow: {took} (median {median_s:.3f} s, 99th percentile {worst_s:.1f} s)"


class MeteredStore:
    """``store`` with its calls timed; see store/interface.py for what they mean."""

    def __init__(self, store: Store, metrics: Registry) -> None:
        self._store = store
        self._latency = metrics.histogram(
            "etcd_request_duration_seconds", "Time of the store's answers.", ("operation", "outcome")
        )
        self._recent: deque[tuple[float, float]] = deque(maxlen=_MOST)

    def slowness(self) -> str:
        """Return in words that the store has been slow in the last minute, "" where it has not."""
        since = time.perf_counter() - WINDOW_S
        return slowness([took_s for ended, took_s in list(self._recent) if ended >= since])

    def get(self, key: str) -> Entry | None:
        """Return the latest state of ``key``, or None."""
        return self._timed("get", lambda: self._store.get(key))

    def range(self, prefix: str, *, limit: int = 0, start: str = "", revision: int = 0) -> Page:
        """Return a page of the entries below ``prefix``."""
        return self._timed("range", lambda: self._store.range(prefix, limit=limit, start=start, revision=revision))

    def create(self, key: str, value: bytes) -> int:
        """Write a new key."""
        return self._timed("create", lambda: self._store.create(key, value))

    def update(self, key: str, value: bytes, expected: int) -> int:
        """Replace a value by compare-and-swap."""
        return self._timed("update", lambda: self._store.update(key, value, expected))

    def write(self, puts: Sequence[Put]) -> int:
        """Write several keys by compare-and-swap, all or none."""
        return self._timed("write", lambda: self._store.write(puts))

    def delete(self, key: str, expected: int) -> int:
        """Remove a key by compare-and-swap."""
        return self._timed("delete", lambda: self._store.delete(key, expected))

    def watch(self, prefix: str, after: int) -> Watch:
        """Return the changes after a revision; not timed, it has no end."""
        return self._store.watch(prefix, after)

    def revision(self) -> int:
        """Return the store's latest revision."""
        return self._timed("revision", self._store.revision)

    def compact(self, revision: int) -> None:
        """Forget history before ``revision``."""
        self._timed("compact", lambda: self._store.compact(revision))

    def close(self) -> None:
        """Let go of connections."""
        self._store.close()

    def _timed(self, operation: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        outcome = "ok"
        try:
            return call()
        except StoreUnavailable:
            outcome = "unavailable"
            raise
        except StoreError:
            outcome = "refused"
            raise
        finally:
            ended = time.perf_counter()
            self._latency.labels(operation, outcome).observe(ended - began)
            self._recent.append((ended, ended - began))
