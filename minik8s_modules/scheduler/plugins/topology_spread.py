"""Pods of a kind are spread evenly over zones, nodes or whatever a label names.

Counts by domain are kept for all pods of a shape and follow the cluster by its changes. Pods that say nothing are
spread by the profile's defaults: Kubernetes' own, unless ``defaultingType`` is List, over what their Services and their
controller select. Source: pkg/scheduler/framework/plugins/podtopologyspread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.node_affinity import matches_node
from minik8s_modules.api.nodes.taints import untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import LabelSelector
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import BEST, CycleState, Event, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Status, unresolvable, unschedulable
from minik8s_modules.scheduler.framework.terms import with_keys
from minik8s_modules.scheduler.plugins.base import InTree

_HOSTNAME = "kubernetes.io/hostname"
_UNEVEN = "node(s) didn't match pod topology spread constraints"
_TOO_MANY = unschedulable(_UNEVEN)
_NO_DOMAIN = unresolvable(f"{_UNEVEN} (missing required label)")
_SYSTEM_DEFAULTS: tuple[JsonObject, ...] = (
    {"topologyKey": _HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3},
    {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
)


class _Constraint:
    """One constraint with the counts of its domains."""

    def __init__(self, pod: JsonObject, declared: Mapping[str, Any], selector: LabelSelector) -> None:
        self.key = str(declared["topologyKey"])
        self.hosts = self.key == _HOSTNAME
        self.skew = int(declared["maxSkew"])
        self.domains = int(declared.get("minDomains") or 1)
        self.selector = selector
        self.mine = int(selector.matches(objects.labels(pod)))
        self._by_affinity = (declared.get("nodeAffinityPolicy") or "Honor") == "Honor"
        self._by_taints = (declared.get("nodeTaintsPolicy") or "Ignore") == "Honor"
        self._pod = pod
        self.counts: dict[str, int] = {}
        self.by_node: dict[str, int] = {}

    def clone(self) -> _Constraint:
        other = object.__new__(_Constraint)
        other.__dict__.update(self.__dict__)
        other.counts = dict(self.counts)
        return other

    def counted(self, node: JsonObject) -> bool:
        """Return whether pods of the node count."""
        if self._by_affinity and not matches_node(self._pod, node):
            return False
        return not (self._by_taints and untolerated(self._pod, node, {"NoSchedule", "NoExecute"}))

    def of(self, pods: Iterable[PodInfo]) -> int:
        """Return how many of ``pods`` are of the kind; a selector that selects everything counts none, as upstream."""
        return 0 if self.selector.empty else sum(self.selects(other.pod) for other in pods)

    def selects(self, other: JsonObject) -> bool:
        """Return whether a pod is of the kind."""
        same = objects.namespace(other) == objects.namespace(self._pod)
        return same and not objects.is_deleting(other) and self.selector.matches(objects.labels(other))

    def added(self, totals: list[float], nodes: Sequence[NodeInfo], weight: float) -> list[float]:
        """Return the totals with what this constraint counts of each node; nothing for nodes in none of its domains."""
        key, more = self.key, self.skew - 1
        if self.hosts:
            found = self.by_node
            return [
                total + (found[name] if (name := node.name) in found else self.of(node.pods)) * weight + more
                if key in node.labels else total
                for total, node in zip(totals, nodes, strict=True)
            ]  # fmt: skip
        values = [node.labels.get(key) for node in nodes]
        parts = {value: self.counts.get(value, 0) * weight + more for value in {*values} if value is not None}
        if not parts:
            return totals
        return [total + parts[value] if value in parts else total for total, value in zip(totals, values, strict=True)]

    @property
    def least(self) -> int:
        """The pods of the emptiest domain; with fewer domains than are wanted, an empty one is imagined."""
        return min(self.counts.values(), default=0) if len(self.counts) >= self.domains else 0


class _Spread:
    """All constraints of one kind (hard or soft) of a shape, with their counts."""

    def __init__(self, constraints: Sequence[_Constraint], *, all_keys: bool) -> None:
        self.constraints = constraints
        self.all_keys = all_keys
        self._epoch, self._version = -1, 0

    def clone(self) -> _Spread:
        """Return counts of their own."""
        return _Spread([one.clone() for one in self.constraints], all_keys=self.all_keys)

    def follow(self, snapshot: Snapshot) -> _Spread:
        """Take in what has changed since last time."""
        changes = snapshot.since(self._version) if self._epoch == snapshot.epoch and self.constraints else None
        if changes is None or any(change.itself for change in changes):
            self._count(snapshot.nodes)
        else:
            for change in changes:
                for pods, sign in ((change.gone, -1), (change.come, 1)):
                    for pod in pods:
                        self.take(pod, change.new, sign)
        self._epoch, self._version = snapshot.epoch, snapshot.version
        return self

    def _count(self, nodes: Iterable[NodeInfo]) -> None:
        for one in self.constraints:
            one.counts, one.by_node = {}, {}
        for node in nodes if self.constraints else ():
            if self.has_keys(node.labels):
                for one in self.constraints:
                    if one.counted(node.node):
                        found = one.of(node.pods)
                        one.by_node[node.name] = found
                        if one.key in node.labels:
                            value = node.labels[one.key]
                            one.counts[value] = one.counts.get(value, 0) + found

    def has_keys(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node is in a domain of every constraint."""
        return not self.all_keys or all(one.key in labels for one in self.constraints)

    def take(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod more or less on a node."""
        for one in self.constraints:
            if node.name in one.by_node and not one.selector.empty and one.selects(pod.pod):
                one.by_node[node.name] += sign
                if one.key in node.labels:
                    one.counts[node.labels[one.key]] += sign


class PodTopologySpread(InTree):
    """Judges nodes by how even the pods would be spread."""

    name = "PodTopologySpread"

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None]:
        """Take the counts; skip a pod without hard constraints."""
        spread = self._spread(pod, snapshot, "DoNotSchedule")
        if not spread.constraints:
            return None, SKIP
        state[self.name] = spread.follow(snapshot)
        state[f"{self.name}/least"] = [one.least for one in spread.constraints]
        return None, None

    def add_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Count one pod more."""
        self._take(state, other, node, 1)
        return None

    def remove_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Count one pod less."""
        self._take(state, other, node, -1)
        return None

    def _take(self, state: CycleState, other: PodInfo, node: NodeInfo, sign: int) -> None:
        spread: _Spread = state[self.name]
        for one in spread.constraints:
            if node.name in one.by_node and not one.selector.empty and one.selects(other.pod):
                one.counts[node.labels[one.key]] += sign
        state[f"{self.name}/least"] = [one.least for one in spread.constraints]

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return whether one more pod there is one too many, or the node is in no domain."""
        spread: _Spread = state[self.name]
        for one, least in zip(spread.constraints, state[f"{self.name}/least"], strict=True):
            value = node.labels.get(one.key)
            if value is None:
                return _NO_DOMAIN
            if one.counts.get(value, 0) + one.mine - least > one.skew:
                return _TOO_MANY
        return None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Take the counts and weigh the constraints by the domains there are; skip a pod without soft ones."""
        snapshot = self.handle.snapshot()
        spread = self._spread(pod, snapshot, "ScheduleAnyway")
        if not spread.constraints:
            return SKIP
        spread.follow(snapshot)
        judged = [node.labels for node in nodes if spread.has_keys(node.labels)] if spread.all_keys else [
            node.labels for node in nodes
        ]  # fmt: skip
        weights = []
        for one in spread.constraints:
            size = len(judged) if one.hosts else len({labels.get(one.key, "") for labels in judged})
            weights.append(math.log(size + 2))
        state[f"{self.name}/soft"] = (spread, weights)
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return how many such pods there are in the node's domains, weighted."""
        return self.score_all(state, pod, (node,))[0]

    def score_all(self, state: CycleState, _pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[int]:
        """Return for each node how many such pods there are in its domains, weighted; -1 of one in no domain."""
        spread, weights = state[f"{self.name}/soft"]
        totals = [0.0] * len(nodes)
        for one, weight in zip(spread.constraints, weights, strict=True):
            totals = one.added(totals, nodes, weight)
        scores = [math.floor(total + 0.5) for total in totals]
        if not spread.all_keys:
            return scores
        return [score if spread.has_keys(node.labels) else -1 for score, node in zip(scores, nodes, strict=True)]

    def normalize(self, _state: CycleState, _pod: PodInfo, scores: list[int]) -> Sequence[int]:
        """Return the more the fewer pods there are; 0 for nodes in no domain."""
        counts = [score for score in scores if score >= 0]
        least, most = min(counts, default=0), max(counts, default=0)
        if most == 0:
            return [BEST if score >= 0 else 0 for score in scores]
        told = {score: BEST * (most + least - score) // most if score >= 0 else 0 for score in {*scores}}
        return [told[score] for score in scores]

    def wakes(self) -> Sequence[Wake]:
        """Return when domains or the pods in them may have changed."""

        def counts(pod: PodInfo, old: JsonObject | None, new: JsonObject | None) -> bool:
            other = new or old or {}
            return objects.namespace(other) == objects.namespace(pod.pod)

        return (
            Wake(Event("AssignedPod", "Add"), counts),
            Wake(Event("AssignedPod", "Delete"), counts),
            Wake(Event("AssignedPod", "UpdateLabel"), counts),
            Wake(Event("Node", "Add")),
            Wake(Event("Node", "Delete")),
            Wake(Event("Node", "UpdateLabel")),
            Wake(Event("Node", "UpdateTaint")),
        )

    def _spread(self, pod: PodInfo, snapshot: Snapshot, kind: str) -> _Spread:
        constraints = objects.spec(pod.pod).get("topologySpreadConstraints")
        workloads = None if constraints else snapshot.workloads_version
        key = (id(self), kind, pod.shape.key, workloads)
        return snapshot.memo(key, lambda: self._declared(pod.pod, snapshot, kind))

    def _declared(self, pod: JsonObject, snapshot: Snapshot, kind: str) -> _Spread:
        constraints = objects.spec(pod).get("topologySpreadConstraints") or []
        if constraints:
            own = [one for one in constraints if (one.get("whenUnsatisfiable") or "DoNotSchedule") == kind]
            return _Spread([_Constraint(pod, one, with_keys(pod, one)) for one in own], all_keys=True)
        system = (self.arguments.get("defaultingType") or "System") == "System"
        defaults = _SYSTEM_DEFAULTS if system else self.arguments.get("defaultConstraints") or ()
        own = [one for one in defaults if one.get("whenUnsatisfiable") == kind]
        selector = _selected_with(pod, snapshot) if own else LabelSelector()
        chosen = [] if selector.empty else [_Constraint(pod, one, selector) for one in own]
        return _Spread(chosen, all_keys=not system)


def _selected_with(pod: JsonObject, snapshot: Snapshot) -> LabelSelector:
    """Return what the Services of the pod and its controller select (helper.DefaultSelector)."""
    owner = objects.controller_of(pod) or {}
    labels = objects.labels(pod)
    found = [
        one.selector
        for one in snapshot.workloads.get(objects.namespace(pod), ())
        if (one.kind == "Service" and not one.selector.empty and one.selector.matches(labels))
        or (one.kind, one.name) == (owner.get("kind"), owner.get("name"))
    ]
    return LabelSelector(tuple(dict.fromkeys(each for one in found for each in one.requirements)))
