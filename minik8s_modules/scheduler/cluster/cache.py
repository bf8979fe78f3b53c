"""What the scheduler knows of nodes and bound pods, kept by watch events; a snapshot costs only what has changed.

A pod that was given a node counts there at once (*assumed*), before its binding comes back through the watch, so that
the next decision does not give the same room away twice. The assumption ends when the watch shows the pod bound or
gone, or with ``forget``.

Handlers of informers call from their threads, the scheduling thread brings its snapshot up to date with ``update``:
both hold the lock, for as long as a change takes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo, read_node, takes_room
from minik8s_modules.scheduler.framework.snapshot import Snapshot, Workload, worth_knowing
from minik8s_modules.scheduler.framework.storage import Storage


class ClusterCache:
    """Nodes with their pods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeInfo] = {}
        self._strays: dict[str, dict[Key, PodInfo]] = {}
        self._place: dict[Key, tuple[str, PodInfo]] = {}
        self._assumed: set[Key] = set()
        self._changes: list[tuple[NodeInfo, tuple[PodInfo, ...], tuple[PodInfo, ...], bool]] = []
        self._rebuilt = True
        self._namespaces: Mapping[str, Mapping[str, str]] = {}
        self._workloads: dict[tuple[str, str, str], Workload] = {}
        self._grouped: Mapping[str, tuple[Workload, ...]] = {}
        self._version = self._grouped_version = 0
        self._budgets: dict[Key, JsonObject] = {}
        self._nominated: dict[Key, tuple[str, PodInfo]] = {}
        self.storage = Storage()
        """Claims, volumes and classes; it has a lock of its own."""

    def update_namespace(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a namespace; only its labels count."""
        with self._lock:
            name = objects.name(new or old or {})
            known = {other: labels for other, labels in self._namespaces.items() if other != name}
            self._rebuilt |= (objects.labels(new) if new else None) != self._namespaces.get(name)
            self._namespaces = known if new is None else {**known, name: objects.labels(new)}

    def update_workload(self, workload: Workload, *, gone: bool) -> None:
        """Take what a Service or a controller of pods selects."""
        key = (workload.kind, workload.namespace, workload.name)
        with self._lock:
            if self._workloads.get(key) == (None if gone else workload):
                return
            self._workloads.pop(key, None)
            if not gone:
                self._workloads[key] = workload
            self._version += 1

    def update_budget(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a PodDisruptionBudget."""
        with self._lock:
            self._budgets.pop(objects.key(new or old or {}), None)
            if new is not None:
                self._budgets[objects.key(new)] = new

    def update_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a watch event of a node; one that cannot be read takes no pods, and keeps those that it has."""
        name = objects.name(new or old or {})
        made = read_node(new) if new is not None else None
        with self._lock:
            known = self._nodes.pop(name, None)
            if new is None or made is None:
                if known is not None:
                    self._rebuilt = True
                    if known.pods:
                        self._strays[name] = {pod.key: pod for pod in known.pods}
                return
            if known is None:
                self._nodes[name] = made.with_pods(tuple(self._strays.pop(name, {}).values()))
                self._rebuilt = True
            else:
                self._nodes[name] = info = made.with_pods(known.pods)
                self._note(info, (), (), itself=matters(known.node) != matters(new))

    def update_pod(self, old: JsonObject | None, new: JsonObject | None) -> frozenset[str]:
        """Take a watch event of a pod; return where it holds no room any more.

        An assumption stands until the pod is bound or gone.
        """
        key = objects.key(new or old or {})
        with self._lock:
            if new is not None and not objects.spec(new).get("nodeName") and self._is_assumed(new):
                return frozenset()
            before = self._held(key)
            self._nominate(key, new)
            if new is not None and takes_room(new):
                self._put(key, objects.spec(new)["nodeName"], PodInfo.of(new))
            else:
                self._remove(key)
            return before - self._held(key)

    def assume(self, pod: PodInfo, node: str) -> frozenset[str]:
        """Count ``pod`` on ``node`` before its binding is seen; return where it holds no room any more."""
        key = pod.key
        with self._lock:
            before = self._held(key)
            self._nominated.pop(key, None)
            self._remove(key)
            self._add(key, node, pod)
            self._assumed.add(key)
            return before - self._held(key)

    def forget(self, pod: PodInfo) -> None:
        """End the assumption: the binding failed. Another pod of the same name keeps its own."""
        with self._lock:
            if self._is_assumed(pod.pod):
                self._remove(pod.key)

    def is_assumed(self, pod: PodInfo) -> bool:
        """Return whether the pod has a node whose binding was not seen yet."""
        with self._lock:
            return self._is_assumed(pod.pod)

    def nominate(self, pod: PodInfo, node: str) -> frozenset[str]:
        """Note at once that ``pod`` is to run on ``node`` later; "" takes that back; return where it no longer is."""
        with self._lock:
            before = self._held(pod.key)
            self._nominated.pop(pod.key, None)
            if node:
                self._nominated[pod.key] = (node, pod)
            return before - self._held(pod.key)

    def nominated_to(self, node: str) -> list[PodInfo]:
        """Return the pods that are to run on ``node`` later."""
        with self._lock:
            return [pod for name, pod in self._nominated.values() if name == node]

    def renew(self) -> None:
        """Give the next snapshot everything again."""
        with self._lock:
            self._rebuilt = True

    def update(self, snapshot: Snapshot) -> Snapshot:
        """Bring ``snapshot`` up to date, and return it."""
        with self._lock:
            if self._rebuilt:
                snapshot.replace_nodes(self._nodes.values())
                self._rebuilt = False
            else:
                for info, gone, come, itself in self._changes:
                    snapshot.change(info, gone, come, itself=itself)
            self._changes.clear()
            snapshot.namespaces = self._namespaces
            if self._grouped_version != self._version:
                self._grouped, self._grouped_version = _by_namespace(self._workloads.values()), self._version
            snapshot.workloads, snapshot.workloads_version = self._grouped, self._version
            snapshot.storage = self.storage
            snapshot.budgets = tuple(self._budgets.values())
            snapshot.nominated = _by_node(self._nominated.values()) if self._nominated else {}
            return snapshot

    def snapshot(self, turn: int = 0) -> Snapshot:
        """Return a new snapshot of what is known now."""
        with self._lock:
            self._rebuilt = True
        return self.update(Snapshot(turn=turn))

    def _is_assumed(self, pod: JsonObject) -> bool:
        key = objects.key(pod)
        return key in self._assumed and objects.uid(self._place[key][1].pod) == objects.uid(pod)

    def _held(self, key: Key) -> frozenset[str]:
        """Return the nodes where room is kept for the pod: its own, and the one it is nominated to."""
        return frozenset(known[key][0] for known in (self._place, self._nominated) if key in known)

    def _nominate(self, key: Key, pod: JsonObject | None) -> None:
        bound = pod is None or objects.spec(pod).get("nodeName")
        node = "" if bound else objects.status(pod or {}).get("nominatedNodeName")
        if not node:
            self._nominated.pop(key, None)
        elif pod is not None:
            self._nominated[key] = (str(node), PodInfo.of(pod))

    def _put(self, key: Key, node: str, info: PodInfo) -> None:
        """Take where a pod is bound."""
        place = self._place.get(key)
        if place is not None and place[0] == node and place[1].shape is info.shape:
            self._assumed.discard(key)
            self._place[key] = (node, info)
            self._swap(node, place[1], info)
            return
        self._remove(key)
        self._add(key, node, info)

    def _add(self, key: Key, node: str, info: PodInfo) -> None:
        self._place[key] = (node, info)
        known = self._nodes.get(node)
        if known is None:
            self._strays.setdefault(node, {})[key] = info
        else:
            self._nodes[node] = changed = known.with_pod(info)
            self._note(changed, (), (info,))

    def _note(
        self, info: NodeInfo, gone: tuple[PodInfo, ...], come: tuple[PodInfo, ...], *, itself: bool = False
    ) -> None:
        """Note a change for the next snapshot, which may be asked for in days: after many it is given everything."""
        if not self._rebuilt:
            self._changes.append((info, gone, come, itself))
            if len(self._changes) > worth_knowing(len(self._nodes)):
                self._changes.clear()
                self._rebuilt = True

    def _remove(self, key: Key) -> None:
        self._assumed.discard(key)
        node, info = self._place.pop(key, ("", None))
        if info is None:
            return
        known = self._nodes.get(node)
        if known is None:
            strays = self._strays.get(node, {})
            strays.pop(key, None)
            if not strays:
                self._strays.pop(node, None)
        else:
            self._nodes[node] = changed = known.without_pod(info)
            self._note(changed, (info,), ())

    def _swap(self, node: str, old: PodInfo, new: PodInfo) -> None:
        """Put the pod as it is now in its place, for those that read more of it than its shape."""
        known = self._nodes.get(node)
        if known is None:
            self._strays[node][new.key] = new
            return
        self._nodes[node] = changed = known.with_newer(old, new)
        self._note(changed, (), ())


def matters(node: JsonObject) -> tuple[Any, ...]:
    """Return what a decision can depend on; heartbeats change nothing of it."""
    ready = (objects.condition(node, "Ready") or {}).get("status")
    status = objects.status(node)
    return (
        objects.spec(node), objects.labels(node), ready, status.get("allocatable"), status.get("capacity"),
        status.get("images"),
    )  # fmt: skip


def _by_namespace(workloads: Iterable[Workload]) -> dict[str, tuple[Workload, ...]]:
    found: dict[str, tuple[Workload, ...]] = {}
    for one in workloads:
        found[one.namespace] = (*found.get(one.namespace, ()), one)
    return found


def _by_node(nominated: Iterable[tuple[str, PodInfo]]) -> dict[str, tuple[PodInfo, ...]]:
    found: dict[str, tuple[PodInfo, ...]] = {}
    for node, pod in nominated:
        found[node] = (*found.get(node, ()), pod)
    return found
