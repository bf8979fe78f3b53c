"""The row ``kubectl get pods`` shows: how phase, container states and deletion become one word and restarts.

Source: kubernetes ``pkg/printers/internalversion/printers.go`` ``printPod``.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api.objects import (
    JsonObject,
    condition,
    containers,
    dig,
    init_containers,
    is_deleting,
    name,
    spec,
    status,
)
from minik8s_modules.api.tables import cells as tables

COLUMNS = [
    tables.NAME,
    tables.Column("Ready", description="Containers that are ready, of all containers."),
    tables.Column("Status", description="The phase, or why the pod is not there yet."),
    tables.Column("Restarts", description="Restarts of the pod's containers, and when the last one was."),
    tables.AGE,
    tables.Column("IP", priority=1, description="Address of the pod."),
    tables.Column("Node", priority=1, description="Node the pod is bound to."),
    tables.Column("Nominated Node", priority=1, description="Node that is being made free for the pod."),
    tables.Column("Readiness Gates", priority=1, description="Readiness gates that are true, of all."),
]


class _Summary(NamedTuple):
    word: str
    ready: int
    restarts: int
    last_restart: str


def cells(pod: JsonObject, now: datetime) -> list[Any]:
    """Return the cells of one pod, in the order of ``COLUMNS``."""
    summary = _summarize(pod)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({tables.since(summary.last_restart, now)} ago)"
    counted = len(containers(pod)) + len(_sidecars(pod))
    return [
        name(pod), f"{summary.ready}/{counted}", summary.word, restarts, tables.age(pod, now),
        status(pod).get("podIP") or tables.NONE, spec(pod).get("nodeName") or tables.NONE,
        status(pod).get("nominatedNodeName") or tables.NONE, _gates(pod),
    ]  # fmt: skip


def _summarize(pod: JsonObject) -> _Summary:
    phase = status(pod).get("phase") or ""
    word = status(pod).get("reason") or phase
    if dig(condition(pod, "PodScheduled"), "reason") == "SchedulingGated":
        word = "SchedulingGated"
    starting = status(pod).get("initContainerStatuses") or []
    sidecars = _sidecars(pod)
    initializing, ready = _init_word(starting, init_containers(pod), sidecars)
    if initializing and dig(condition(pod, "Initialized"), "status") != "True":
        summary = _Summary(initializing, 0, _restarts(starting), _last_restart(starting))
    else:
        running = [each for each in starting if each.get("name") in sidecars]
        summary = _app_summary(pod, initializing or word, running)
    return summary._replace(word=_deletion_word(pod, phase) or summary.word, ready=summary.ready + ready)


def _deletion_word(pod: JsonObject, phase: str) -> str:
    if not is_deleting(pod):
        return ""
    if status(pod).get("reason") == "NodeLost":
        return "Unknown"
    return "" if phase in {"Succeeded", "Failed"} else "Terminating"


def _sidecars(pod: JsonObject) -> set[str]:
    """Return the init containers that run on beside the others, and are counted with them."""
    return {each["name"] for each in init_containers(pod) if each.get("restartPolicy") == "Always"}


def _init_word(
    statuses: Sequence[JsonObject], declared: Sequence[JsonObject], sidecars: AbstractSet[str]
) -> tuple[str, int]:
    """Return what the first init container that has not ended well says, "" for none, and the sidecars ready till then.

    One that runs and is a sidecar says nothing.
    """
    ready = 0
    for index, container in enumerate(statuses):
        state = container.get("state") or {}
        if dig(state, "terminated", "exitCode") == 0:
            continue
        if container.get("name") in sidecars and container.get("started") and state.get("running") is not None:
            ready += bool(container.get("ready"))
            continue
        if state.get("terminated") is not None:
            return f"Init:{_ended(state['terminated'])}", ready
        waiting = dig(state, "waiting", "reason") or ""
        said = waiting if waiting not in {"", "PodInitializing"} else f"{index}/{len(declared)}"
        return f"Init:{said}", ready
    return "", ready


def _ended(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _app_summary(pod: JsonObject, word: str, sidecars: Sequence[JsonObject]) -> _Summary:
    statuses = status(pod).get("containerStatuses") or []
    ready = 0
    for container in reversed(statuses):
        state = container.get("state") or {}
        if dig(state, "waiting", "reason"):
            word = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            word = _ended(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if word == "Completed" and ready:
        word = "Running" if dig(condition(pod, "Ready"), "status") == "True" else "NotReady"
    return _Summary(word, ready, _restarts([*sidecars, *statuses]), _last_restart([*sidecars, *statuses]))


def _restarts(statuses: Sequence[JsonObject]) -> int:
    return sum(container.get("restartCount", 0) for container in statuses)


def _last_restart(statuses: Sequence[JsonObject]) -> str:
    times = (dig(container, "lastState", "terminated", "finishedAt") or "" for container in statuses)
    return max(times, default="")


def _gates(pod: JsonObject) -> str:
    gates = spec(pod).get("readinessGates") or []
    if not gates:
        return tables.NONE
    true = [g for g in gates if dig(condition(pod, g.get("conditionType", "")), "status") == "True"]
    return f"{len(true)}/{len(gates)}"
