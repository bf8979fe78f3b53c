"""``status.printableStatus`` of a VirtualMachine, in KubeVirt's words: of several that hold, the first. Pure.

Source: KubeVirt v1.4 ``pkg/virt-controller/watch/vm/vm.go`` (``setPrintableStatus``).
"""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.kinds import FINAL
from minik8s_virtual_machines.api.strategies import ALWAYS, HALTED, ONCE, RERUN, asks_to_stop, strategy_of

_STARTING = frozenset({"", "Pending", "Scheduling", "Scheduled"})


def printable_status(vm: JsonObject, instance: JsonObject | None, starts: bool) -> str:  # noqa: FBT001 - one of three facts
    """Return the status of a machine; ``starts``: it has no instance and is to get one."""
    if objects.is_deleting(vm):
        return "Terminating"
    return _without_instance(vm, starts=starts) if instance is None else _with_instance(vm, instance)


def _without_instance(vm: JsonObject, *, starts: bool) -> str:
    if starts:
        return "CrashLoopBackOff" if objects.status(vm).get("startFailure") else "Starting"
    return "Stopped"


def _with_instance(vm: JsonObject, instance: JsonObject) -> str:
    phase = str(objects.status(instance).get("phase") or "")
    for name, holds in _IN_ORDER:
        if holds(vm, instance, phase):
            return name
    return "Unknown"


def _stopping(vm: JsonObject, instance: JsonObject, phase: str) -> bool:
    expected = strategy_of(vm) == HALTED or asks_to_stop(vm, instance)
    return phase not in FINAL and (objects.is_deleting(instance) or expected)


def _said(instance: JsonObject, kind: str, *reasons: str) -> bool:
    found = objects.condition(instance, kind) or {}
    return found.get("status") == "False" and found.get("reason") in reasons


def _paused(instance: JsonObject) -> bool:
    return (objects.condition(instance, "Paused") or {}).get("status") == "True"


def _looping(vm: JsonObject, _instance: JsonObject, phase: str) -> bool:
    failing = objects.status(vm).get("startFailure") is not None
    return phase in FINAL and failing and strategy_of(vm) in {ALWAYS, RERUN, ONCE}


_IN_ORDER: tuple[tuple[str, Callable[[JsonObject, JsonObject, str], bool]], ...] = (
    ("Stopping", _stopping),
    ("Paused", lambda _, instance, phase: phase == "Running" and _paused(instance)),
    ("Running", lambda _vm, _instance, phase: phase == "Running"),
    ("ErrorPvcNotFound", lambda _, instance, __: _said(instance, "Synchronized", "FailedPvcNotFound")),
    ("ErrorUnschedulable", lambda _, instance, __: _said(instance, "PodScheduled", "Unschedulable")),
    ("WaitingForVolumeBinding", lambda _, instance, __: _said(instance, "Synchronized", "WaitingForVolumeBinding")),
    ("ErrImagePull", lambda _, instance, __: _said(instance, "Synchronized", "ErrImagePull", "ErrImageNeverPull")),
    ("ImagePullBackOff", lambda _, instance, __: _said(instance, "Synchronized", "ImagePullBackOff")),
    ("Starting", lambda _vm, _instance, phase: phase in _STARTING),
    ("CrashLoopBackOff", _looping),
    ("Stopped", lambda _vm, _instance, phase: phase in FINAL),
)
