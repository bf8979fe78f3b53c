"""In-place resize: which resources a pod is given now, which its containers run with, and what is still to come. Pure.

A resize is given to a pod as a whole, once its node has room for it beside the others; which pods have what stands in
their statuses (``api/pods/resizes.py``), so all decisions of a node come to the same. What may change under a running
container is a changed entry, which the node's module carries out; the node's answer makes it actual. A container whose
``resizePolicy`` asks for it is stopped, and its next attempt has the new resources. Source: kubernetes
pkg/kubelet/allocation/allocation_manager.go, kuberuntime_manager.go (computePodResizeAction).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import resizes
from minik8s_modules.api.pods.resizes import COMPUTE, DEFERRED, ERROR, IN_PROGRESS, INFEASIBLE, PENDING
from minik8s_modules.api.pods.resources import PodResources, node_allocatable, pod_requests
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.pods.pod_context import recorded_status
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.values import Condition, PodInputs, Resources

AGAIN_S = 5.0
"""A resize that is not done is looked at again after this: its neighbours may have gone."""
_OVER = frozenset({"Succeeded", "Failed"})


class Resizing(NamedTuple):
    """What a pod's resources are now.

    Attributes:
        pod: the pod with the resources that its containers are to run with now.
        roomy: the pod with room for both what its containers run with and what they will.
        restarting: the containers that must start again.
    """

    pod: JsonObject
    roomy: JsonObject
    restarting: frozenset[str]
    resources: dict[str, Resources]
    conditions: tuple[Condition, ...]


def decide_resizing(pod: JsonObject, seen: ObservedPod, inputs: PodInputs) -> Resizing:
    """Return the resources the pod is given, and what of them is still to be carried out."""
    reported = resizes.recorded(pod)
    pending = _refused(pod, inputs) if resizes.is_asked(pod) else None
    allocated = {
        one["name"]: resizes.allocated_of(one, reported.get(one["name"]) if pending else None)
        for one in objects.lasting_containers(pod)
    }
    ran = {name: _ran(seen, name, reported) for name in allocated}
    restarting = frozenset(
        one["name"]
        for one in objects.lasting_containers(pod)
        if (before := ran[one["name"]]) is not None
        and not _is_finished(pod, seen, one["name"])
        and resizes.needs_restart(one, before, allocated[one["name"]])
    )
    actual = {
        name: before
        if (before := ran[name]) is not None and (name in restarting or not _is_made(pod, seen, inputs, name, given))
        else given
        for name, given in allocated.items()
    }
    now = {
        name: before if name in restarting and _lives(seen, name) and (before := ran[name]) is not None else given
        for name, given in allocated.items()
    }
    return Resizing(
        resizes.with_resources(pod, lambda one: now[one["name"]]),
        resizes.with_resources(pod, lambda one: resizes.largest([allocated[one["name"]], actual[one["name"]]])),
        restarting,
        {name: Resources(given, actual[name]) for name, given in allocated.items()},
        tuple(one for one in (pending, _under_way(pod, allocated, actual, inputs)) if one),
    )


def _ran(seen: ObservedPod, name: str, reported: dict[str, JsonObject]) -> JsonObject | None:
    """Return what the newest attempt ran with when it was last told of; None where there is a newer one, or none."""
    last, known = seen.last(name), reported.get(name)
    if last is None or known is None or last.attempt != int(known.get("restartCount") or 0):
        return None
    return dict(known.get("resources") or {})


def _lives(seen: ObservedPod, name: str) -> bool:
    last = seen.last(name)
    return last is not None and last.alive


def _is_finished(pod: JsonObject, seen: ObservedPod, name: str) -> bool:
    """Return whether a container had ended for good before; one that was stopped for a resize is told as waiting."""
    last = seen.last(name)
    ended = objects.dig(recorded_status(pod, name), "state", "terminated") or {}
    return last is not None and last.over and ended.get("containerID") == f"docker://{last.id}"


def _is_made(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, name: str, given: JsonObject) -> bool:
    """Return whether the node has carried out what a container was given; one that does not run has it anyway."""
    if not _lives(seen, name):
        return True
    known = resizes.recorded(pod)[name]
    if resizes.same(dict(known.get("resources") or {}), given):
        return True
    entry = inputs.confirmed.get(f"{objects.uid(pod)}/{name}")
    container = resources.as_limited(pod, {"resources": given})
    return entry is not None and (entry["cpu_shares"], entry["cpu_quota_us"], entry["memory_bytes"]) == (
        resources.cpu_shares(container),
        resources.cpu_quota_us(container),
        resources.memory_bytes(container),
    )


def _under_way(
    pod: JsonObject, allocated: dict[str, JsonObject], actual: dict[str, JsonObject], inputs: PodInputs
) -> Condition | None:
    waiting = [name for name, given in allocated.items() if not resizes.same(given, actual[name])]
    if not waiting:
        return None
    uid = objects.uid(pod)
    errors = [inputs.errors.get(key) for key in (f"sandboxes/{uid}", *(f"containers/{uid}/{name}" for name in waiting))]
    message = next((str(error["message"]) for error in errors if error), "")
    return Condition(IN_PROGRESS, ERROR, message) if message else Condition(IN_PROGRESS)


def _refused(pod: JsonObject, inputs: PodInputs) -> Condition | None:
    """Return why the node does not give the pod what it asks for, None where it does."""
    has = _amounts(node_allocatable(inputs.node))
    wanted = _amounts(pod_requests(pod))
    for name in COMPUTE:
        if wanted[name] > has[name]:
            text = f"Node didn't have enough capacity: {name}, requested: {wanted[name]}, capacity: {has[name]}"
            return Condition(PENDING, INFEASIBLE, text)
    return _deferred(pod, inputs, has)


def _deferred(pod: JsonObject, inputs: PodInputs, has: dict[str, int]) -> Condition | None:
    """Return what is not free now. Pods that ask at one time are served in the order of their priority and age."""
    uid = objects.uid(pod)
    there = [one for one in inputs.neighbours if objects.status(one).get("phase") not in _OVER]
    there = [pod, *(one for one in there if objects.uid(one) != uid)]
    used = _sum(_kept(one) for one in there)
    for one in sorted((one for one in there if resizes.is_asked(one)), key=_turn):
        before, after = _kept(one), _amounts(pod_requests(one))
        beside = {name: used[name] - before[name] for name in COMPUTE}
        lacking = [name for name in COMPUTE if after[name] > before[name] and beside[name] + after[name] > has[name]]
        if objects.uid(one) == uid:
            return _short(lacking[0], after, beside, has) if lacking else None
        if not lacking:  # what it gives up is not free before it runs with less
            used = {name: beside[name] + max(before[name], after[name]) for name in COMPUTE}
    return None


def _short(name: str, wanted: dict[str, int], used: dict[str, int], has: dict[str, int]) -> Condition:
    text = f"{name}, requested: {wanted[name]}, used: {used[name]}, capacity: {has[name]}"
    return Condition(PENDING, DEFERRED, f"Node didn't have enough resource: {text}")


def _kept(pod: JsonObject) -> dict[str, int]:
    return _amounts(pod_requests(resizes.as_allocated(pod)))


def _turn(pod: JsonObject) -> tuple[int, str, str, str]:
    created = str(objects.dig(pod, "metadata", "creationTimestamp") or "")
    return (-int(objects.spec(pod).get("priority") or 0), created, *objects.key(pod))


def _amounts(found: PodResources) -> dict[str, int]:
    return {"cpu": found.milli_cpu, "memory": found.memory_bytes}


def _sum(found: Iterable[dict[str, int]]) -> dict[str, int]:
    each = list(found)
    return {name: sum(one[name] for one in each) for name in COMPUTE}
