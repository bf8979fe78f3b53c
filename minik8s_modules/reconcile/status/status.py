"""The status of a pod from what was observed and decided; the only place that says what a pod's status is.

Pure: ``loop.py`` writes the result when it differs. Times of conditions are kept while the condition keeps its value.
Source: pkg/kubelet/kubelet_pods.go (getPhase, convertToAPIContainerStatuses), pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resources import qos_class
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.reconcile.pods.containers import exit_code_of
from minik8s_modules.reconcile.pods.desired import INITIALIZING, TERMINAL
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.pods.pod_context import CREATING, recorded_status
from minik8s_modules.reconcile.status.conditions import CUT_OFF, UNADDRESSED, any_started, conditions, with_resizes
from minik8s_modules.reconcile.values.values import Health, PodDecision, Waiting

_KILLED = 137


class Place(NamedTuple):
    """Addresses of the pod's node and of the pod, "" while there is none."""

    host_ip: str
    pod_ip: str
    dual_stack: DualStack = SINGLE_STACK
    host_ips: tuple[str, ...] = ()
    """The node's addresses of each family, where it has one of IPv6."""


def pod_status(
    pod: JsonObject, seen: ObservedPod, decision: PodDecision, place: Place, now: datetime, *, attached: bool = True
) -> JsonObject:
    """Return the whole ``status`` of the pod; ``attached``: it is not known to be without network."""
    inits = [_container_status(pod, one, seen, decision) for one in objects.init_containers(pod)]
    apps = [_container_status(pod, one, seen, decision) for one in objects.containers(pod)]
    sidecars = [one for one in objects.init_containers(pod) if one.get("restartPolicy") == "Always"]
    names = {one["name"] for one in sidecars}
    for status in inits:
        if status["name"] not in names:
            status["ready"] = objects.dig(status, "state", "terminated", "exitCode") == 0
            status.pop("started", None)
    extra = [
        {**_container_status(pod, one, seen, decision), "ready": False}
        for one in objects.spec(pod).get("ephemeralContainers") or []
    ]
    before = objects.status(pod)
    initialized = all(status.get("started", status["ready"]) for status in inits) or any_started(apps)
    phase = _phase(pod, inits, apps, decision, initialized=initialized)
    addresses = _addresses(pod, before, place)
    unreached = "" if attached else CUT_OFF
    if "podIP" not in addresses and not objects.spec(pod).get("hostNetwork"):
        unreached = UNADDRESSED
    status = {
        "phase": phase,
        "conditions": with_resizes(
            conditions(pod, seen, phase, inits, apps, rfc3339(now), unreached), decision.resizes, rfc3339(now)
        ),
        "startTime": before.get("startTime") or rfc3339(now),
        "qosClass": before.get("qosClass") or qos_class(pod),
        "containerStatuses": apps,
        **({"initContainerStatuses": inits} if inits else {}),
        **({"ephemeralContainerStatuses": extra} if extra else {}),
        **{key: before[key] for key in ("reason", "message", "nominatedNodeName") if before.get(key)},
        **({"reason": decision.reason, "message": decision.message} if decision.reason else {}),
    }
    return status | addresses


def _addresses(pod: JsonObject, before: JsonObject, place: Place) -> JsonObject:
    pod_ip = place.pod_ip or before.get("podIP") or ""
    if objects.spec(pod).get("hostNetwork"):
        pod_ip = place.host_ip
    found: JsonObject = {}
    if place.host_ip:
        found |= {"hostIP": place.host_ip, "hostIPs": [{"ip": each} for each in place.host_ips or (place.host_ip,)]}
    if pod_ip:
        found |= {"podIP": pod_ip, "podIPs": [{"ip": each} for each in place.dual_stack.addresses_of(pod_ip)]}
    return found


def _container_status(pod: JsonObject, container: JsonObject, seen: ObservedPod, decision: PodDecision) -> JsonObject:
    return _state_of(pod, container, seen, decision) | _resources(pod, container["name"], decision)


