"""The plugins of the default profile.

Names, order and words of the reasons are Kubernetes' (pkg/scheduler/framework/plugins). Round robin is the original
MiniK8s' (``nodes[counter % len(nodes)]`` over nodes sorted by name), among the nodes that fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.taints import tolerates, untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.affinity import InterPodAffinity, NodeAffinity, PodTopologySpread, TaintPreference
from minik8s_modules.scheduler.framework import Decision, NodeInfo, PodInfo, Profile, Snapshot, amounts, decide

_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
_BEST = 100


class NodeReady:
    """A node whose Ready condition is not True takes no pods (Kubernetes says so with taints)."""

    name = "NodeReady"

    def filter(self, _pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return the reason unless the node is ready."""
        ready = (objects.condition(node.node, "Ready") or {}).get("status") == "True"
        return () if ready else ("node(s) were not ready",)


class NodeUnschedulable:
    """``kubectl cordon`` keeps new pods away."""

    name = "NodeUnschedulable"

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return the reason for a cordoned node, unless the pod tolerates that."""
        cordoned = objects.spec(node.node).get("unschedulable")
        if not cordoned or tolerates(pod.pod, _UNSCHEDULABLE_TAINT):
            return ()
        return ("node(s) were unschedulable",)


class TaintToleration:
    """Taints with NoSchedule and NoExecute keep pods away that do not tolerate them."""

    name = "TaintToleration"

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return the first taint that is not tolerated."""
        found = untolerated(pod.pod, node.node, _KEEPING_AWAY)
        return tuple(
            f"node(s) had untolerated taint {{{one.get('key')}: {one.get('value') or ''}}}" for one in found[:1]
        )


class NodePorts:
    """No two pods of a node take the same host port."""

    name = "NodePorts"

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return the reason when a host port is taken."""
        if any(mine.conflicts(taken) for mine in pod.ports for taken in node.ports):
            return ("node(s) didn't have free ports for the requested pod ports",)
        return ()


class NodeResourcesFit:
    """What the pod requests must be left of what the node has."""

    name = "NodeResourcesFit"

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return every resource of which too little is left; what is not asked for is not looked at."""
        has = amounts(node.allocatable)
        return tuple(
            "Too many pods" if resource == "pods" else f"Insufficient {resource}"
            for resource, wanted in amounts(pod.requests).items()
            if wanted and wanted > has.get(resource, 0) - node.requested.get(resource, 0)
        )


class RoundRobin:
    """Nodes take turns, by name."""

    name = "RoundRobin"

    def score(self, _pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot) -> Sequence[int]:
        """Return 100 for the node whose turn it is, 0 for the others."""
        turn = snapshot.turn % len(nodes)
        return [_BEST if index == turn else 0 for index in range(len(nodes))]


DEFAULT_PROFILE = Profile(
    filters=(
        NodeReady(),
        NodeUnschedulable(),
        TaintToleration(),
        NodeAffinity(),
        NodePorts(),
        NodeResourcesFit(),
    ),
    prepared=(PodTopologySpread(), InterPodAffinity()),
    scores=(
        # Kubernetes' weights, times 100: turns decide among nodes that are equal in what the pod asks for
        (TaintPreference(), 300),
        (NodeAffinity(), 200),
        (PodTopologySpread(), 200),
        (InterPodAffinity(), 200),
        (RoundRobin(), 1),
    ),
)


def decide_node(pod: JsonObject, snapshot: Snapshot) -> Decision:
    """Return the node for ``pod``, or why there is none, by the default profile."""
    return decide(pod, snapshot, DEFAULT_PROFILE)
