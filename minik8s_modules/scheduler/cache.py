"""What the scheduler knows of nodes and bound pods, kept by watch events; a snapshot costs only what has changed.

A pod that was given a node counts there at once (*assumed*), before its binding comes back through the watch, so that
the next decision does not give the same room away twice. The assumption ends when the watch shows the pod bound or
gone, or with ``forget``.
Used by one thread at a time, except the informers' handlers: hence the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.scheduler.framework import NodeInfo, PodInfo, Snapshot, takes_room


class ClusterCache:
    """Nodes with their pods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, JsonObject] = {}
        self._pods: dict[str, dict[Key, PodInfo]] = {}
        self._node_of: dict[Key, str] = {}
        self._assumed: set[Key] = set()
        self._infos: dict[str, NodeInfo] = {}
        self._sorted: tuple[NodeInfo, ...] | None = None
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def update_namespace(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a namespace; only its labels count."""
        with self._lock:
            known = {
                name: labels for name, labels in self._namespaces.items() if name != objects.name(new or old or {})
            }
            self._namespaces = known if new is None else {**known, objects.name(new): objects.labels(new)}

    def update_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a node."""
        name = objects.name(new or old or {})
        with self._lock:
            if new is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = new
            self._touch(name)

    def update_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a pod; an assumption stands until the pod is bound or gone."""
        key = objects.key(new or old or {})
        with self._lock:
            bound = new is not None and takes_room(new)
            if key in self._assumed and new is not None and not objects.spec(new).get("nodeName"):
                return
            self._remove(key)
            if bound and new is not None:
                self._add(key, objects.spec(new)["nodeName"], PodInfo.of(new))

    def assume(self, pod: JsonObject, node: str) -> None:
        """Count ``pod`` on ``node`` before its binding is seen."""
        key = objects.key(pod)
        with self._lock:
            self._remove(key)
            self._add(key, node, PodInfo.of(pod))
            self._assumed.add(key)

    def forget(self, key: Key) -> None:
        """End the assumption: the binding failed."""
        with self._lock:
            if key in self._assumed:
                self._remove(key)

    def is_assumed(self, key: Key) -> bool:
        """Return whether the pod has a node whose binding was not seen yet."""
        with self._lock:
            return key in self._assumed

    def snapshot(self, turn: int) -> Snapshot:
        """Return what is known now; it does not change afterwards."""
        with self._lock:
            if self._sorted is None:
                for name in self._nodes.keys() - self._infos.keys():
                    self._infos[name] = NodeInfo.of(self._nodes[name], self._pods.get(name, {}).values())
                self._sorted = tuple(self._infos[name] for name in sorted(self._nodes))
            return Snapshot(self._sorted, turn, self._namespaces)

    def _add(self, key: Key, node: str, info: PodInfo) -> None:
        self._pods.setdefault(node, {})[key] = info
        self._node_of[key] = node
        self._touch(node)

    def _remove(self, key: Key) -> None:
        self._assumed.discard(key)
        node = self._node_of.pop(key, None)
        if node is not None:
            self._pods[node].pop(key, None)
            if not self._pods[node]:
                del self._pods[node]
            self._touch(node)

    def _touch(self, node: str) -> None:
        self._infos.pop(node, None)
        self._sorted = None
