"""What is left on a node: whether it is enough, and how well it would be used.

Source: pkg/scheduler/framework/plugins/noderesources. Shares are computed on whole numbers as there, so that scores are
the same to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resources import node_allocatable
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo, amounts
from minik8s_modules.scheduler.framework.points import BEST, CycleState, Event, Handle, Wake
from minik8s_modules.scheduler.framework.statuses import Status, unschedulable
from minik8s_modules.scheduler.plugins.base import Arguments, InTree

_NATIVE = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
DEFAULT_RESOURCES: tuple[Mapping[str, Any], ...] = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
Share = Callable[[int, int], int]
"""The score, 0 to 100, of so much requested of so much."""


def _least(requested: int, capacity: int) -> int:
    return 0 if requested > capacity else (capacity - requested) * BEST // capacity


def _most(requested: int, capacity: int) -> int:
    return min(requested, capacity) * BEST // capacity


class NodeResourcesFit(InTree):
    """What the pod requests must be left of what the node has; the emptier or the fuller node is preferred."""

    name = "NodeResourcesFit"
    local = True

    def __init__(self, arguments: Arguments | None = None, handle: Handle | None = None) -> None:
        super().__init__(arguments, handle)
        strategy = self.arguments.get("scoringStrategy") or {}
        self._resources = tuple(
            (str(one["name"]), int(one.get("weight") or 1)) for one in strategy.get("resources") or DEFAULT_RESOURCES
        )
        self._type = strategy.get("type") or "LeastAllocated"
        shape = (strategy.get("requestedToCapacityRatio") or {}).get("shape") or ()
        points = [(int(one["utilization"]), int(one["score"]) * 10) for one in shape]
        self._share: Share = {"LeastAllocated": _least, "MostAllocated": _most}.get(self._type) or _ratio(points)
        self._ignored = frozenset(self.arguments.get("ignoredResources") or ())
        self._groups = frozenset(self.arguments.get("ignoredResourceGroups") or ())

    def filter(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return every resource of which too little is left; what is not asked for is not looked at."""
        has, taken = node.has, node.requested
        short = [
            "Too many pods" if resource == "pods" else f"Insufficient {resource}"
            for resource, wanted in pod.shape.wanted.items()
            if wanted > has.get(resource, 0) - taken.get(resource, 0) and not self._is_ignored(resource)
        ]
        return unschedulable(*short) if short else None

    def _is_ignored(self, resource: str) -> bool:
        group, slash, _ = resource.partition("/")
        return bool(slash) and (resource in self._ignored or group in self._groups)

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the weighted mean of the resources' shares."""
        total = weights = 0
        for resource, weight in self._resources:
            has, requested = _use(pod, node, resource, usual=True)
            if has:
                share = self._share(requested, has)
                if share or self._type != "RequestedToCapacityRatio":
                    total += share * weight
                    weights += weight
        if not weights:
            return 0
        return _rounded(total / weights) if self._type == "RequestedToCapacityRatio" else total // weights

    def wakes(self) -> Sequence[Wake]:
        """Return when there may be more room."""

        def roomier(pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
            now = amounts(node_allocatable(new))
            if old is None:
                return all(wanted <= now.get(name, 0) for name, wanted in pod.shape.wanted.items())
            before = amounts(node_allocatable(old))
            return any(now.get(name, 0) > before.get(name, 0) for name in pod.shape.wanted)

        def freed(pod: PodInfo, old: JsonObject | None, _new: JsonObject | None) -> bool:
            gone = PodInfo.of(old).shape.wanted if old and objects.spec(old).get("nodeName") else {}
            return any(name in gone for name in pod.shape.wanted)

        return (
            Wake(Event("Node", "Add"), roomier),
            Wake(Event("Node", "UpdateAllocatable"), roomier),
            Wake(Event("AssignedPod", "Delete"), freed),
            Wake(Event("AssignedPod", "UpdateScaleDown"), freed),
        )


def _use(pod: PodInfo, node: NodeInfo, resource: str, *, usual: bool) -> tuple[int, int]:
    """Return what the node has of a resource and what would be requested with the pod; (0, 0) leaves it out."""
    if usual and resource in {"cpu", "memory"}:
        index = 0 if resource == "cpu" else 1
        return node.has.get(resource, 0), node.usual[index] + pod.shape.usual[index]
    wanted = pod.shape.wanted.get(resource, 0)
    if not wanted and resource not in _NATIVE:
        return 0, 0
    return node.has.get(resource, 0), node.requested.get(resource, 0) + wanted


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)


def _ratio(points: Sequence[tuple[int, int]]) -> Share:
    """Return the share by a broken line through ``points`` (utilization in percent, score)."""

    def line(at: int) -> int:
        for index, (utilization, score) in enumerate(points):
            if at <= utilization:
                if index == 0:
                    return points[0][1]
                before, least = points[index - 1]
                return least + int((score - least) * (at - before) / (utilization - before))
        return points[-1][1] if points else 0

    return lambda requested, capacity: line(100 if requested > capacity else requested * 100 // capacity)


class NodeResourcesBalancedAllocation(InTree):
    """Nodes are preferred on which the shares of the resources that are taken differ least."""

    name = "NodeResourcesBalancedAllocation"
    local = True

    def __init__(self, arguments: Arguments | None = None, handle: Handle | None = None) -> None:
        super().__init__(arguments, handle)
        self._resources = tuple(str(one["name"]) for one in self.arguments.get("resources") or DEFAULT_RESOURCES)

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return 100 less the standard deviation of the shares, in percent."""
        used = (_use(pod, node, resource, usual=False) for resource in self._resources)
        shares = [min(requested / has, 1.0) for has, requested in used if has]
        deviation = 0.0
        if len(shares) == 2:  # noqa: PLR2004 - the formula's short form, as upstream computes it
            deviation = abs((shares[0] - shares[1]) / 2)
        elif shares:
            mean = sum(shares) / len(shares)
            deviation = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
        return int((1 - deviation) * BEST)
