"""What a node itself says about who may run there: readiness, cordon, name, taints, labels, host ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.node_affinity import REQUIRED, matches_node, term_fits
from minik8s_modules.api.nodes.taints import tolerates, untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Event, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Status, unresolvable, unschedulable
from minik8s_modules.scheduler.framework.terms import PREFERRED
from minik8s_modules.scheduler.plugins.base import InTree, scaled

_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
_NODE_ADDED = Event("Node", "Add")
Matched = tuple[frozenset[str] | None, Status | None]


def is_ready(node: JsonObject) -> bool:
    """Return whether the node's Ready condition is True."""
    return (objects.condition(node, "Ready") or {}).get("status") == "True"


class NodeReady(InTree):
    """A node whose Ready condition is not True takes no pods, also before its taint says so."""

    name = "NodeReady"
    local = True

    def filter(self, _state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason unless the node is ready."""
        return None if is_ready(node.node) else unresolvable("node(s) were not ready")

    def wakes(self) -> Sequence[Wake]:
        """Return when a node may have become ready."""
        return (
            Wake(_NODE_ADDED, lambda _pod, _old, new: is_ready(new)),
            Wake(Event("Node", "UpdateCondition"), lambda _pod, _old, new: is_ready(new)),
        )


class NodeUnschedulable(InTree):
    """``kubectl cordon`` keeps new pods away."""

    name = "NodeUnschedulable"
    local = True

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason for a cordoned node, unless the pod tolerates that."""
        if not objects.spec(node.node).get("unschedulable") or tolerates(pod.pod, _UNSCHEDULABLE_TAINT):
            return None
        return unresolvable("node(s) were unschedulable")

    def wakes(self) -> Sequence[Wake]:
        """Return when a node may have been uncordoned."""

        def opened(_pod: PodInfo, _old: JsonObject | None, new: JsonObject) -> bool:
            return not objects.spec(new).get("unschedulable")

        return Wake(_NODE_ADDED, opened), Wake(Event("Node", "UpdateUnschedulable"), opened)


class NodeName(InTree):
    """A pod that names its node runs there."""

    name = "NodeName"

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> Matched:
        """Skip pods that name none."""
        return None, None if objects.spec(pod.pod).get("nodeName") else SKIP

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason for all other nodes."""
        named = objects.spec(pod.pod).get("nodeName")
        return None if named in {None, "", node.name} else unresolvable("node(s) didn't match the requested node name")

    def wakes(self) -> Sequence[Wake]:
        """Return when the node may have come."""
        return (Wake(_NODE_ADDED),)


class TaintToleration(InTree):
    """Taints with NoSchedule and NoExecute keep pods away that do not tolerate them; of others the fewer the better."""

    name = "TaintToleration"
    local = True

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the first taint that is not tolerated."""
        for one in untolerated(pod.pod, node.node, _KEEPING_AWAY) if objects.spec(node.node).get("taints") else ():
            return unresolvable(f"node(s) had untolerated taint {{{one.get('key')}: {one.get('value') or ''}}}")
        return None

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of PreferNoSchedule taints that the pod does not tolerate."""
        if not objects.spec(node.node).get("taints"):
            return 0
        # a toleration that names another effect than PreferNoSchedule covers no such taint
        return len(untolerated(pod.pod, node.node, frozenset({"PreferNoSchedule"})))

    def normalize(self, _state: CycleState, _pod: PodInfo, scores: list[int]) -> Sequence[int]:
        """Return 100 for none, less for more."""
        return scaled(scores, reverse=True)

    def wakes(self) -> Sequence[Wake]:
        """Return when a taint may have gone, or a toleration come."""

        def tolerated(pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
            before = old is None or bool(untolerated(pod.pod, old, _KEEPING_AWAY))
            return before and not untolerated(pod.pod, new, _KEEPING_AWAY)

        return Wake(_NODE_ADDED, tolerated), Wake(Event("Node", "UpdateTaint"), tolerated)


class NodeAffinity(InTree):
    """``nodeSelector`` and required terms filter, preferred terms weigh; ``addedAffinity`` is every pod's."""

    name = "NodeAffinity"
    local = True
    _POD = "node(s) didn't match Pod's node affinity/selector"
    _ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
    _CONFLICT = "pod affinity terms conflict"

    @property
    def _added(self) -> Mapping[str, Any]:
        return self.arguments.get("addedAffinity") or {}

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> Matched:
        """Return the nodes that the required terms name; skip a pod that wants no particular node."""
        required = objects.dig(pod.pod, "spec", "affinity", "nodeAffinity", REQUIRED)
        if required is None and not self._added.get(REQUIRED) and not objects.spec(pod.pod).get("nodeSelector"):
            return None, SKIP
        found: frozenset[str] = frozenset()
        for term in (required or {}).get("nodeSelectorTerms") or []:
            names = _named(term)
            if names is None:
                return None, None
            found |= names
        if not (required or {}).get("nodeSelectorTerms"):
            return None, None
        return (found, None) if found else (None, unresolvable(self._CONFLICT))

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason unless the node fits."""
        if not self._fits_added(node.node):
            return unresolvable(self._ENFORCED)
        return None if matches_node(pod.pod, node.node) else unresolvable(self._POD)

    def pre_score(self, _state: CycleState, pod: PodInfo, _nodes: Sequence[NodeInfo]) -> Status | None:
        """Skip where nothing is preferred."""
        return None if self._preferred(pod) else SKIP

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the sum of the weights of the preferred terms that the node fits; an empty term fits none."""
        return sum(int(one["weight"]) for one in self._preferred(pod) if term_fits(one["preference"], node.node))

    def normalize(self, _state: CycleState, _pod: PodInfo, scores: list[int]) -> Sequence[int]:
        """Return 100 for the largest."""
        return scaled(scores)

    def wakes(self) -> Sequence[Wake]:
        """Return when a node may have got the labels."""

        def fits(pod: PodInfo, node: JsonObject) -> bool:
            return self._fits_added(node) and matches_node(pod.pod, node)

        def matches(pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
            return fits(pod, new) and not (old is not None and fits(pod, old))

        return Wake(_NODE_ADDED, matches), Wake(Event("Node", "UpdateLabel"), matches)

    def _fits_added(self, node: JsonObject) -> bool:
        added = self._added.get(REQUIRED)
        return not added or any(term_fits(term, node) for term in added.get("nodeSelectorTerms") or [])

    def _preferred(self, pod: PodInfo) -> list[JsonObject]:
        own = objects.dig(pod.pod, "spec", "affinity", "nodeAffinity", PREFERRED) or []
        return [*(self._added.get(PREFERRED) or []), *own]


def _named(term: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the nodes that a term names; None when it names none."""
    found: frozenset[str] | None = None
    for one in term.get("matchFields") or []:
        if one.get("key") == "metadata.name" and one.get("operator") == "In":
            names = frozenset(one.get("values") or ())
            found = names if found is None else found & names
    return found


class NodePorts(InTree):
    """No two pods of a node take the same host port."""

    name = "NodePorts"
    local = True

    def pre_filter(self, _state: CycleState, pod: PodInfo, _snapshot: Snapshot) -> Matched:
        """Skip pods without host ports."""
        return None, None if pod.ports else SKIP

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason when a host port is taken."""
        if node.ports and any(mine.conflicts(taken) for mine in pod.ports for taken in node.ports):
            return unschedulable("node(s) didn't have free ports for the requested pod ports")
        return None

    def wakes(self) -> Sequence[Wake]:
        """Return when a port may have come free."""

        def freed(pod: PodInfo, old: JsonObject | None, _new: JsonObject | None) -> bool:
            gone = PodInfo.of(old).ports if old else ()
            return any(mine.conflicts(port) for mine in pod.ports for port in gone)

        return Wake(Event("AssignedPod", "Delete"), freed), Wake(_NODE_ADDED)
