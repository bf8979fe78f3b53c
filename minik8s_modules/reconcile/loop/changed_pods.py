"""Which pods of a node have changed since it was last decided about."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class ChangedPods:
    """UIDs by node; thread-safe.

    Handlers run inside informers' locks, and deciding reads informers: handlers take only this lock, which nobody holds
    while calling anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uids: dict[str, set[str]] = {}

    def add(self, node: str, uids: Iterable[str]) -> None:
        """Note pods of a node."""
        with self._lock:
            self._uids.setdefault(node, set()).update(uids)

    def take(self, node: str) -> set[str]:
        """Return what was noted of a node since the last call."""
        with self._lock:
            return self._uids.pop(node, set())
