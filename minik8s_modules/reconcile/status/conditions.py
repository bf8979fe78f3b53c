"""A pod's conditions from the statuses of its containers. Times are kept while a condition keeps its value.

Source: pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resizes import IN_PROGRESS, PENDING
from minik8s_modules.reconcile.pods.desired import TERMINAL
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.values.values import Condition

UNADDRESSED = "the pod's address is not known yet"
CUT_OFF = "the pod's link or address is gone from its node"


def any_started(statuses: Iterable[JsonObject]) -> bool:
    """Return whether any of the containers has ever been made."""
    return any(status.get("containerID") for status in statuses)


def conditions(
    pod: JsonObject,
    seen: ObservedPod,
    phase: str,
    inits: Sequence[JsonObject],
    apps: Sequence[JsonObject],
    now: str,
    unreached: str = "",
) -> list[JsonObject]:
    """Return the pod's conditions: ours from the statuses of its containers, anybody else's as they are.

    ``unreached``: why nobody reaches the pod, whatever its containers do; it is not ready then. Docker tells of a
    container before a plugin's answer has come from the node.
    """
    sandbox = seen.sandbox
    sidecars = {one["name"] for one in objects.init_containers(pod) if one.get("restartPolicy") == "Always"}
    counted = [status for status in inits if status["name"] in sidecars] + list(apps)
    contained = _ready(phase, counted)
    wanted = {
        "PodReadyToStartContainers": _yes(sandbox is not None and sandbox.alive),
        "Initialized": _initialized(phase, inits, apps),
        "Ready": _gated(pod, contained) if not unreached else _unreached(contained, unreached),
        "ContainersReady": contained,
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
    incomplete = [status["name"] for status in inits if not status.get("started", status["ready"])]
    if not incomplete or any_started(apps):
        return _State("True")
    return _State("False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")


def _ready(phase: str, apps: Sequence[JsonObject]) -> _State:
    if phase in TERMINAL:
        return _State("False", "PodCompleted" if phase == "Succeeded" else "PodFailed")
    unready = [status["name"] for status in apps if not status["ready"]]
    if not unready:
        return _State("True")
    return _State("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")


def _unreached(contained: _State, why: str) -> _State:
    unknown = _State("False", "NetworkNotReady", why)
    return unknown if contained.status == "True" else contained


def _gated(pod: JsonObject, contained: _State) -> _State:
    """Return readiness with the pod's readiness gates: conditions that somebody else sets."""
    gates = [one["conditionType"] for one in objects.spec(pod).get("readinessGates") or []]
    known = {one.get("type"): one.get("status") for one in objects.status(pod).get("conditions") or []}
    closed = [
        f'the status of pod readiness gate "{gate}" is not "True", but {known[gate]}'
        if gate in known
        else f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        for gate in gates
        if known.get(gate) != "True"
    ]
    if contained.status != "True" or not closed:
        return contained
    return _State("False", "ReadinessGatesNotReady", ", ".join(closed))


def _condition(kind: str, state: _State, recorded: JsonObject | None, now: str) -> JsonObject:
    kept = recorded is not None and recorded.get("status") == state.status
    return {
        "type": kind,
        "status": state.status,
        "lastTransitionTime": (recorded or {}).get("lastTransitionTime") or now if kept else now,
        **({"reason": state.reason} if state.reason else {}),
        **({"message": state.message} if state.message else {}),
    }


def with_resizes(found: list[JsonObject], resizes: Iterable[Condition], now: str) -> list[JsonObject]:
    """Return conditions with those of a resize that is under way; one that is not, has none."""
    before = {one.get("type"): one for one in found}
    others = [one for one in found if one.get("type") not in {PENDING, IN_PROGRESS}]
    states = {one.type: _State("True", one.reason, one.message) for one in resizes}
    return others + [_condition(kind, state, before.get(kind), now) for kind, state in states.items()]
