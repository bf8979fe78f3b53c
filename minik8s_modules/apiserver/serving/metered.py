"""A Store that tells how long another one takes: etcd_request_duration_seconds by operation and outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.errors import StoreError, StoreUnavailable
from minik8s_modules.store.interface import Entry, Page, Put, Store, Watch

T = TypeVar("T")


class MeteredStore:
    """``store`` with its calls timed; see store/interface.py for what they mean."""

    def __init__(self, store: Store, metrics: Registry) -> None:
        self._store = store
        self._latency = metrics.histogram(
            "etcd_request_duration_seconds", "Time of the store's answers.", ("operation", "outcome")
        )

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
            self._latency.labels(operation, outcome).observe(time.perf_counter() - began)
