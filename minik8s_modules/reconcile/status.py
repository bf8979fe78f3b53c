"""The status of a pod from what was observed and decided; the only place that says what a pod's status is.

Pure: ``loop.py`` writes the result when it differs. Times of conditions are kept while the condition keeps its value.
Source: pkg/kubelet/kubelet_pods.go (getPhase, convertToAPIContainerStatuses), pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.reconcile.containers import CREATING, exit_code_of, recorded_status
from minik8s_modules.reconcile.desired import INITIALIZING, TERMINAL
from minik8s_modules.reconcile.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.resources import qos_class
from minik8s_modules.reconcile.values import PodDecision, Waiting

JsonObject = dict[str, Any]
_KILLED = 137


class Place(NamedTuple):
    """Addresses of the pod's node and of the pod, "" while there is none."""

    host_ip: str
    pod_ip: str


def pod_status(pod: JsonObject, seen: ObservedPod, decision: PodDecision, place: Place, now: datetime) -> JsonObject:
    """Return the whole ``status`` of the pod."""
    inits = [_container_status(pod, one, seen, decision) for one in objects.init_containers(pod)]
    apps = [_container_status(pod, one, seen, decision) for one in objects.containers(pod)]
    for status in inits:
        status["ready"] = objects.dig(status, "state", "terminated", "exitCode") == 0
        status.pop("started", None)
    extra = [
        {**_container_status(pod, one, seen, decision), "ready": False}
        for one in objects.spec(pod).get("ephemeralContainers") or []
    ]
    before = objects.status(pod)
    initialized = all(status["ready"] for status in inits) or _any_started(apps)
    phase = _phase(pod, inits, apps, decision, initialized=initialized)
    status = {
        "phase": phase,
        "conditions": _conditions(pod, seen, phase, inits, apps, rfc3339(now)),
        "startTime": before.get("startTime") or rfc3339(now),
        "qosClass": before.get("qosClass") or qos_class(pod),
        "containerStatuses": apps,
        **({"initContainerStatuses": inits} if inits else {}),
        **({"ephemeralContainerStatuses": extra} if extra else {}),
        **{key: before[key] for key in ("reason", "message", "nominatedNodeName") if before.get(key)},
        **({"reason": decision.reason, "message": decision.message} if decision.reason else {}),
    }
    return status | _addresses(pod, before, place)


def _addresses(pod: JsonObject, before: JsonObject, place: Place) -> JsonObject:
    pod_ip = place.pod_ip or before.get("podIP") or ""
    if objects.spec(pod).get("hostNetwork"):
        pod_ip = place.host_ip
    found: JsonObject = {}
    if place.host_ip:
        found |= {"hostIP": place.host_ip, "hostIPs": [{"ip": place.host_ip}]}
    if pod_ip:
        found |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    return found


def _container_status(pod: JsonObject, container: JsonObject, seen: ObservedPod, decision: PodDecision) -> JsonObject:
    name = container["name"]
    # a container between create and start, some milliseconds, is nothing to tell
    attempts = [one for one in seen.containers.get(name, ()) if one.started_at is not None or one.over]
    waiting = decision.waiting.get(name)
    if not attempts:
        return _unseen(pod, container, waiting, over=bool(decision.phase) or objects.is_deleting(pod))
    last = attempts[-1]
    state = _state(last, waiting)
    before = attempts[-2] if len(attempts) > 1 else None
    if "waiting" in state and last.over:
        before = last
    return {
        "name": name,
        "state": state,
        "lastState": {"terminated": _terminated(before)} if before is not None and not before.alive else {},
        "ready": last.alive,
        "started": last.alive,
        "restartCount": last.attempt,
        "image": last.image,
        "imageID": f"docker://{last.image_id}" if last.image_id else "",
        "containerID": f"docker://{last.id}",
    }


def _state(last: ObservedContainer, waiting: Waiting | None) -> JsonObject:
    if last.alive:
        return {"running": _time("startedAt", last.started_at)}
    if last.over and waiting in (None, CREATING):
        return {"terminated": _terminated(last)}
    return {"waiting": _waiting(waiting or CREATING)}


def _waiting(waiting: Waiting) -> JsonObject:
    return {"reason": waiting.reason, **({"message": waiting.message} if waiting.message else {})}


