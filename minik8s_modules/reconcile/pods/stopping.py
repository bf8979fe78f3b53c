"""Ending containers: preStop, then the signal with what is left of the grace; sidecars last, in reverse order. Pure.

A container without preStop may have to wait for the cluster's delay instead (``Settings.pod_stop_delay_s``).

The grace runs from the deletion, where there is one, else from the first container's end; what the hook and the
containers before took is read from results and observations, so that every decision in between says the same. At least
2 s are left for the signal. Source: kuberuntime_container.go (killContainer, minimumGracePeriodInSeconds),
kuberuntime_termination_order.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.reconcile.pods.container_entries import kept
from minik8s_modules.reconcile.pods.hooks import NoSuchPort, hook, hook_check, result
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.pods.pod_context import DEFAULT_GRACE_S, SIDECAR, ContainerDecision, PodContext, kinds
from minik8s_modules.reconcile.pods.probes import readiness
from minik8s_modules.reconcile.values.values import PodEvent

PRE_STOP = "preStop"
LEAST_S = 2
EVICTED, EVICTED_GRACE_S = "Evicted", 1
"""kubelet's for a node that has run out (pkg/kubelet/eviction, immediateEvictionGracePeriodSeconds)."""


def stop(
    context: PodContext, container: JsonObject, kind: str, text: str, grace_s: int | None = None, spent_s: float = 0.0
) -> ContainerDecision:
    """Return the step that ends the newest attempt within ``grace_s`` (None: the pod's); ``spent_s`` of it are over."""
    last, entry = context.seen.last(container["name"]), kept(context, container, kind)
    if last is None or entry is None:
        return ContainerDecision()
    pod_grace_s = grace_of(context.pod)
    whole_s = pod_grace_s if grace_s is None else grace_s
    left_s = max(LEAST_S, whole_s - spent_s) if spent_s else whole_s
    key = f"killing/{container['name']}/{entry['attempt']}"
    events: tuple[PodEvent, ...] = (PodEvent("Normal", "Killing", text, key, container["name"]),)
    step = ContainerDecision(entry, events=events)
    if hook(container, PRE_STOP) and left_s > 0:
        step, left_s = _after_hook(context, container, last, step, left_s)
        if left_s < 0:
            return step
    elif grace_s is None and kind == "app" and (delay := _delay(context)):
        if context.now < delay.ends_at:
            return step._replace(wake_at=delay.ends_at)
        left_s -= delay.took_s
    return step._replace(entry=entry | {"stop": {"grace_s": round(left_s, 3) if left_s % 1 else int(left_s)}})


def grace_of(pod: JsonObject) -> int:
    """Return the grace period of a pod's end in seconds: the deletion's, else the spec's; a second if evicted."""
    if objects.status(pod).get("reason") == EVICTED:
        return EVICTED_GRACE_S
    grace_s = objects.dig(pod, "metadata", "deletionGracePeriodSeconds")
    if grace_s is None:
        grace_s = objects.spec(pod).get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    return int(grace_s)


class _Delay(NamedTuple):
    """The time in which a deleted pod's endpoints leave, before its containers are told to end."""

    ends_at: datetime
    took_s: int


def _delay(context: PodContext) -> _Delay | None:
    """Return the cluster's delay of a deleted pod's signals, None where there is none, or the grace has no room."""
    end, grace_s = _end_of_grace(context.pod), grace_of(context.pod)
    took_s = min(context.inputs.settings.pod_stop_delay_s, grace_s - LEAST_S)
    if end is None or took_s <= 0:
        return None
    return _Delay(end - timedelta(seconds=grace_s - took_s), took_s)


def _after_hook(
    context: PodContext, container: JsonObject, last: ObservedContainer, step: ContainerDecision, left_s: float
) -> tuple[ContainerDecision, float]:
    """Return the step with its hook and the seconds left after it, -1 while it runs."""
    end = _end_of_grace(context.pod)
    try:
        check = hook_check(context, container, last, PRE_STOP, left_s)
    except NoSuchPort:
        return _failed(step, container, last), left_s
    known = result(context, last, PRE_STOP)
    step = step._replace(checks=(check,))
    if known.state == "unknown":
        if end is None or context.now < end:
            return step._replace(wake_at=end), -1
        return step, LEAST_S
    if known.state == "failure":
        step = _failed(step, container, last)
    return step, max(LEAST_S, left_s - known.took_s)


def _failed(step: ContainerDecision, container: JsonObject, last: ObservedContainer) -> ContainerDecision:
    event = PodEvent("Warning", "FailedPreStopHook", "PreStopHook failed", f"prestop/{last.id}", container["name"])
    return step._replace(events=(*step.events, event))


def _end_of_grace(pod: JsonObject) -> datetime | None:
    """Return when a deleted pod's grace is over; None for one that is not deleted."""
    deadline = objects.dig(pod, "metadata", "deletionTimestamp")
    return parse_rfc3339(deadline) if deadline else None


def stop_all(context: PodContext) -> dict[str, ContainerDecision]:
    """Return the steps that end a pod: all containers at once, then its sidecars one by one, the last first."""
    members = list(kinds(context.pod))
    sidecars = [one for kind, one in members if kind == SIDECAR]
    others = [(kind, one) for kind, one in members if kind != SIDECAR]
    steps = {one["name"]: stop_or_keep(context, one, kind) for kind, one in others}
    before = [one["name"] for _, one in others]
    began = _began(context, before)
    for sidecar in reversed(sidecars):
        waits = any((last := context.seen.last(name)) is not None and last.alive for name in before)
        ended = _last_end(context, before)
        spent_s = max(0.0, (ended - began).total_seconds()) if began and ended else 0.0
        step = _left_running(context, sidecar) if waits else stop_or_keep(context, sidecar, SIDECAR, spent_s)
        steps[sidecar["name"]] = step
        before.append(sidecar["name"])
    return steps


def _left_running(context: PodContext, container: JsonObject) -> ContainerDecision:
    """Return the step of a sidecar whose turn to end has not come."""
    return watched(context, container, ContainerDecision(kept(context, container, SIDECAR)))


def stop_or_keep(context: PodContext, container: JsonObject, kind: str, spent_s: float = 0.0) -> ContainerDecision:
    """Return the step that ends a container when it lives, and leaves it as it is when it does not."""
    last = context.seen.last(container["name"])
    if last is None or not last.alive:
        return ContainerDecision(kept(context, container, kind))
    text = f"Stopping container {container['name']}"
    return watched(context, container, stop(context, container, kind, text, spent_s=spent_s))


def watched(context: PodContext, container: JsonObject, step: ContainerDecision) -> ContainerDecision:
    """Return the step with the readiness of a container that still lives."""
    last = context.seen.last(container["name"])
    if last is None or not last.alive:
        return step
    verdict = readiness(context, container, last)
    return step._replace(
        checks=verdict.checks + step.checks, health=verdict.health, events=verdict.events + step.events
    )


def _began(context: PodContext, others: Sequence[str]) -> datetime | None:
    """Return when the pod's grace began to run: with its deletion, else with the end of what is no sidecar."""
    end = _end_of_grace(context.pod)
    return end - timedelta(seconds=grace_of(context.pod)) if end else _last_end(context, others)


def _last_end(context: PodContext, names: Sequence[str]) -> datetime | None:
    """Return when the last of the containers ended, None where none has."""
    ends = [last.finished_at for name in names if (last := context.seen.last(name)) is not None and last.finished_at]
    return max(ends, default=None)
