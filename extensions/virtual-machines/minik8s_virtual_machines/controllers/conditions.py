"""Conditions of instances, in KubeVirt's words: what a guest waits for, and what it can and cannot do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_virtual_machines.api.validation import MIGRATION_REFUSED

COMPUTE = "compute"
ACCELERATED = "minik8s.io/Accelerated"
_UNSCHEDULABLE = "Unschedulable"
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
_STUCK = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MOST = 1 << 63


Figures = Mapping[str, float]
"""What a machine uses, by name (``launcher/machines/usage.py``)."""


class Report(NamedTuple):
    """What the launcher says of its machine (``vmctl status``); nothing while it does not answer."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    paused: bool = False
    agent: bool = False
    machine: str = ""
    accelerator: str = ""
    figures: Figures = MappingProxyType({})
    interfaces: tuple[JsonObject, ...] = ()


def report_of(answer: Mapping[str, Any]) -> Report:
    """Return what an answer of ``vmctl status`` says; the launcher is believed nothing but texts and flags."""
    found = answer.get("interfaces")
    interfaces = tuple(each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()
    names = ("phase", "reason", "message", "machine", "accelerator")
    texts = {name: str(answer.get(name) or "")[:1024] for name in names}
    return Report(paused=bool(answer.get("paused")), agent=bool(answer.get("agentConnected")),
                  interfaces=interfaces[:8], figures=_figures(answer.get("figures")), **texts)  # fmt: skip


def _figures(found: Any) -> Figures:
    known = found if isinstance(found, dict) else {}
    # an int may have any number of digits, which no metric can show; neither NaN nor infinity is below
    numbers = {name: each for name, each in known.items() if type(each) in {int, float} and 0 <= each < _MOST}
    return dict([*numbers.items()][:16])


def told(kind: str, status: str, reason: str, message: str, now: datetime) -> JsonObject:
    """Return a condition."""
    return {
        "type": kind, "status": status, "lastTransitionTime": rfc3339(now), "reason": reason, "message": message,
    }  # fmt: skip


def with_told(conditions: Iterable[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the conditions with ``wanted`` in its type's place; one whose status is the same keeps its time."""
    known = list(conditions)
    for index, each in enumerate(known):
        if each.get("type") == wanted["type"]:
            same = each.get("status") == wanted["status"]
            kept = {**wanted, "lastTransitionTime": each.get("lastTransitionTime")} if same else wanted
            return [*known[:index], kept, *known[index + 1 :]]
    return [*known, wanted]


def waits_for(pod: JsonObject | None, report: Report) -> tuple[str, str]:
    """Return reason and message of what a guest that is not ready waits for: node, image, volume, disk, boot."""
    if pod is None:
        return "PodNotExists", "virt-launcher pod has not yet been scheduled"
    if held := _held_up(pod):
        return held
    if report.reason or report.message:
        return report.reason or "GuestNotRunning", report.message
    if runs(pod):
        return "GuestNotRunning", "the launcher runs and has not started the guest yet"
    return "PodNotReady", _being_made(pod)


def _held_up(pod: JsonObject) -> tuple[str, str] | None:
    if objects.is_deleting(pod):
        return "PodTerminating", _going(pod)
    scheduled = objects.condition(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or _UNSCHEDULABLE), str(scheduled.get("message") or "")
    return _waiting(pod)


def _going(pod: JsonObject) -> str:
    node = objects.spec(pod).get("nodeName")
    text = f"pod {objects.name(pod)} is being deleted, and the guest starts again once it is gone"
    off = f"once node {node} is certainly off, declare it by the taint node.kubernetes.io/out-of-service"
    return f"{text}; {off}" if node else text


def _being_made(pod: JsonObject) -> str:
    """Return which of a pod's containers is next to do its part."""
    for each in objects.status(pod).get("initContainerStatuses") or []:
        state = each.get("state") or {}
        if "terminated" not in state:
            doing = "is running" if "running" in state else "has not started"
            return f"pod {objects.name(pod)}: init container {each.get('name')} {doing}"
    return f"pod {objects.name(pod)}: its containers have not started"


def _waiting(pod: JsonObject) -> tuple[str, str] | None:
    status = objects.status(pod)
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _PULLING | _STUCK:
            return str(waiting["reason"]), f"container {each.get('name')}: {waiting.get('message') or ''}"
    return None


def _compute(pod: JsonObject) -> JsonObject:
    found = objects.status(pod).get("containerStatuses") or []
    return next((each for each in found if each.get("name") == COMPUTE), {})


def runs(pod: JsonObject | None) -> bool:
    """Return whether the launcher's container runs, so that it can be asked."""
    return pod is not None and "running" in (_compute(pod).get("state") or {})


def _failed(pod: JsonObject) -> tuple[str, JsonObject]:
    """Return the container that ended the pod, and how it did: an init container that failed, else the launcher."""
    for each in objects.status(pod).get("initContainerStatuses") or []:
        done = (each.get("state") or {}).get("terminated") or {}
        if done.get("exitCode"):
            return str(each.get("name")), done
    return COMPUTE, (_compute(pod).get("state") or {}).get("terminated") or {}


def ended(pod: JsonObject) -> tuple[str, str]:
    """Return reason and message of how the launcher ended."""
    name, done = _failed(pod)
    code, text = done.get("exitCode"), str(done.get("message") or "").strip()
    if code:
        text = f"{text or f'container {name} ended without a message'} (exit code {code})"
    if objects.status(pod).get("phase") == "Succeeded":
        return "GuestPoweredOff", text or "the guest powered itself off"
    reason = str(objects.status(pod).get("reason") or done.get("reason") or "GuestCrashed")
    return reason, text or str(objects.status(pod).get("message") or "nobody knows how its launcher ended")


def conditions_of(
    instance: JsonObject, pod: JsonObject | None, report: Report, missing: str, now: datetime
) -> list[JsonObject]:
    """Return the conditions of an instance that has not ended; ``missing`` names claims that do not exist."""
    found = list(objects.status(instance).get("conditions") or [])
    ready = (objects.condition(pod or {}, "Ready") or {}).get("status") == "True"
    reason, message = ("FailedPvcNotFound", missing) if missing else waits_for(pod, report)
    found = with_told(found, told("Ready", "True", "GuestRunning", "", now) if ready
                      else told("Ready", "False", reason, message, now))  # fmt: skip
    bad = not ready and (missing or reason in _PULLING | _STUCK)
    found = with_told(
        found, told("Synchronized", "False" if bad else "True", reason if bad else "", message if bad else "", now)
    )
    unscheduled = not ready and reason == _UNSCHEDULABLE
    found = (
        with_told(found, told("PodScheduled", "False", reason, message, now))
        if unscheduled
        else without_condition(found, "PodScheduled")
    )
    found = with_told(found, told("LiveMigratable", "False", "NotImplemented", MIGRATION_REFUSED, now))
    return _of_guest(found, ready, report, now)


def _accelerated(found: list[JsonObject], report: Report, now: datetime) -> list[JsonObject]:
    """Say of a PC whether the processor runs it itself; a User-Mode Linux needs nothing."""
    if not report.accelerator or report.machine == "uml":
        return found
    fast = report.accelerator == "kvm"
    reason = "KVM" if fast else "SoftwareEmulation"
    return with_told(found, told(ACCELERATED, "True" if fast else "False", reason, report.accelerator, now))


def _of_guest(found: list[JsonObject], ready: bool, report: Report, now: datetime) -> list[JsonObject]:  # noqa: FBT001
    found = _accelerated(found, report, now)
    if report.paused:
        found = with_told(found, told("Paused", "True", "PausedByUser", "VMI was paused by user", now))
    else:
        found = without_condition(found, "Paused")
    if report.agent:
        return with_told(found, told("AgentConnected", "True", "", "", now))
    text = "no guest agent has answered yet" if ready else "the guest does not run yet"
    return with_told(found, told("AgentConnected", "False", "NotConnected", text, now))
