"""What a pod asks of a node, and its quality of service.

A pod's request is the larger of: the sum over its containers and sidecars (init containers with ``restartPolicy:
Always``), and the largest single init container with the sidecars that were started before it. What the pod itself
declares of CPU and memory (``spec.resources``) goes before what its containers come to.
Source: k8s.io/component-helpers ``resource/helpers.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, containers, init_containers, spec

COMPUTE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class PodResources:
    """Requests of one pod; ``other`` holds further resources (``example.com/gpu``) in whole units."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    pods: int = 1
    other: Mapping[str, int] = field(default_factory=dict)


def pod_requests(pod: JsonObject) -> PodResources:
    """Return what the pod asks of a node. Raises ValueError when a quantity is none (validation refuses such pods)."""
    declared = pod_level(pod)
    if declared.get("limits"):
        pod = {**pod, "spec": {**spec(pod), "resources": with_default_requests(pod)}}
    total = pod_amounts(pod, _requests)
    milli_cpu, memory_bytes = total.pop("cpu", 0), total.pop("memory", 0)
    return PodResources(milli_cpu, memory_bytes, 1, total)


def pod_amounts(pod: JsonObject, of: Callable[[JsonObject], dict[str, int]]) -> dict[str, int]:
    """Return what the containers of a pod come to, each taken by ``of``, with the pod's overhead.

    What the pod declares for all of its containers together is taken by ``of``, too, as if a container did.
    """
    beside: list[dict[str, int]] = []
    peaks: list[dict[str, int]] = []
    for container in init_containers(pod):
        if container.get("restartPolicy") == "Always":
            beside.append(of(container))
        peaks.append(_sum(beside if container.get("restartPolicy") == "Always" else [*beside, of(container)]))
    peaks.append(_sum([*beside, *(of(container) for container in containers(pod))]))
    largest = {name: max(peak.get(name, 0) for peak in peaks) for peak in peaks for name in peak}
    if declared := pod_level(pod):
        own = of({"resources": declared})
        largest |= {name: own[name] for name in _named(declared) if name in own}
    return _sum([largest, _amounts(spec(pod).get("overhead") or {})])


def pod_level(pod: JsonObject) -> JsonObject:
    """Return what the pod declares for all of its containers together, {} where it declares nothing."""
    return spec(pod).get("resources") or {}


def _named(declared: JsonObject) -> list[str]:
    return [name for name in COMPUTE if any(name in (declared.get(side) or {}) for side in ("requests", "limits"))]


def has_own(pod: JsonObject) -> bool:
    """Return whether the pod declares CPU or memory for all of its containers together."""
    return bool(_named(pod_level(pod)))


def with_default_requests(pod: JsonObject) -> JsonObject:
    """Return ``spec.resources`` with the requests that its limits imply (``defaultPodRequests``).

    They are what the containers request together, and the pod's limit where none of them requests anything.
    """
    declared = pod_level(pod)
    plain = {**spec(pod), "resources": {}, "overhead": {}}
    asked = pod_amounts({**pod, "spec": plain}, _requests)
    implied = {name: _text(name, asked[name]) for name in COMPUTE if name in asked}
    limits = {name: amount for name, amount in (declared.get("limits") or {}).items() if name in COMPUTE}
    return {**declared, "requests": {**limits, **implied, **(declared.get("requests") or {})}}


def _text(name: str, amount: int) -> str:
    return quantities.format_milli(amount) if name == "cpu" else quantities.format_bytes(amount)


def _requests(container: JsonObject) -> dict[str, int]:
    declared = container.get("resources") or {}
    return _amounts({**(declared.get("limits") or {}), **(declared.get("requests") or {})})


def _amounts(declared: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: quantities.to_milli(value) if name == "cpu" else quantities.to_bytes(value)
        for name, value in declared.items()
    }


def _sum(amounts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def node_allocatable(node: JsonObject) -> PodResources:
    """Return what a node has for pods: its allocatable, else its capacity; 110 pods when it does not say."""
    status = node.get("status") or {}
    amounts = _amounts(status.get("allocatable") or status.get("capacity") or {})
    milli_cpu, memory_bytes = amounts.pop("cpu", 0), amounts.pop("memory", 0)
    return PodResources(milli_cpu, memory_bytes, amounts.pop("pods", 110), amounts)


def qos_class(pod: JsonObject) -> str:
    """Return ``Guaranteed``, ``Burstable`` or ``BestEffort``, by cpu and memory of the pod, else of all containers."""
    own = pod_level(pod)
    declared = [container.get("resources") or {} for container in (*containers(pod), *init_containers(pod))]
    if has_own(pod):
        declared = [own]
    asked = [_positive(each.get(side)) for each in declared for side in ("requests", "limits")]
    if not any(asked):
        return "BestEffort"
    return "Guaranteed" if all(_guaranteed(each) for each in declared) else "Burstable"


def _positive(amounts: Mapping[str, Any] | None) -> dict[str, Any]:
    parsed = {name: quantities.parse((amounts or {})[name]) for name in COMPUTE if name in (amounts or {})}
    return {name: amount for name, amount in parsed.items() if amount > 0}


def _guaranteed(declared: JsonObject) -> bool:
    limits, requests = _positive(declared.get("limits")), _positive(declared.get("requests"))
    return len(limits) == len(COMPUTE) and all(requests.get(name, limits[name]) == limits[name] for name in COMPUTE)
