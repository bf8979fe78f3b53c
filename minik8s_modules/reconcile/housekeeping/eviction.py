"""Which pod a node under pressure gives up, and which pod uses more local storage than it may. Pure.

One pod at a time: those above their request first, then the lower priority, then the larger excess. Static and critical
pods stay. Source: pkg/kubelet/eviction/helpers.go (rankMemoryPressure, rankDiskPressureFunc), eviction_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import parse, to_bytes
from minik8s_modules.reconcile.housekeeping.pressure import DISK, INODES, MEMORY, PIDS, Available, Threshold

REASON = "Evicted"
CRITICAL = 2_000_000_000
"""Pods of this priority and above are not evicted (scheduling.SystemCriticalPriority)."""
_RESOURCE = {MEMORY: "memory", DISK: "ephemeral-storage", INODES: "inodes", PIDS: "pids"}
_TERMINAL = frozenset({"Succeeded", "Failed"})


class Eviction(NamedTuple):
    """A pod that must go and why."""

    pod: JsonObject
    message: str


class Used(NamedTuple):
    """What a pod's containers and volumes use, in bytes."""

    memory: Mapping[str, int] = {}
    """Working set by container."""
    storage: Mapping[str, int] = {}
    """Writable layer and log by container."""
    volumes: Mapping[str, int] = {}
    """emptyDir volumes on disk, by name; those in memory count as memory."""


def choose(
    pods: Iterable[JsonObject], used: Mapping[str, Used], threshold: Threshold, found: Available
) -> Eviction | None:
    """Return the pod to give up for ``threshold``, None when there is none that may go; ``used`` by UID."""
    resource = _RESOURCE[threshold.signal]
    candidates = [pod for pod in pods if may_go(pod)]
    if not candidates:
        return None
    first = min(candidates, key=lambda pod: _rank(pod, used.get(objects.uid(pod), Used()), resource))
    text = f"The node was low on resource: {resource}. Threshold quantity: {_shown(threshold, found)}, "
    text += f"available: {_quantity(found.left, resource)}. "
    return Eviction(first, text + _consumption(first, used.get(objects.uid(first), Used()), resource))


def may_go(pod: JsonObject) -> bool:
    """Return whether the pod runs and is neither static nor critical."""
    static = objects.dig(pod, "metadata", "annotations", "kubernetes.io/config.source") == "file"
    critical = int(objects.spec(pod).get("priority") or 0) >= CRITICAL
    return not (static or critical or objects.is_deleting(pod) or objects.status(pod).get("phase") in _TERMINAL)


def _rank(pod: JsonObject, used: Used, resource: str) -> tuple[bool, int, int, str]:
    total, request = _total(used, resource), _requested(pod, resource)
    return (total <= request, int(objects.spec(pod).get("priority") or 0), request - total, objects.uid(pod))


def _total(used: Used, resource: str) -> int:
    if resource == "memory":
        return sum(used.memory.values())
    return sum(used.storage.values()) + sum(used.volumes.values())


def _requested(pod: JsonObject, resource: str) -> int:
    own = objects.dig(pod, "spec", "resources", "requests", resource)
    if own is not None:
        return to_bytes(str(own))
    amounts = (objects.dig(one, "resources", "requests", resource) for one in objects.containers(pod))
    return sum(to_bytes(str(amount)) for amount in amounts if amount is not None)


def _shown(threshold: Threshold, found: Available) -> str:
    return _quantity(threshold.of(found.capacity), _RESOURCE[threshold.signal])


def _quantity(amount: int, resource: str) -> str:
    return f"{amount // 1024}Ki" if resource in {"memory", "ephemeral-storage"} else str(amount)


def _consumption(pod: JsonObject, used: Used, resource: str) -> str:
    """Return which containers use more than they asked for, as kubelet words it."""
    if resource not in {"memory", "ephemeral-storage"}:
        return ""
    amounts = used.memory if resource == "memory" else used.storage
    messages = []
    for one in objects.containers(pod):
        request = str(objects.dig(one, "resources", "requests", resource) or "0")
        amount = amounts.get(one["name"], 0)
        if amount > to_bytes(request):
            what = f"Container {one['name']} was using {amount // 1024}Ki, request is {request}"
            messages.append(f"{what}, has larger consumption of {resource}. ")
    return "".join(messages)


def over_limits(pod: JsonObject, used: Used) -> Eviction | None:
    """Return why the pod's local storage is over a limit of its own, None when it is not."""
    if not may_go(pod):
        return None
    message = _volume_over(pod, used) or _pod_over(pod, used) or _container_over(pod, used)
    return Eviction(pod, message) if message else None


def _volume_over(pod: JsonObject, used: Used) -> str:
    for volume in objects.spec(pod).get("volumes") or []:
        limit = objects.dig(volume, "emptyDir", "sizeLimit")
        if limit and parse(str(limit)) > 0 and used.volumes.get(volume["name"], 0) > to_bytes(str(limit)):
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". '
    return ""


def _pod_over(pod: JsonObject, used: Used) -> str:
    limits = [objects.dig(one, "resources", "limits", "ephemeral-storage") for one in objects.containers(pod)]
    if not limits or not all(limits):
        return ""
    total = sum(to_bytes(str(limit)) for limit in limits)
    if _total(used, "ephemeral-storage") <= total:
        return ""
    shown = str(limits[0]) if len(limits) == 1 else str(total)
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "


def _container_over(pod: JsonObject, used: Used) -> str:
    for one in objects.containers(pod):
        limit = objects.dig(one, "resources", "limits", "ephemeral-storage")
        if limit and used.storage.get(one["name"], 0) > to_bytes(str(limit)):
            return f'Container {one["name"]} exceeded its local ephemeral storage limit "{limit}". '
    return ""


def is_limited(pod: JsonObject) -> bool:
    """Return whether anything of the pod limits its local storage."""
    volumes = objects.spec(pod).get("volumes") or []
    if any(objects.dig(one, "emptyDir", "sizeLimit") for one in volumes):
        return True
    return any(objects.dig(one, "resources", "limits", "ephemeral-storage") for one in objects.containers(pod))
