"""Which objects each node's pods name: the answer to "may node N read Secret S?" without looking at the pods."""

from __future__ import annotations

from collections import Counter

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP, POD
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.pod_references import Reference, references
from minik8s_modules.api.pods.slurm import RESULTS_TO
from minik8s_modules.apiserver.access.following import Following
from minik8s_modules.store.cache import WatchCache

RESULTS = "results"
"""Stands for a ConfigMap that a pod has its results copied to."""
_Edge = tuple[str, str, Reference]
"""Node, namespace and what a pod of that node names there."""


class NodeIndex(Following):
    """Thread-safe."""

    def __init__(self, cache: WatchCache) -> None:
        super().__init__(cache, POD)
        self._edges: dict[str, frozenset[_Edge]] = {}
        self._counts: dict[tuple[str, Reference], Counter[str]] = {}
        """How many pods of each node name it, by what is named."""

    def names(self, node: str, space: str, wanted: Reference) -> bool:
        """Return whether a pod of ``node`` in the namespace ``space`` names ``wanted``."""
        with self.lock:
            self.catch_up()
            return node in self._counts.get((space, wanted), ())

    def naming(self, space: str, wanted: Reference) -> list[str]:
        """Return the nodes whose pods in the namespace ``space`` name ``wanted``."""
        with self.lock:
            self.catch_up()
            return [*self._counts.get((space, wanted), ())]

    def clear(self) -> None:
        """Know nothing any more."""
        self._edges.clear()
        self._counts.clear()

    def put(self, key: str, obj: JsonObject | None) -> None:
        """Take what a pod names now."""
        after = _edges(obj) if obj is not None else frozenset()
        before = self._edges.pop(key, frozenset())
        if after:
            self._edges[key] = after
        for node, space, wanted in before - after:
            counts = self._counts[space, wanted]
            counts[node] -= 1
            if not counts[node]:
                del counts[node]
            if not counts:
                del self._counts[space, wanted]
        for node, space, wanted in after - before:
            self._counts.setdefault((space, wanted), Counter())[node] += 1


def _edges(pod: JsonObject) -> frozenset[_Edge]:
    # a node makes the mirrors of its static pods itself, and those take nothing from the API
    node = "" if is_mirror(pod) else str(spec(pod).get("nodeName") or "")
    return frozenset((node, namespace(pod), one) for one in _named(pod)) if node else frozenset()


def _named(pod: JsonObject) -> frozenset[Reference]:
    results = objects.annotations(pod).get(RESULTS_TO)
    more = (Reference(CONFIG_MAP.plural, results), Reference(RESULTS, results)) if results else ()
    return references(pod) | {*more}