def _resources(pod: JsonObject, name: str, decision: PodDecision) -> JsonObject:
    """Return what the container was given and runs with; in a pod that asks for nothing, nothing is told of it."""
    known = decision.resources.get(name)
    if known is None:
        recorded = recorded_status(pod, name)
        return {field: recorded[field] for field in ("allocatedResources", "resources") if field in recorded}
    if qos_class(pod) == "BestEffort":
        return {}
    requests = known.allocated.get("requests")
    return {**({"allocatedResources": requests} if requests else {}), "resources": known.actual}


def _state_of(pod: JsonObject, container: JsonObject, seen: ObservedPod, decision: PodDecision) -> JsonObject:
    name = container["name"]
    # a container between create and start, some milliseconds, is nothing to tell
    attempts = [one for one in seen.containers.get(name, ()) if one.started_at is not None or one.over]
    waiting = decision.waiting.get(name)
    health = decision.health.get(name, Health(started=True, ready=True))
    if not attempts:
        return _unseen(pod, container, waiting, over=bool(decision.phase) or objects.is_deleting(pod))
    last = attempts[-1]
    messages = _messages(pod, name)
    state = {"waiting": _waiting(pod, waiting)} if last.alive and health.held else _state(pod, last, waiting, messages)
    before = attempts[-2] if len(attempts) > 1 else None
    if "waiting" in state and last.over:
        before = last
    return {
        "name": name,
        "state": state,
        "lastState": {"terminated": _terminated(before, messages)} if before is not None and not before.alive else {},
        "ready": last.alive and health.ready,
        "started": last.alive and health.started,
        "restartCount": last.attempt,
        "image": last.image,
        "imageID": f"docker://{last.image_id}" if last.image_id else "",
        "containerID": f"docker://{last.id}",
    }


def _messages(pod: JsonObject, name: str) -> dict[str, str]:
    """Return the messages of ended containers that the API has, by their ids: who has them may have forgotten them."""
    recorded = recorded_status(pod, name)
    ended = [objects.dig(recorded, state, "terminated") or {} for state in ("state", "lastState")]
    return {str(one.get("containerID")): str(one.get("message") or "") for one in ended if one}


def _state(
    pod: JsonObject, last: ObservedContainer, waiting: Waiting | None, messages: Mapping[str, str]
) -> JsonObject:
    if last.alive:
        return {"running": _time("startedAt", last.started_at)}
    if last.over and waiting in (None, CREATING):
        return {"terminated": _terminated(last, messages)}
    return {"waiting": _waiting(pod, waiting)}


def _waiting(pod: JsonObject, waiting: Waiting | None) -> JsonObject:
    """Return why a container waits; all of a pod with init containers initialize (convertStatusToAPIStatus)."""
    waiting = waiting or CREATING
    if waiting.reason == CREATING.reason and objects.init_containers(pod):
        waiting = waiting._replace(reason=INITIALIZING.reason)
    return {"reason": waiting.reason, **({"message": waiting.message} if waiting.message else {})}


def _unseen(pod: JsonObject, container: JsonObject, waiting: Waiting | None, *, over: bool) -> JsonObject:
    """Return the status of a container of which nothing is there: not made yet, or removed."""
    recorded = recorded_status(pod, container["name"])
    ended = objects.dig(recorded, "state", "terminated") or objects.dig(recorded, "lastState", "terminated")
    state: JsonObject = {"waiting": _waiting(pod, waiting)}
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


def _terminated(ended: ObservedContainer, messages: Mapping[str, str]) -> JsonObject:
    exit_code, name = exit_code_of(ended), f"docker://{ended.id}"
    message = ended.error or (messages.get(name, "") if ended.message is None else ended.message)
    return {
        "exitCode": exit_code,
        "reason": _reason(ended, exit_code),
        **({"message": message} if message else {}),
        **_time("startedAt", ended.started_at),
        **_time("finishedAt", ended.finished_at),
        "containerID": name,
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
