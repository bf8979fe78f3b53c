"""What a HorizontalPodAutoscaler that is applied would do at once, by what Pods use now.

The controller's own decider says it, as if the controller had just begun: nothing was recommended before. Metrics that
are no Pod's own, and targets of other kinds than workloads, only the controllers read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import stored_kind, to_storage
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import HORIZONTAL_POD_AUTOSCALER, KINDS, POD_METRICS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.base.clock import Clock
from minik8s_modules.controllers.autoscaling.autoscalers import (
    Decision,
    Scale,
    ScaleInputs,
    decide_autoscaler,
    needs_metrics,
)
from minik8s_modules.controllers.autoscaling.damping import History
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.controllers.autoscaling.targets import WORKLOADS, kind_of, scale_in
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of

_ELSEWHERE = Unread("metrics of this type are read by the controllers alone")


def is_autoscaler(obj: JsonObject) -> bool:
    """Return whether an object is an autoscaler of Kubernetes' form, in any version."""
    kind = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return kind is not None and stored_kind(kind) == HORIZONTAL_POD_AUTOSCALER


def autoscaler_notes(
    applied: Sequence[JsonObject], pods: Iterable[JsonObject], api: Any, clock: Clock
) -> tuple[Note, ...]:
    """Return what the autoscalers among ``applied`` would do; raises as the API does.

    Args:
        applied: the objects that are created or changed, among which targets may be.
        pods: of the cluster.
        api: lists workloads, and what Pods use.
        clock: tells what is starting.
    """
    found = [one for one in applied if is_autoscaler(one)]
    if not found:
        return ()
    readings, everything = Readings(api, clock), [*pods]
    readings.refresh(0)
    return tuple(_note(_stored(one), applied, everything, api, readings, clock.now()) for one in found)


def _stored(obj: JsonObject) -> JsonObject:
    kind = KINDS.by_api_version(str(obj["apiVersion"]), str(obj["kind"]))
    return obj if kind is None else to_storage(kind, obj)


def _note(
    autoscaler: JsonObject,
    planned: Iterable[JsonObject],
    pods: Iterable[JsonObject],
    api: Any,
    readings: Readings,
    now: datetime,
) -> Note:
    space, reference = objects.namespace(autoscaler), objects.spec(autoscaler)["scaleTargetRef"]
    kind = kind_of(KINDS, reference)
    own = of(HORIZONTAL_POD_AUTOSCALER, space, objects.name(autoscaler))
    name = str(reference["name"])
    said = f"HorizontalPodAutoscaler {space}/{objects.name(autoscaler)}: {reference['kind']} {name}"
    if isinstance(kind, str) or kind not in WORKLOADS:
        return Note(f"{said}: how many replicas it would have only the controllers can say", (own,))
    there = [*api.list(kind, space).items, *(one for one in planned if one.get("kind") == kind.kind)]
    target = next((one for one in reversed(there) if objects.key(one) == objects.Key(space, name)), None)
    about = (own, of(kind, space, name), of(POD_METRICS, space))
    if target is None:
        return Note(f"{said} does not exist: nothing would be scaled", about)
    scale = scale_in(target)
    decision = decide_autoscaler(autoscaler, _seen(autoscaler, scale, pods, readings), History(), now)
    return Note(f"{said} {_said(scale, decision)}", about)


def _seen(autoscaler: JsonObject, scale: Scale, pods: Iterable[JsonObject], readings: Readings) -> ScaleInputs:
    if not needs_metrics(autoscaler, scale):
        return ScaleInputs(scale)
    try:
        selector = parse_label_selector(scale.selector)
    except BadRequest:
        return ScaleInputs(scale)
    space = objects.namespace(autoscaler)
    own = [pod for pod in pods if objects.namespace(pod) == space and selector.matches(objects.labels(pod))]
    measured = [_measure(metric, own, readings) for metric in objects.spec(autoscaler).get("metrics") or []]
    return ScaleInputs(scale, own, measured)


def _measure(metric: JsonObject, pods: list[JsonObject], readings: Readings) -> Measured:
    match metric["type"]:
        case "Resource" if pods:
            return readings.of_resource(pods, metric["resource"]["name"])
        case "ContainerResource" if pods:
            source = metric["containerResource"]
            return readings.of_resource(pods, source["name"], source["container"])
        case "Resource" | "ContainerResource":
            return Unread("there are no Pods to measure yet")
    return _ELSEWHERE


def _said(scale: Scale, decision: Decision) -> str:
    wanted = decision.replicas
    if wanted is not None and wanted != scale.replicas:
        return f"would have {wanted} replicas instead of {scale.replicas}: {decision.reason}"
    if decision.error and decision.recommended is None:
        return f"would keep its {scale.replicas} replicas, as what it uses is not known: {decision.error}"
    return "; ".join([f"would keep its {scale.replicas} replicas", *_damped(scale, decision)])


def _damped(scale: Scale, decision: Decision) -> Iterator[str]:
    if decision.recommended not in {None, scale.replicas}:
        yield f"its metrics ask for {decision.recommended}, which windows, policies or bounds hold back"
