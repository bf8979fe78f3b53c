"""One ``autoscaling/v2`` autoscaler, by ``decide_autoscaler``: how many replicas its target is to have, what it tells.

The shell scales the target, and has ``after_scaling`` say how that ended. Source: kubernetes 1.32
``pkg/controller/podautoscaler/horizontal.go`` (``reconcileAutoscaler``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.autoscaling import damping
from minik8s_modules.controllers.autoscaling.damping import Bounds, History
from minik8s_modules.controllers.autoscaling.proposals import Case, Measured, Proposal, Trouble, propose
from minik8s_modules.controllers.autoscaling.replica_counts import DEFAULTS, Tuning
from minik8s_modules.runtime.events import EventType


class Scale(NamedTuple):
    """What the ``scale`` of a target says; ``selector`` as text."""

    replicas: int
    status_replicas: int
    selector: str


class AutoscalerEvent(NamedTuple):
    """An Event on the autoscaler."""

    type: EventType
    reason: str
    message: str


class ScaleInputs(NamedTuple):
    """What is decided on.

    Attributes:
        scale: of the target; a text is why it cannot be read.
        pods: those that the scale's selector matches.
        measured: for each metric of the spec; empty where ``needs_metrics`` says that none decides.
        others: the autoscalers that select these pods too, with this one; fewer than two are none.
    """

    scale: Scale | str
    pods: Sequence[JsonObject] = ()
    measured: Sequence[Measured] = ()
    others: Sequence[Key] = ()


class Decision(NamedTuple):
    """What is to be done about one autoscaler.

    Attributes:
        status: as it is to be if nothing is scaled.
        events: what is told now.
        history: what the next decision is to remember.
        replicas: what the target is to be scaled to; None leaves it as it is.
        reason: why it is scaled.
        proposals: what each metric asked for.
        recommended: the largest of them.
        stabilized: what the windows made of it.
        error: what kept some metrics from counting, or all.
    """

    status: JsonObject
    events: tuple[AutoscalerEvent, ...]
    history: History
    replicas: int | None = None
    reason: str = ""
    proposals: tuple[Proposal | Trouble, ...] = ()
    recommended: int | None = None
    stabilized: int | None = None
    error: str = ""


def least_of(autoscaler: JsonObject) -> int:
    """Return the fewest replicas there may be; 1 where it says nothing."""
    declared = objects.spec(autoscaler).get("minReplicas")
    return 1 if declared is None else int(declared)


def needs_metrics(autoscaler: JsonObject, scale: Scale) -> bool:
    """Return whether the metrics decide: the target has replicas, and no more or fewer than it may have."""
    least, most = least_of(autoscaler), objects.spec(autoscaler)["maxReplicas"]
    return least <= scale.replicas <= most and not (scale.replicas == 0 and least != 0)


def decide_autoscaler(
    autoscaler: JsonObject, seen: ScaleInputs, history: History, now: datetime, tuning: Tuning = DEFAULTS
) -> Decision:
    """Return what is to be done about an autoscaler.

    Args:
        autoscaler: the object, with defaults.
        seen: its target and what was measured.
        history: of this autoscaler, from the last decision; empty when the process has just begun.
        now: decides who is starting, and ends the windows.
        tuning: of all autoscalers.
    """
    status = dict(objects.status(autoscaler))
    if isinstance(seen.scale, str):
        _set(status, now, "AbleToScale", "False", "FailedGetScale", _UNREAD.format(seen.scale))
        return Decision(status, (AutoscalerEvent("Warning", "FailedGetScale", seen.scale),), history, error=seen.scale)
    text = "the HPA controller was able to get the target's current scale"
    _set(status, now, "AbleToScale", "True", "SucceededGetScale", text)
    scale = seen.scale
    history = damping.begun(history, scale.replicas, now)
    least, most = least_of(autoscaler), objects.spec(autoscaler)["maxReplicas"]
    if scale.replicas == 0 and least != 0:
        text = "scaling is disabled since the replica count of the target is zero"
        _set(status, now, "ScalingActive", "False", "ScalingDisabled", text)
        return Decision(_counted(status, 0, 0, ()), (), history)
    if scale.replicas > most:
        return _bounded(status, scale, history, most, "Current number of replicas above Spec.MaxReplicas")
    if scale.replicas < least:
        return _bounded(status, scale, history, least, "Current number of replicas below Spec.MinReplicas")
    return _by_metrics(autoscaler, status, seen, scale, history, now, tuning)


_UNREAD = "the HPA controller was unable to get the target's current scale: {}"


def _bounded(status: JsonObject, scale: Scale, history: History, replicas: int, reason: str) -> Decision:
    shown = _counted(status, scale.replicas, status.get("desiredReplicas") or 0, ())
    return Decision(shown, (), history, replicas, reason)


def _by_metrics(
    autoscaler: JsonObject,
    status: JsonObject,
    seen: ScaleInputs,
    scale: Scale,
    history: History,
    now: datetime,
    tuning: Tuning,
) -> Decision:
    if trouble := _trouble_of_selector(scale, seen.others):
        reason = trouble.reason.replace("SelectorRequired", "InvalidSelector")
        _set(status, now, "ScalingActive", "False", reason, trouble.error)
        return _failed(
            status, scale, history, (AutoscalerEvent("Warning", trouble.reason, trouble.message),), trouble.message
        )
    case = Case(objects.namespace(autoscaler), scale.replicas, scale.status_replicas, seen.pods, now, tuning)
    metrics = objects.spec(autoscaler).get("metrics") or []
    proposals = tuple(propose(metric, found, case) for metric, found in zip(metrics, seen.measured, strict=True))
    troubles = [each for each in proposals if isinstance(each, Trouble)]
    events = tuple(AutoscalerEvent("Warning", each.reason, each.error) for each in troubles)
    error = _invalid(troubles, len(metrics))
    best = _largest(proposals)
    if best is None or (troubles and best.replicas < scale.replicas):
        text = f"the HPA was unable to compute the replica count: {troubles[0].error}"
        _set(status, now, "ScalingActive", "False", troubles[0].reason, text)
        return _failed(status, scale, history, events, error, proposals)
    text = f"the HPA was able to successfully calculate a replica count from {best.name}"
    _set(status, now, "ScalingActive", "True", "ValidMetricFound", text)
    damped, history, stable = _damped(autoscaler, status, scale, best.replicas, history, now, tuning)
    unchanged = damped == scale.replicas
    desired = damped if unchanged else status.get("desiredReplicas") or 0
    return Decision(
        status=_counted(status, scale.replicas, desired, _statuses(proposals)),
        events=events,
        history=history,
        replicas=None if unchanged else damped,
        reason=_reason(best, scale.replicas),
        proposals=proposals,
        recommended=best.replicas,
        stabilized=stable,
        error=error,
    )


def _failed(
    status: JsonObject,
    scale: Scale,
    history: History,
    events: tuple[AutoscalerEvent, ...],
    error: str,
    proposals: tuple[Proposal | Trouble, ...] = (),
) -> Decision:
    shown = _counted(status, scale.replicas, status.get("desiredReplicas") or 0, _statuses(proposals))
    published = (*events, AutoscalerEvent("Warning", "FailedComputeMetricsReplicas", error))
    return Decision(shown, published, history, proposals=proposals, error=error)


def _statuses(proposals: Sequence[Proposal | Trouble]) -> list[JsonObject]:
    return [each.status if isinstance(each, Proposal) else {"type": ""} for each in proposals]


def _trouble_of_selector(scale: Scale, others: Sequence[Key]) -> Trouble | None:
    """Return why the pods of a target cannot be told (``validateAndParseSelector``)."""
    if not scale.selector:
        return Trouble("SelectorRequired", "the HPA target's scale is missing a selector", "selector is required")
    try:
        parse_label_selector(scale.selector)
    except BadRequest as error:
        text = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return Trouble("InvalidSelector", text, text)
    if len(others) > 1:
        named = " ".join(f"{{{each.name} {each.namespace}}}" for each in sorted(others))
        text = f"pods by selector {scale.selector} are controlled by multiple HPAs: [{named}]"
        return Trouble("AmbiguousSelector", text, text)
    return None


def _invalid(troubles: Sequence[Trouble], count: int) -> str:
    if not troubles:
        return ""
    return f"invalid metrics ({len(troubles)} invalid out of {count}), first error is: {troubles[0].message}"


def _largest(proposals: Sequence[Proposal | Trouble]) -> Proposal | None:
    best: Proposal | None = None
    for each in proposals:
        if isinstance(each, Proposal) and (best is None or best.replicas == 0 or each.replicas > best.replicas):
            best = each
    return best


def _reason(best: Proposal, current: int) -> str:
    if best.replicas > current:
        return f"{best.name} above target"
    return "All metrics below target" if best.replicas < current else ""


def _damped(
    autoscaler: JsonObject,
    status: JsonObject,
    scale: Scale,
    desired: int,
    history: History,
    now: datetime,
    tuning: Tuning,
) -> tuple[int, History, int]:
    behavior = objects.spec(autoscaler).get("behavior")
    bounds = Bounds(scale.replicas, least_of(autoscaler), objects.spec(autoscaler)["maxReplicas"])
    stable, history = damping.stabilized(
        behavior, history, scale.replicas, desired, now, tuning.downscale_stabilization_s
    )
    _set(status, now, "AbleToScale", "True", stable.reason, stable.message)
    verdict = damping.limited(behavior, history, bounds, stable.replicas, now)
    limits = "False" if verdict.replicas == stable.replicas else "True"
    _set(status, now, "ScalingLimited", limits, verdict.reason, verdict.message)
    return verdict.replicas, history, stable.replicas


def after_scaling(
    autoscaler: JsonObject, decision: Decision, scale: Scale, now: datetime, failure: str = ""
) -> Decision:
    """Return the decision after its replicas were written, or not, for the reason ``failure``."""
    if decision.replicas is None:
        raise TypeError("a decision that scales nothing has no outcome")
    status, wanted = dict(decision.status), decision.replicas
    if failure:
        text = f"the HPA controller was unable to update the target scale: {failure}"
        _set(status, now, "AbleToScale", "False", "FailedUpdateScale", text)
        message = f"New size: {wanted}; reason: {decision.reason}; error: {failure}"
        event = AutoscalerEvent("Warning", "FailedRescale", message)
        return decision._replace(status=status, events=(*decision.events, event), error=failure)
    text = f"the HPA controller was able to update the target scale to {wanted}"
    _set(status, now, "AbleToScale", "True", "SucceededRescale", text)
    behavior = objects.spec(autoscaler).get("behavior")
    event = AutoscalerEvent("Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {decision.reason}")
    return decision._replace(
        status={**status, "desiredReplicas": wanted, "lastScaleTime": rfc3339(now)},
        events=(*decision.events, event),
        history=damping.changed(behavior, decision.history, scale.replicas, wanted, now),
    )


def _counted(status: JsonObject, current: int, desired: int, metrics: Sequence[JsonObject]) -> JsonObject:
    """Return a status (``setStatus``) that keeps of the old one the last time of scaling and the conditions."""
    kept = {field: status[field] for field in ("lastScaleTime", "conditions") if status.get(field)}
    found: JsonObject = {"currentReplicas": current, "desiredReplicas": desired, **kept}
    return {**found, "currentMetrics": [*metrics]} if metrics else found


def _set(status: JsonObject, now: datetime, kind: str, value: str, reason: str, message: str) -> None:
    """Set a condition of the status, in place; only a change of its value changes its time (``setCondition``)."""
    known: list[JsonObject] = list(status.get("conditions") or [])
    place = next((index for index, each in enumerate(known) if each.get("type") == kind), len(known))
    old = known[place] if place < len(known) else {}
    since = old.get("lastTransitionTime") if old.get("status") == value else rfc3339(now)
    known[place : place + 1] = [
        {"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
    ]
    status["conditions"] = known
