"""Which nodes a DaemonSet wants, and what its pods look like: each for one node, tolerant of what ails nodes. Pure.

Source: kubernetes ``pkg/controller/daemon/{daemon_controller.go,util/daemonset_util.go}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DAEMON_SET, POD
from minik8s_modules.api.nodes.node_affinity import REQUIRED, matches_node
from minik8s_modules.api.nodes.taints import untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import POD_CREATED, Create, pod_from_template
from minik8s_modules.controllers.workloads.history import HASH_LABEL

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_ON_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Wish(NamedTuple):
    """Whether a node is to get a pod, and whether one that is there may stay."""

    run: bool
    stay: bool


def wish(daemon_set: JsonObject, node: JsonObject) -> Wish:
    """Return what the set wants of a node (``NodeShouldRunDaemonPod``)."""
    pod = _tolerant({"spec": objects.dig(daemon_set, "spec", "template", "spec") or {}})
    named = objects.spec(pod).get("nodeName") in {None, "", objects.name(node)}
    if not named or not matches_node(pod, node):
        return Wish(run=False, stay=False)
    stay = not untolerated(pod, node, {"NoExecute"})
    return Wish(run=stay and not untolerated(pod, node, {"NoSchedule"}), stay=stay)


def new_pod(daemon_set: JsonObject, node: str, hash_value: str) -> Create:
    """Return the creation of the pod for a node; the scheduler binds it to no other."""
    template = objects.spec(daemon_set).get("template") or {}
    pod = _tolerant(pod_from_template(template, DAEMON_SET, daemon_set))
    meta = pod["metadata"]
    labels = {**(meta.get("labels") or {}), HASH_LABEL: hash_value}
    return Create(POD, {**pod, "metadata": {**meta, "labels": labels}, "spec": _for_node(pod["spec"], node)},
                  POD_CREATED)  # fmt: skip


def _for_node(spec: JsonObject, node: str) -> JsonObject:
    """Return the spec with the node in every required term, in the place of other fields of nodes."""
    field = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    affinity = spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    required = {"nodeSelectorTerms": [{**term, "matchFields": field} for term in terms]}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_nodes, REQUIRED: required}}}


def _tolerant(pod: JsonObject) -> JsonObject:
    spec = objects.spec(pod)
    wanted = [*_TOLERATED, *([_ON_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    known = spec.get("tolerations") or []
    have = {(each.get("key"), each.get("effect"), each.get("operator")) for each in known}
    added = [
        {"key": key, "operator": "Exists", "effect": effect}
        for key, effect in wanted
        if (key, effect, "Exists") not in have
    ]
    return {**pod, "spec": {**spec, "tolerations": [*known, *added]}}


def node_of(pod: JsonObject) -> str:
    """Return the node a pod is bound to, or is made for (``GetTargetNodeName``); "" where neither can be told."""
    if bound := objects.spec(pod).get("nodeName"):
        return str(bound)
    terms = objects.dig(pod, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms") or []
    for term in terms:
        for each in term.get("matchFields") or []:
            if each.get("key") == "metadata.name" and len(each.get("values") or []) == 1:
                return str(each["values"][0])
    return ""


def by_node(pods: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    """Return the pods by their node, the oldest first."""
    found: dict[str, list[JsonObject]] = {}
    for pod in sorted(pods, key=_age):
        found.setdefault(node_of(pod), []).append(pod)
    return found


def _age(pod: JsonObject) -> tuple[bool, str, str]:
    # podByCreationTimestampAndPhase: bound pods before those that are not
    meta = pod.get("metadata") or {}
    return not objects.spec(pod).get("nodeName"), str(meta.get("creationTimestamp") or ""), objects.name(pod)
