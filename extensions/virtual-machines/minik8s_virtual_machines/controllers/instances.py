"""What a VirtualMachineInstance needs next: its launcher's pod, its status, and its end. Pure.

    Pending → Scheduling (a pod) → Scheduled (on a node) → Running (the guest does) → Succeeded | Failed

There is one pod, ever: once there was one and it is gone, the instance has failed, and its machine makes another
instance. An instance that is deleted keeps its finalizer until the pod is gone; of a node that is silent, that is when
its pod is: deleted by force, or with the node. So what the guest writes to has one writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import (
    POD_CREATED,
    POD_DELETED,
    Create,
    Delete,
    Patch,
    Step,
    WriteStatus,
    controller_reference,
)
from minik8s_virtual_machines.api.kinds import FINAL, VMI, VMI_FINALIZER
from minik8s_virtual_machines.controllers.conditions import Report, conditions_of, ended, runs, told, with_told

_AFTER_POD = frozenset({"Scheduling", "Scheduled", "Running"})
GONE = "PodGone"
POD_GONE = "its virt-launcher pod is gone: deleted, evicted, or with its node"


def decide_instance(
    instance: JsonObject,
    pods: Sequence[JsonObject],
    pod_wanted: JsonObject,
    report: Report,
    missing: str,
    now: datetime,
) -> list[Step]:
    """Return the steps for an instance.

    Args:
        instance: the VirtualMachineInstance.
        pods: those it controls.
        pod_wanted: the launcher's pod as it is to be made.
        report: what the launcher said last.
        missing: what to tell of claims that do not exist, "" for none.
        now: the time.
    """
    pod = chosen(pods)
    if objects.is_deleting(instance):
        return _ending(instance, pods)
    if VMI_FINALIZER not in objects.finalizers(instance):
        return [Patch(VMI, instance, {"metadata": {"finalizers": [*objects.finalizers(instance), VMI_FINALIZER]}})]
    phase = _phase(instance, pod, report)
    steps: list[Step] = []
    if pod is None and phase == "Pending" and not missing:
        steps.append(Create(POD, _owned(pod_wanted, instance), POD_CREATED))
    status = _status(instance, pod, phase, report, missing, now)
    return [*steps, *([WriteStatus(VMI, instance, status)] if status != objects.status(instance) else [])]


def launchers(instance: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Return which of the pods that an instance controls are its launcher's.

    Others may write an owner into their pods, but these labels only the daemon (``policies.yml``).
    """
    return [
        pod
        for pod in pods
        if objects.labels(pod).get("kubevirt.io") == "virt-launcher"
        and objects.labels(pod).get("kubevirt.io/created-by") == objects.uid(instance)
    ]


def chosen(pods: Sequence[JsonObject]) -> JsonObject | None:
    """Return the instance's pod: the oldest, though there is never another."""
    return min(pods, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", objects.name(pod)), default=None)


def _ending(instance: JsonObject, pods: Sequence[JsonObject]) -> list[Step]:
    if pods:
        grace = objects.spec(instance).get("terminationGracePeriodSeconds")
        return [Delete(POD, pod, POD_DELETED, grace_s=grace) for pod in pods if not objects.is_deleting(pod)]
    if VMI_FINALIZER not in objects.finalizers(instance):
        return []
    left = [each for each in objects.finalizers(instance) if each != VMI_FINALIZER]
    return [Patch(VMI, instance, {"metadata": {"finalizers": left}})]


def _owned(pod: JsonObject, instance: JsonObject) -> JsonObject:
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [controller_reference(VMI, instance)]}}


def _phase(instance: JsonObject, pod: JsonObject | None, report: Report) -> str:
    before = str(objects.status(instance).get("phase") or "")
    if before in FINAL:
        return before
    if pod is None:
        return "Failed" if before in _AFTER_POD else "Pending"
    at = str(objects.status(pod).get("phase") or "")
    if objects.is_deleting(pod):  # it is being evicted: however its guest ends, it is to run elsewhere
        return before or "Scheduling"
    if at in FINAL:
        return at
    ready = (objects.condition(pod, "Ready") or {}).get("status") == "True"
    if ready or "Running" in {before, report.phase}:
        return "Running"
    return "Scheduled" if runs(pod) else "Scheduling"


def _status(
    instance: JsonObject, pod: JsonObject | None, phase: str, report: Report, missing: str, now: datetime
) -> JsonObject:
    before = objects.status(instance)
    after: JsonObject = {**before, "phase": phase}
    if before.get("phase") != phase:
        moment = {"phase": phase, "phaseTransitionTimestamp": rfc3339(now)}
        after["phaseTransitionTimestamps"] = [*(before.get("phaseTransitionTimestamps") or []), moment]
    if pod is not None:
        after |= _of_pod(pod, report)
    if phase in FINAL:
        after["conditions"] = _final_conditions(instance, pod, phase, now)
        after["interfaces"], after["activePods"] = [], {}
    else:
        after["conditions"] = conditions_of(instance, pod, report, missing, now)
    return after


def _of_pod(pod: JsonObject, report: Report) -> JsonObject:
    found: JsonObject = {"qosClass": objects.status(pod).get("qosClass") or "Burstable"}
    if node := objects.spec(pod).get("nodeName"):
        found |= {"nodeName": node, "activePods": {objects.uid(pod): node}}
    if address := objects.status(pod).get("podIP"):
        main = {"name": "default", "ipAddress": address, "ipAddresses": [address], "infoSource": "domain"}
        first = next(iter(report.interfaces), {})
        told_of = {key: str(first[key]) for key in ("name", "mac") if first.get(key)}
        found["interfaces"] = [{**main, **told_of}]
    if report.machine:
        found["machine"] = {"type": report.machine}
    return found


def _final_conditions(instance: JsonObject, pod: JsonObject | None, phase: str, now: datetime) -> list[JsonObject]:
    found = [
        each
        for each in objects.status(instance).get("conditions") or []
        if each.get("type") in {"LiveMigratable", "Ready"}
    ]
    ready = objects.condition(instance, "Ready") or {}
    if objects.status(instance).get("phase") in FINAL and ready.get("status") == "False":
        return found  # how it ended was said when it ended; its pod may be gone since
    reason, message = ended(pod) if pod is not None else (GONE, POD_GONE)
    return with_told(found, told("Ready", "False", reason, message or phase, now))