def _unseen(pod: JsonObject, container: JsonObject, waiting: Waiting | None, *, over: bool) -> JsonObject:
    """Return the status of a container of which nothing is there: not made yet, or removed."""
    recorded = recorded_status(pod, container["name"])
    ended = objects.dig(recorded, "state", "terminated") or objects.dig(recorded, "lastState", "terminated")
    initializing = bool(objects.init_containers(pod)) and container in objects.containers(pod)
    state: JsonObject = {"waiting": _waiting(waiting or (INITIALIZING if initializing else CREATING))}
    if recorded.get("containerID") and objects.dig(recorded, "state", "running"):
        ended = {
            "exitCode": _KILLED,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "containerID": recorded["containerID"],
        }
    if ended and (over or waiting is None):
        state, ended = {"terminated": ended}, objects.dig(recorded, "lastState", "terminated")
    return {
        "name": container["name"],
        "state": state,
        "lastState": {"terminated": ended} if ended else {},
        "ready": False,
        "started": False,
        "restartCount": int(recorded.get("restartCount") or 0),
        "image": container["image"],
        "imageID": recorded.get("imageID") or "",
        **({"containerID": recorded["containerID"]} if recorded.get("containerID") else {}),
    }


def _terminated(ended: ObservedContainer) -> JsonObject:
    exit_code = exit_code_of(ended)
    message = ended.error
    return {
        "exitCode": exit_code,
        "reason": _reason(ended, exit_code),
        **({"message": message} if message else {}),
        **_time("startedAt", ended.started_at),
        **_time("finishedAt", ended.finished_at),
        "containerID": f"docker://{ended.id}",
    }


def _reason(ended: ObservedContainer, exit_code: int) -> str:
    if ended.oom_killed:
        return "OOMKilled"
    if ended.started_at is None:
        return "StartError"
    return "Completed" if exit_code == 0 else "Error"


def _time(name: str, moment: datetime | None) -> JsonObject:
    # nulls are left out: what is stored must read back equal to what was sent
    return {name: rfc3339(moment)} if moment else {}


def _any_started(statuses: Iterable[JsonObject]) -> bool:
    return any(status.get("containerID") for status in statuses)


def _phase(
    pod: JsonObject,
    inits: Sequence[JsonObject],
    apps: Sequence[JsonObject],
    decision: PodDecision,
    *,
    initialized: bool,
) -> str:
    recorded = str(objects.status(pod).get("phase") or "")
    if recorded in TERMINAL:
        return recorded
    if decision.phase:
        return decision.phase
    if inits and not initialized:
        return "Pending"
    # a container that waits for its first start holds the pod in Pending; one that waits for a restart does not
    if any("waiting" in status["state"] and not status["lastState"] for status in apps):
        return "Pending"
    return "Running"


def _conditions(
    pod: JsonObject,
    seen: ObservedPod,
    phase: str,
    inits: Sequence[JsonObject],
    apps: Sequence[JsonObject],
    now: str,
) -> list[JsonObject]:
    sandbox = seen.sandbox
    wanted = {
        "PodReadyToStartContainers": _yes(sandbox is not None and sandbox.alive),
        "Initialized": _initialized(phase, inits, apps),
        "Ready": _ready(phase, apps),
        "ContainersReady": _ready(phase, apps),
        "PodScheduled": _yes(True),  # noqa: FBT003 - bound, or it would not be here
    }
    recorded = {one.get("type"): one for one in objects.status(pod).get("conditions") or []}
    ours = [_condition(kind, state, recorded.get(kind), now) for kind, state in wanted.items()]
    return ours + [one for kind, one in recorded.items() if kind not in wanted]


class _State(NamedTuple):
    status: str
    reason: str = ""
    message: str = ""


def _yes(value: bool) -> _State:  # noqa: FBT001 - a conversion
    return _State("True" if value else "False")


def _initialized(phase: str, inits: Sequence[JsonObject], apps: Sequence[JsonObject]) -> _State:
    if phase == "Succeeded":
        return _State("True", "PodCompleted")
    incomplete = [status["name"] for status in inits if not status["ready"]]
    if not incomplete or _any_started(apps):
        return _State("True")
    return _State("False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")


def _ready(phase: str, apps: Sequence[JsonObject]) -> _State:
    if phase in TERMINAL:
        return _State("False", "PodCompleted" if phase == "Succeeded" else "PodFailed")
    unready = [status["name"] for status in apps if not status["ready"]]
    if not unready:
        return _State("True")
    return _State("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")


def _condition(kind: str, state: _State, recorded: JsonObject | None, now: str) -> JsonObject:
    kept = recorded is not None and recorded.get("status") == state.status
    return {
        "type": kind,
        "status": state.status,
        "lastTransitionTime": (recorded or {}).get("lastTransitionTime") or now if kept else now,
        **({"reason": state.reason} if state.reason else {}),
        **({"message": state.message} if state.message else {}),
    }
