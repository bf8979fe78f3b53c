"""Watch events as what the queue is told: which kind of change, so that it wakes only the pods that it may help."""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event


def node_events(old: JsonObject | None, new: JsonObject | None) -> Iterator[Event]:
    """Yield what happened to a node; a heartbeat is nothing."""
    if old is None or new is None:
        yield Event("Node", "Add" if old is None else "Delete")
        return
    before, after = objects.status(old), objects.status(new)
    if objects.labels(old) != objects.labels(new):
        yield Event("Node", "UpdateLabel")
    if objects.spec(old).get("taints") != objects.spec(new).get("taints"):
        yield Event("Node", "UpdateTaint")
    if objects.spec(old).get("unschedulable") != objects.spec(new).get("unschedulable"):
        yield Event("Node", "UpdateUnschedulable")
    if any(before.get(field) != after.get(field) for field in ("allocatable", "capacity")):
        yield Event("Node", "UpdateAllocatable")
    if _conditions(old) != _conditions(new):
        yield Event("Node", "UpdateCondition")
    if objects.annotations(old) != objects.annotations(new):
        yield Event("Node", "UpdateAnnotation")


def _conditions(node: JsonObject) -> dict[str, str]:
    return {one.get("type", ""): one.get("status", "") for one in objects.status(node).get("conditions") or ()}


def assigned_pod_events(old: JsonObject | None, new: JsonObject | None) -> Iterator[Event]:
    """Yield what happened to a pod that has a node; one that is over has gone."""
    if old is None or new is None:
        yield Event("AssignedPod", "Add" if old is None else "Delete")
        return
    same = objects.is_deleting(old) == objects.is_deleting(new)
    if objects.labels(old) != objects.labels(new) or not same:
        yield Event("AssignedPod", "UpdateLabel")
    wanted, was = PodInfo.of(new).shape.wanted, PodInfo.of(old).shape.wanted
    if any(amount > wanted.get(name, 0) for name, amount in was.items()):
        yield Event("AssignedPod", "UpdateScaleDown")


def changed_itself(old: JsonObject, new: JsonObject) -> bool:
    """Return whether of a waiting pod has changed what may help it; its status is written here, and helps nothing."""
    return any(read(old) != read(new) for read in (objects.spec, objects.labels, objects.annotations))
