"""Why a node does not take a pod that was given to it without a scheduler (``spec.nodeName``), as kubelet's admission.

A scheduler has judged by the same rules already, so a pod that was bound is not asked about: what is known here may be
a moment behind what the scheduler knew. Of several pods that come at once the older one is taken. Source: kubernetes
pkg/kubelet/lifecycle/predicate.go (Admit), pkg/scheduler/eventhandlers.go (AdmissionCheck), kubelet.go (rejectPod).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.node_affinity import matches_node
from minik8s_modules.api.nodes.taints import untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.reconcile.pods.security import Refusal
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo, amounts, takes_room

Beside = tuple[JsonObject, ...] | None
"""The pods that a pod must fit beside; None: it is not asked about."""


def arriving_beside(
    pod: JsonObject, of_node: Callable[[], Iterable[JsonObject]], taken: Callable[[str], bool]
) -> Beside:
    """Return beside which of its node's pods a pod must fit; ``taken`` says of a UID whether the node took that pod."""
    if _is_placed(pod) or taken(objects.uid(pod)):
        return None
    mine = by_age(pod)
    return tuple(
        one
        for one in objects.readable(of_node(), PodInfo.of)
        if takes_room(one)
        and objects.uid(one) != objects.uid(pod)
        and (_is_placed(one) or taken(objects.uid(one)) or by_age(one) < mine)
    )


def _is_placed(pod: JsonObject) -> bool:
    """Return whether a scheduler gave the pod its node, the node has taken it, or the node itself made it."""
    return is_mirror(pod) or objects.condition(pod, "PodScheduled") is not None


def by_age(pod: JsonObject) -> tuple[str, str, str]:
    """Return what pods are ordered by: older ones first, then by name."""
    return (str(objects.dig(pod, "metadata", "creationTimestamp") or ""), *objects.key(pod))


def unfit(pod: JsonObject, node: JsonObject, beside: Iterable[JsonObject]) -> Refusal | None:
    """Return why ``node`` does not take ``pod`` beside others."""
    mine, there = PodInfo.of(pod), NodeInfo.of(node, map(PodInfo.of, beside))
    return _too_large(mine, there) or _unsuited(mine, there)


def _too_large(pod: PodInfo, node: NodeInfo) -> Refusal | None:
    """Return the first resource that is not left; as by kubelet, what the node does not name is not looked at.

    A node that names no huge pages has none.
    """
    named = objects.status(node.node).get("allocatable") or objects.status(node.node).get("capacity") or {}
    has = amounts(node.allocatable)
    for resource, wanted in amounts(pod.requests).items():
        used = node.requested.get(resource, 0)
        there = has.get(resource, 0)
        if (resource in named or huge_pages.is_resource(resource)) and wanted and wanted > there - used:
            text = f"{resource}, requested: {wanted}, used: {used}, capacity: {there}"
            return Refusal(f"OutOf{resource}", f"Node didn't have enough resource: {text}")
    return None


def _unsuited(pod: PodInfo, node: NodeInfo) -> Refusal | None:
    found = (
        ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", not matches_node(pod.pod, node.node)),
        (
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
            any(mine.conflicts(taken) for mine in pod.ports for taken in node.ports),
        ),
        (
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
            bool(untolerated(pod.pod, node.node, {"NoExecute"})),
        ),
    )
    return next((Refusal(name, f"Predicate {name} failed: {why}") for name, why, fails in found if fails), None)
