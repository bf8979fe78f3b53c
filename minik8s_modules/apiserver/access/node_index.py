"""Which objects each node's pods name: the answer to "may node N read Secret S?" without looking at the pods.

The index is brought up to date when it is asked: pods' events since the last question come from the watch cache's ring,
so it never lags behind what other reads show, and costs nothing while nobody asks. Where the ring does not reach back
far enough, it is built again from the list. (kube-apiserver keeps a graph, fed by informers, which lags.)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.pod_references import Reference, references
from minik8s_modules.store.cache import CacheEvent, WatchCache
from minik8s_modules.store.errors import Expired

_Edge = tuple[str, str, Reference]
"""Node, namespace and what a pod of that node names there."""


class NodeIndex:
    """Thread-safe."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._edges: dict[str, frozenset[_Edge]] = {}
        self._counts: Counter[_Edge] = Counter()
        self._seen = 0
        self._changes = -1

    def names(self, node: str, space: str, wanted: Reference) -> bool:
        """Return whether a pod of ``node`` in the namespace ``space`` names ``wanted``."""
        with self._lock:
            self._catch_up()
            return self._counts[node, space, wanted] > 0

    def _catch_up(self) -> None:
        changes = self._cache.changes(POD.prefix)  # before the objects: what comes meanwhile is looked at again
        revision = self._cache.revision
        if changes == self._changes and revision >= self._seen:
            return
        events = self._events(revision)
        if events is None:
            self._rebuild()
        else:
            for event in events:
                self._put(event.key, None if event.type == "DELETED" else event.current.object)
            self._seen = max(revision, events[-1].revision if events else 0)
        self._changes = changes

    def _events(self, revision: int) -> Sequence[CacheEvent] | None:
        """Return the pods' events since the last look, None when they are not all known."""
        if revision < self._seen or self._changes < 0:  # the store went back, or nothing was looked at yet
            return None
        try:
            return self._cache.history(POD.prefix, self._seen)
        except Expired:
            return None

    def _rebuild(self) -> None:
        found = self._cache.list(POD.prefix)
        self._edges.clear()
        self._counts.clear()
        for item in found.items:
            self._put(item.key, item.object)
        self._seen = found.revision

    def _put(self, key: str, pod: JsonObject | None) -> None:
        after = _edges(pod) if pod is not None else frozenset()
        before = self._edges.pop(key, frozenset())
        if after:
            self._edges[key] = after
        for edge in before - after:
            self._counts[edge] -= 1
            if not self._counts[edge]:
                del self._counts[edge]
        for edge in after - before:
            self._counts[edge] += 1


def _edges(pod: JsonObject) -> frozenset[_Edge]:
    # a node makes the mirrors of its static pods itself, and those take nothing from the API
    node = "" if is_mirror(pod) else str(spec(pod).get("nodeName") or "")
    return frozenset((node, namespace(pod), one) for one in references(pod)) if node else frozenset()
