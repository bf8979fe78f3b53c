"""What a VirtualMachine needs next: its instance made or deleted by its run strategy, and its status. Pure.

One instance at a time, of the machine's own name: a second one can only come once the first is gone, and that is gone
only once its pod is (``instances.py``). So a guest never runs twice. Source: KubeVirt v1.4
``pkg/virt-controller/watch/vm/vm.go`` (``syncRunStrategy``).
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339, rfc3339
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.controllers.core.steps import (
    Again,
    Create,
    Delete,
    Patch,
    Step,
    Words,
    WriteStatus,
    controller_reference,
)
from minik8s_virtual_machines.api.defaults import firmware_uuid
from minik8s_virtual_machines.api.kinds import FINAL, VM, VM_FINALIZER, VMI, VMI_FINALIZER
from minik8s_virtual_machines.api.strategies import (
    ALWAYS,
    HALTED,
    MANUAL,
    ONCE,
    RERUN,
    as_spec,
    asks_to_start,
    asks_to_stop,
    requests_of,
    strategy_of,
)
from minik8s_virtual_machines.controllers.conditions import told, with_told
from minik8s_virtual_machines.controllers.instances import GONE
from minik8s_virtual_machines.controllers.printable import printable_status

TEMPLATE_HASH = "vm.minik8s.io/template-hash"
GENERATION = "kubevirt.io/vm-generation"
CREATED = Words(
    "SuccessfulCreate", "Started the virtual machine by creating the new virtual machine instance ",
    "FailedCreate", "Error creating virtual machine instance: ",
)  # fmt: skip
DELETED = Words(
    "SuccessfulDelete", "Stopped the virtual machine by deleting the virtual machine instance ",
    "FailedDelete", "Error deleting virtual machine instance: ",
)  # fmt: skip
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10, 300  # KubeVirt's start failure back-off
HEALTHY_S = 60.0
"""An instance that ran this long was no failed start."""
# conditions of an instance that its machine shows as well
_SHOWN = ("AgentConnected", "LiveMigratable", "Paused", "Synchronized", "PodScheduled")


def decide_machine(vm: JsonObject, instance: JsonObject | None, now: datetime) -> list[Step]:
    """Return the steps for a VirtualMachine; ``instance`` is the one of its name that it controls."""
    if objects.is_deleting(vm):
        return _ending(vm, instance, now)
    if VM_FINALIZER not in objects.finalizers(vm):
        return [Patch(VM, vm, {"metadata": {"finalizers": [*objects.finalizers(vm), VM_FINALIZER]}})]
    failure = _failure(vm, instance, now)
    steps, status = _steps(vm, instance, failure, now), _status(vm, instance, failure, now)
    # an instance that failed is counted before it is deleted, and what is started is started before that is said
    return [*status, *steps] if failure != objects.status(vm).get("startFailure") else [*steps, *status]


def _ending(vm: JsonObject, instance: JsonObject | None, now: datetime) -> list[Step]:
    if instance is not None:
        going = objects.is_deleting(instance)
        return [*([] if going else [Delete(VMI, instance, DELETED)]), *_status(vm, instance, None, now)]
    if VM_FINALIZER not in objects.finalizers(vm):
        return []
    left = [each for each in objects.finalizers(vm) if each != VM_FINALIZER]
    return [Patch(VM, vm, {"metadata": {"finalizers": left}})]


def _steps(vm: JsonObject, instance: JsonObject | None, failure: JsonObject | None, now: datetime) -> list[Step]:
    if instance is None:
        if strategy_of(vm) == HALTED and asks_to_start(vm):  # to start paused; the request is kept until it runs
            return [Patch(VM, vm, as_spec(vm, running=True))]
        return _start(vm, failure, now) if start_expected(vm) else []
    if not objects.is_deleting(instance) and stop_expected(vm, instance):
        return [Delete(VMI, instance, DELETED)]
    return []


def start_expected(vm: JsonObject) -> bool:
    """Return whether a machine without an instance is to get one."""
    strategy = strategy_of(vm)
    if strategy == ALWAYS:
        return True
    if strategy == RERUN:  # also when it was another strategy before
        return asks_to_start(vm) or objects.status(vm).get("runStrategy") != RERUN
    return strategy == ONCE or (strategy == MANUAL and asks_to_start(vm))


def stop_expected(vm: JsonObject, instance: JsonObject) -> bool:
    """Return whether an instance is to go, though nobody deleted it."""
    strategy = strategy_of(vm)
    if strategy == HALTED or (strategy != ONCE and asks_to_stop(vm, instance)):
        return True
    phase = objects.status(instance).get("phase")
    if strategy == RERUN and phase == "Failed":
        return asks_to_start(vm)  # that it is started again stands in the status first (_requests_left)
    return phase in FINAL and strategy in {ALWAYS, RERUN}


def _start(vm: JsonObject, failure: JsonObject | None, now: datetime) -> list[Step]:
    if failure is not None:  # who starts it by hand takes that away
        left = (parse_rfc3339(failure["retryAfterTimestamp"]) - now).total_seconds()
        if left > 0:
            return [Again(left)]
    return [Create(VMI, instance_of(vm), CREATED)]


def template_hash(vm: JsonObject) -> str:
    """Return what tells two templates' specs apart."""
    text = json.dumps(objects.dig(vm, "spec", "template", "spec"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def instance_of(vm: JsonObject) -> JsonObject:
    """Return the instance that a machine's template describes."""
    template = objects.spec(vm).get("template") or {}
    spec = json.loads(json.dumps(template.get("spec") or {}))
    firmware = spec.setdefault("domain", {}).setdefault("firmware", {})
    firmware.setdefault("uuid", firmware_uuid(objects.uid(vm)))
    if asks_to_start(vm) and (requests_of(vm)[0].get("data") or {}).get("paused") == "true":
        spec["startStrategy"] = "Paused"
    return {
        "apiVersion": VMI.api_version,
        "kind": VMI.kind,
        "metadata": {
            "name": objects.name(vm),
            "namespace": objects.namespace(vm),
            "labels": objects.labels(template),
            "annotations": {
                **objects.annotations(template),
                TEMPLATE_HASH: template_hash(vm),
                GENERATION: str(objects.generation(vm)),
            },
            "ownerReferences": [controller_reference(VM, vm)],
            "finalizers": [VMI_FINALIZER],
        },
        "spec": spec,
    }


# --- the status ------------------------------------------------------------------------------------------------------


def _failure(vm: JsonObject, instance: JsonObject | None, now: datetime) -> JsonObject | None:
    """Return ``status.startFailure``: how often in a row it ended soon after it began, and when it is tried again."""
    known: JsonObject | None = objects.status(vm).get("startFailure")
    if instance is None:
        return known
    if objects.status(instance).get("phase") == "Running":
        return None if _ran_s(instance, now) >= HEALTHY_S else known
    if not _failed_start(vm, instance, now) or (known or {}).get("lastFailedVMIUID") == objects.uid(instance):
        return known
    count = int((known or {}).get("consecutiveFailCount") or 0) + 1
    pause = min(_FIRST_PAUSE_S * 2 ** min(count - 1, 10), _LONGEST_PAUSE_S)
    ended = objects.condition(instance, "Ready") or {}
    return {
        "reason": str(ended.get("reason") or ""),  # why it ended is to be told when the instance is gone
        "message": str(ended.get("message") or ""),
        "consecutiveFailCount": count,
        "lastFailedVMIUID": objects.uid(instance),
        "retryAfterTimestamp": rfc3339(now + timedelta(seconds=pause)),
    }


def _failed_start(vm: JsonObject, instance: JsonObject, now: datetime) -> bool:
    strategy, phase = strategy_of(vm), str(objects.status(instance).get("phase") or "")
    if strategy not in {ALWAYS, RERUN, ONCE} or phase not in FINAL:
        return False
    if phase == "Succeeded" and strategy != ALWAYS:
        return False
    if (objects.condition(instance, "Ready") or {}).get("reason") == GONE:  # no fault of the guest
        return False
    return _ran_s(instance, _transition(instance, phase) or now) < HEALTHY_S


def _transition(instance: JsonObject, phase: str) -> datetime | None:
    for each in objects.status(instance).get("phaseTransitionTimestamps") or []:
        if each.get("phase") == phase:
            return parse_rfc3339(each["phaseTransitionTimestamp"])
    return None


def _ran_s(instance: JsonObject, until: datetime) -> float:
    begun = _transition(instance, "Running")
    return 0.0 if begun is None else (until - begun).total_seconds()


def _status(vm: JsonObject, instance: JsonObject | None, failure: JsonObject | None, now: datetime) -> list[Step]:
    before = objects.status(vm)
    after: JsonObject = {
        **{name: value for name, value in before.items() if name not in {"startFailure", "stateChangeRequests"}},
        "created": instance is not None,
        "ready": (objects.condition(instance or {}, "Ready") or {}).get("status") == "True",
        "runStrategy": strategy_of(vm),
        "desiredGeneration": objects.generation(vm),
        "observedGeneration": objects.generation(vm),
        "conditions": _conditions(vm, instance, failure, now),
    }
    if failure is not None:
        after["startFailure"] = failure
    if left := _requests_left(vm, instance):
        after["stateChangeRequests"] = left
    after["printableStatus"] = printable_status({**vm, "status": after}, instance, start_expected(vm))
    steps: list[Step] = []
    if instance is not None and failure is not None and objects.status(instance).get("phase") == "Running":
        steps.append(Again(max(1.0, HEALTHY_S - _ran_s(instance, now))))
    return [*steps, *([WriteStatus(VM, vm, after)] if after != before else [])]


def _requests_left(vm: JsonObject, instance: JsonObject | None) -> list[JsonObject]:
    """Return the requests that are not done: a stop is once its instance is gone, a start once another one is there."""
    asked = requests_of(vm)
    alive = instance is not None and not objects.is_deleting(instance)
    if (
        asked
        and asked[0].get("action") == "Stop"
        and (instance is None or asked[0].get("uid") != objects.uid(instance))
    ) or (asks_to_start(vm) and alive and objects.status(instance or {}).get("phase") not in FINAL):
        asked = asked[1:]
    failed = objects.status(instance or {}).get("phase") == "Failed"
    if alive and failed and strategy_of(vm) == RERUN and not asked:
        return [{"action": "Start"}]  # said before the instance is deleted, so that it is started again
    return asked


def _conditions(
    vm: JsonObject, instance: JsonObject | None, failure: JsonObject | None, now: datetime
) -> list[JsonObject]:
    # what could not be made is said when that fails (shells.py), and holds until the next decision comes through
    found = without_condition(objects.status(vm).get("conditions") or [], "Failure")
    for kind in _SHOWN:
        shown = objects.condition(instance or {}, kind)
        found = with_told(found, shown) if shown else without_condition(found, kind)
    found = with_told(found, _ready(vm, instance, failure, now))
    changed = instance is not None and objects.annotations(instance).get(TEMPLATE_HASH, "") != template_hash(vm)
    if changed and objects.status(instance or {}).get("phase") not in FINAL:
        text = "a change of the template takes effect with the next start: restart the VirtualMachine"
        return with_told(found, told("RestartRequired", "True", "TemplateChanged", text, now))
    return without_condition(found, "RestartRequired")


def _looping(failure: JsonObject) -> str:
    count = failure["consecutiveFailCount"]
    last = ": ".join(str(failure[name]) for name in ("reason", "message") if failure.get(name))
    times = f"it ended {count} time{'s' if count > 1 else ''} in a row soon after its start"
    return f"{times}{f', last with {last}' if last else ''}; next try at {failure['retryAfterTimestamp']}"


def _ready(vm: JsonObject, instance: JsonObject | None, failure: JsonObject | None, now: datetime) -> JsonObject:
    shown = objects.condition(instance or {}, "Ready")
    if shown is not None:
        return shown
    if instance is None and failure is not None and start_expected(vm):
        return told("Ready", "False", "CrashLoopBackOff", _looping(failure), now)
    text = "VMI does not exist" if instance is None else "its instance has not been processed yet"
    return told("Ready", "False", "VMINotExists" if instance is None else "VMINotProcessed", text, now)
