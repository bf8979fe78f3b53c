"""What is worked out from all objects of a kind, kept by their changes and brought up to date when it is asked.

The changes since the last question come from the watch cache's ring, so an answer never lags behind what other reads
show, and nothing is done while nobody asks. Where the ring does not reach back far enough, it is worked out again from
the list. (kube-apiserver keeps graphs, fed by informers, which lag.)
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.store.cache import CacheEvent, WatchCache
from minik8s_modules.store.errors import Expired
from minik8s_modules.store.readable import MISREAD

log = logging.getLogger(__name__)


class Following(ABC):
    """Follows ``kind``; those who derive hold ``lock`` from ``catch_up`` until they have their answer."""

    def __init__(self, cache: WatchCache, kind: Kind) -> None:
        self.lock = threading.Lock()
        self._cache, self._kind = cache, kind
        self._seen = 0
        self._changes = -1

    @abstractmethod
    def clear(self) -> None:
        """Know nothing any more."""

    @abstractmethod
    def put(self, key: str, obj: JsonObject | None) -> None:
        """Take what the object at ``key`` is now; None: it is gone."""

    def catch_up(self) -> None:
        """Take what has changed since the last time."""
        changes = self._cache.changes(self._kind.prefix)  # before the objects: what comes meanwhile is looked at again
        revision = self._cache.revision
        if changes == self._changes and revision >= self._seen:
            return
        events = self._events(revision)
        if events is None:
            self._rebuild()
        else:
            for event in events:
                self._take(event.key, None if event.type == "DELETED" else event.current.peek())
            self._seen = max(revision, events[-1].revision if events else 0)
        self._changes = changes

    def _events(self, revision: int) -> Sequence[CacheEvent] | None:
        """Return the events since the last look, None when they are not all known."""
        if revision < self._seen or self._changes < 0:  # the store went back, or nothing was looked at yet
            return None
        try:
            return self._cache.history(self._kind.prefix, self._seen)
        except Expired:
            return None

    def _take(self, key: str, obj: JsonObject | None) -> None:
        """Take an object; of one that cannot be read nothing is known."""
        try:
            self.put(key, obj)
        except MISREAD as error:
            log.error("%s is left out: %s", key, error)  # noqa: TRY400 - what is stored is wrong, not the code
            self.put(key, None)

    def _rebuild(self) -> None:
        found = self._cache.list(self._kind.prefix)
        self.clear()
        for item in found.items:
            self._take(item.key, item.peek())
        self._seen = found.revision
