"""Whether a pod may run on a node, by the plainest reading of the rules: every pod is looked at, nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.node_affinity import matches_node
from minik8s_modules.api.nodes.taints import tolerates, untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resources import node_allocatable, pod_requests
from minik8s_modules.api.selectors import from_label_selector

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def fits(pod: JsonObject, node: JsonObject, nodes: Sequence[JsonObject], placed: Sequence[JsonObject]) -> bool:
    """Return whether the pod may run there beside those that are placed."""
    there = [one for one in placed if one["spec"]["nodeName"] == objects.name(node)]
    cordoned = objects.spec(node).get("unschedulable") and not tolerates(pod, _CORDON)
    if cordoned or untolerated(pod, node, {"NoSchedule", "NoExecute"}):
        return False
    return (
        matches_node(pod, node)
        and _has_room(pod, node, there)
        and _is_near(pod, node, nodes, placed)
        and _is_even(pod, node, nodes, placed)
    )


def _has_room(pod: JsonObject, node: JsonObject, there: Sequence[JsonObject]) -> bool:
    has, asked = node_allocatable(node), [pod_requests(one) for one in (*there, pod)]
    cpu, memory = sum(one.milli_cpu for one in asked), sum(one.memory_bytes for one in asked)
    mine = asked[-1]
    return (
        len(asked) <= has.pods
        and (not mine.milli_cpu or cpu <= has.milli_cpu)
        and (not mine.memory_bytes or memory <= has.memory_bytes)
    )


def _speaks_of(term: JsonObject, owner: JsonObject, pod: JsonObject) -> bool:
    same = objects.namespace(owner) == objects.namespace(pod)
    return same and from_label_selector(term["labelSelector"]).matches(objects.labels(pod))


def _domain(node: JsonObject, key: str) -> str | None:
    return objects.labels(node).get(key)


def _terms(pod: JsonObject, kind: str) -> list[JsonObject]:
    return objects.dig(pod, "spec", "affinity", kind, _REQUIRED) or []


def _is_near(pod: JsonObject, node: JsonObject, nodes: Iterable[JsonObject], placed: Sequence[JsonObject]) -> bool:
    where = {objects.name(one): one for one in nodes}

    def together(other: JsonObject, key: str) -> bool:
        mine, theirs = _domain(node, key), _domain(where[other["spec"]["nodeName"]], key)
        return mine is not None and mine == theirs

    for other in placed:
        if any(_speaks_of(term, pod, other) and together(other, term["topologyKey"])
               for term in _terms(pod, "podAntiAffinity")):  # fmt: skip
            return False
        if any(_speaks_of(term, other, pod) and together(other, term["topologyKey"])
               for term in _terms(other, "podAntiAffinity")):  # fmt: skip
            return False
    near = _terms(pod, "podAffinity")
    if any(_domain(node, term["topologyKey"]) is None for term in near):
        return False
    wanted = [other for other in placed if near and all(_speaks_of(term, pod, other) for term in near)]
    if all(any(together(other, term["topologyKey"]) for other in wanted) for term in near):
        return True
    anywhere = any(_domain(where[other["spec"]["nodeName"]], term["topologyKey"]) for other in wanted for term in near)
    return not anywhere and all(_speaks_of(term, pod, pod) for term in near)


def _is_even(pod: JsonObject, node: JsonObject, nodes: Sequence[JsonObject], placed: Sequence[JsonObject]) -> bool:
    hard = [one for one in objects.spec(pod).get("topologySpreadConstraints") or [] if one["maxSkew"]]
    keys = [one["topologyKey"] for one in hard]
    if any(_domain(node, key) is None for key in keys):
        return False
    counted = [one for one in nodes if matches_node(pod, one) and all(_domain(one, key) is not None for key in keys)]
    for one in hard:
        counts: Counter[str] = Counter({objects.labels(each)[one["topologyKey"]]: 0 for each in counted})
        for other in placed:
            home = next((each for each in counted if objects.name(each) == other["spec"]["nodeName"]), None)
            if home is not None and _speaks_of(one, pod, other):
                counts[objects.labels(home)[one["topologyKey"]]] += 1
        mine = int(_speaks_of(one, pod, pod))
        here = counts[objects.labels(node)[one["topologyKey"]]]
        if here + mine - min(counts.values(), default=0) > one["maxSkew"]:
            return False
    return True
