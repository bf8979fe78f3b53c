"""What a host tells of a unit in a Pod's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339

UNREACHABLE = "HostUnreachable"
_REASONS = {"oom-kill": "OOMKilled", "timeout": "Timeout", "lost": "HostRebooted", "stopped": "Terminated"}
_SAYS = {
    200: "systemd could not enter the working directory",
    203: "systemd could not run the program",
    216: "systemd could not become the user's group",
    217: "systemd could not become the user",
}
_LOST = "the host was restarted, or somebody stopped the unit and had systemd forget it"


Usage = tuple[int, int, int]
"""CPU time so far in nanoseconds, how many of a second lately, and memory in bytes."""


class Told(NamedTuple):
    """What is known of a unit.

    Attributes:
        state: as the module returns it, None before the unit was started.
        error: reason and message of what keeps it from being realized.
        trouble: why its host tells nothing now; what is known is old then.
    """

    state: Mapping[str, Any] | None = None
    error: tuple[str, str] | None = None
    trouble: str = ""


def pod_status(pod: JsonObject, host: str, told: Told, now: str) -> JsonObject:
    """Return the status of ``pod``, whose unit is on ``host``."""
    state = told.state
    base: JsonObject = {"startTime": objects.status(pod).get("startTime") or now}
    if state is None:
        reason, message = told.error or ("Starting", f"the unit is to be started on {host}")
        if told.trouble:
            reason, message = UNREACHABLE, told.trouble
        shown: JsonObject = {"waiting": {"reason": reason, "message": message}}
        return _live(pod, base, "Pending", {"ready": False, "started": False, "state": shown}, (reason, message), now)
    if state["state"] == "ended":
        return _ended(pod, base, state, now)
    container: JsonObject = {"restartCount": state["restarts"], "started": True}
    if state["restarts"] or state["state"] == "waiting":
        container["lastState"] = {"terminated": _terminated(state, now)}
    runs = state["state"] == "running"
    why = (UNREACHABLE, told.trouble) if told.trouble else ("", "")
    if runs:
        container["state"] = {"running": {"startedAt": _time(state["started_s"], now)}}
    else:
        words = f"the program ended with {state['code']}; systemd starts it again"
        container["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": words}}
        why = ("ContainersNotReady", words)
    container["ready"] = runs and not told.trouble
    return _live(pod, base, "Running", container, why, now)


def _live(
    pod: JsonObject, base: JsonObject, phase: str, container: JsonObject, why: tuple[str, str], now: str
) -> JsonObject:
    ready = bool(container["ready"])
    conditions = [
        _condition(pod, "PodScheduled", now, holds=True),
        _condition(pod, "Initialized", now, holds=True),
        *(_condition(pod, kind, now, *why, holds=ready) for kind in ("ContainersReady", "Ready")),
    ]
    return {**base, "phase": phase, "conditions": conditions, "containerStatuses": [_container(pod, container)]}


def _ended(pod: JsonObject, base: JsonObject, state: Mapping[str, Any], now: str) -> JsonObject:
    good = state["code"] == 0
    words = "" if good else _LOST if state["result"] == "lost" else _SAYS.get(state["code"], "")
    reason = "PodCompleted" if good else "PodFailed"
    conditions = [
        _condition(pod, kind, now, reason, holds=kind in {"PodScheduled", "Initialized"})
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    container = {
        "ready": False,
        "started": False,
        "restartCount": state["restarts"],
        "state": {"terminated": _terminated(state, now)},
    }
    return {
        **base,
        "phase": "Succeeded" if good else "Failed",
        **({"message": words} if words else {}),
        "conditions": conditions,
        "containerStatuses": [_container(pod, container)],
    }


def _terminated(state: Mapping[str, Any], now: str) -> JsonObject:
    code = state["code"]
    words = _SAYS.get(code, "")
    return {
        "exitCode": code,
        "reason": _REASONS.get(state["result"], "Error" if code else "Completed"),
        "startedAt": _time(state["started_s"], now),
        "finishedAt": _time(state["ended_s"], now),
        **({"message": words} if words else {}),
    }


def _container(pod: JsonObject, changes: JsonObject) -> JsonObject:
    container = objects.containers(pod)[0]
    base = {"name": container["name"], "image": container.get("image", ""), "imageID": "", "restartCount": 0}
    return {**base, "lastState": {}, **changes}


def _condition(pod: JsonObject, kind: str, now: str, reason: str = "", message: str = "", *, holds: bool) -> JsonObject:
    status = "True" if holds else "False"
    before = objects.condition(pod, kind) or {}
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    words = {"reason": reason, "message": message}
    said = {name: text for name, text in words.items() if text and not holds}
    return {"type": kind, "status": status, "lastTransitionTime": since or now, **said}


def _time(seconds: float, otherwise: str) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds else otherwise


def summary(node: str, used: Sequence[tuple[JsonObject, Usage]], now: str) -> JsonObject:
    """Return kubelet's ``/stats/summary`` of Pods and what they use."""
    whole: Usage = tuple(sum(one[at] for _, one in used) for at in range(3))  # type: ignore[assignment]
    pods = [
        {
            "podRef": {"name": objects.name(pod), "namespace": objects.namespace(pod), "uid": objects.uid(pod)},
            "startTime": now,
            "containers": [{"name": objects.containers(pod)[0]["name"], "startTime": now, **_usage(now, one)}],
            **_usage(now, one),
        }
        for pod, one in used
    ]
    return {"node": {"nodeName": node, "startTime": now, **_usage(now, whole)}, "pods": pods}


def _usage(now: str, used: Usage) -> JsonObject:
    total, rate, memory = used
    return {
        "cpu": {"time": now, "usageNanoCores": rate, "usageCoreNanoSeconds": total},
        "memory": {"time": now, "usageBytes": memory, "workingSetBytes": memory},
    }
