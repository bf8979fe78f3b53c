"""When a VirtualMachine runs: ``runStrategy``, or ``running``, its older form. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

ALWAYS, RERUN, MANUAL, HALTED, ONCE = "Always", "RerunOnFailure", "Manual", "Halted", "Once"


def strategy_of(vm: Mapping[str, Any]) -> str:
    """Return the run strategy of a VirtualMachine."""
    spec = objects.spec(vm)
    if spec.get("runStrategy"):
        return str(spec["runStrategy"])
    return ALWAYS if spec.get("running") else HALTED


def as_spec(vm: Mapping[str, Any], *, running: bool) -> JsonObject:
    """Return the merge patch that makes a VirtualMachine run always or never, in the form that it uses."""
    if "runStrategy" in objects.spec(vm):
        return {"spec": {"runStrategy": ALWAYS if running else HALTED}}
    return {"spec": {"running": running}}


def requests_of(vm: Mapping[str, Any]) -> list[JsonObject]:
    """Return what was asked for by start, stop and restart and is not done yet; only the first is under way."""
    return objects.status(vm).get("stateChangeRequests") or []


def asks_to_start(vm: Mapping[str, Any]) -> bool:
    """Return whether the next request is to start."""
    return bool(requests_of(vm)) and requests_of(vm)[0].get("action") == "Start"


def asks_to_stop(vm: Mapping[str, Any], instance: Mapping[str, Any]) -> bool:
    """Return whether the next request is to stop that very instance."""
    first = next(iter(requests_of(vm)), {})
    return first.get("action") == "Stop" and first.get("uid") == objects.uid(instance)
