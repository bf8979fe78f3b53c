"""What the probes and the postStart hook of a live container say: is it ready, has it started, must it go. Pure.

The gateway runs what ``examine`` declares and tells results by check; while one is not known yet, the API's record of
the same container counts, so that nothing becomes unready because a reconciler or a gateway was restarted. Liveness and
readiness are declared once the startup probe has succeeded. A condemned container keeps its checks until it is dead:
the gateway's result is what condemns it, whoever reads it. Source: pkg/kubelet/prober/worker.go, prober_manager.go.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.reconcile.pods.hooks import NoSuchPort, action_of, check_id, hook, hook_check, is_recorded, result
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.pods.pod_context import PodContext, recorded_status
from minik8s_modules.reconcile.values.values import Health, PodEvent

_FIELDS = {"startup": "startupProbe", "liveness": "livenessProbe", "readiness": "readinessProbe"}
_DEADLY = {"startup": "failed startup probe", "liveness": "failed liveness probe"}
POST_START = "postStart"
HOOK_FAILED = "FailedPostStartHook"


class Verdict(NamedTuple):
    """What a live container's probes say; ``kill`` names why it must go, "" when it may stay."""

    checks: tuple[JsonObject, ...] = ()
    health: Health = Health()
    kill: str = ""
    grace_s: int | None = None
    """The grace period of the probe that failed, None for the pod's."""
    events: tuple[PodEvent, ...] = ()


def examine(context: PodContext, container: JsonObject, last: ObservedContainer) -> Verdict:
    """Return the verdict on a live container of the pod's current sandbox."""
    if hook(container, POST_START) and not is_recorded(context, container, last):
        verdict = _after_start(context, container, last)
        if verdict is not None:
            return verdict
    started = has_started(context, container, last)
    # The startup probe is asked for until the API says started: its answer would else be forgotten before that.
    wanted = dict.fromkeys(_FIELDS, started) | {"startup": not _is_recorded_started(context, container, last)}
    names = [name for name in _FIELDS if container.get(_FIELDS[name]) and wanted[name]]
    checks, events = _checks(context, container, last, names)
    ready = started and _is_ready(context, container, last)
    failed = next((name for name in names if name in _DEADLY and _has_failed(context, last, name)), "")
    grace_s = container[_FIELDS[failed]].get("terminationGracePeriodSeconds") if failed else None
    return Verdict(checks, Health(started, ready), _DEADLY.get(failed, ""), grace_s, events)


def readiness(context: PodContext, container: JsonObject, last: ObservedContainer) -> Verdict:
    """Return the verdict on a container that is being stopped: only its readiness is still looked at."""
    started = has_started(context, container, last)
    names = ["readiness"] if started and container.get(_FIELDS["readiness"]) else []
    checks, events = _checks(context, container, last, names)
    return Verdict(checks, Health(started, started and _is_ready(context, container, last)), events=events)


def has_started(context: PodContext, container: JsonObject, last: ObservedContainer) -> bool:
    """Return whether a live container has got through its startup probe."""
    if not container.get(_FIELDS["startup"]) or result(context, last, "startup").state == "success":
        return True
    return _is_recorded_started(context, container, last)


def _is_recorded_started(context: PodContext, container: JsonObject, last: ObservedContainer) -> bool:
    status = recorded_status(context.pod, container["name"])
    return is_recorded(context, container, last) and bool(status.get("started"))


def _after_start(context: PodContext, container: JsonObject, last: ObservedContainer) -> Verdict | None:
    """Return the verdict while postStart has not succeeded, None once it has."""
    name, known = container["name"], result(context, last, POST_START)
    if known.state == "success":
        return None
    held = Health(held=True)
    checks: tuple[JsonObject, ...] = ()
    try:
        checks = (hook_check(context, container, last, POST_START),)
    except NoSuchPort:
        known = known._replace(state="failure")
    if known.state == "unknown":
        return Verdict(checks, held)
    event = PodEvent("Warning", HOOK_FAILED, "PostStartHook failed", f"{HOOK_FAILED}/{last.id}", name)
    return Verdict(checks, held, HOOK_FAILED, None, (event,))


def _is_ready(context: PodContext, container: JsonObject, last: ObservedContainer) -> bool:
    if not container.get(_FIELDS["readiness"]):
        return True
    known = result(context, last, "readiness")
    if known.state != "unknown":
        return known.state == "success"
    return is_recorded(context, container, last) and bool(recorded_status(context.pod, container["name"]).get("ready"))


def _has_failed(context: PodContext, last: ObservedContainer, name: str) -> bool:
    return result(context, last, name).state == "failure"


def _checks(
    context: PodContext, container: JsonObject, last: ObservedContainer, names: list[str]
) -> tuple[tuple[JsonObject, ...], tuple[PodEvent, ...]]:
    checks: list[JsonObject] = []
    events: list[PodEvent] = []
    for name in names:
        try:
            checks.append(_check(context, container, last, name))
        except NoSuchPort as error:
            text = f"{name.capitalize()} probe errored: {error}"
            events.append(PodEvent("Warning", "Unhealthy", text, f"unhealthy/{text}", container["name"]))
        known = result(context, last, name)
        if known.streak < 0:
            text = f"{name.capitalize()} probe failed: {known.message}"
            key = f"unhealthy/{check_id(last, name)}/{known.streak}/{known.message}"
            events.append(PodEvent("Warning", "Unhealthy", text, key, container["name"]))
    return tuple(checks), tuple(events)


def _check(context: PodContext, container: JsonObject, last: ObservedContainer, name: str) -> JsonObject:
    probe = container[_FIELDS[name]]
    return {
        "id": check_id(last, name),
        "container": last.id,
        "started_at": rfc3339(last.started_at) if last.started_at else None,
        "initial_delay_s": probe.get("initialDelaySeconds") or 0,
        "period_s": probe.get("periodSeconds") or 10,
        "timeout_s": probe.get("timeoutSeconds") or 1,
        "success": probe.get("successThreshold") or 1,
        "failure": probe.get("failureThreshold") or 3,
        **action_of(context, container, probe),
    }
