"""What each metric of an ``autoscaling/v2`` autoscaler proposes, and what its status shows. Pure.

A metric that was not read, or says nothing, is a ``Trouble`` with Kubernetes' reason and words. Source: kubernetes 1.32
``pkg/controller/podautoscaler/horizontal.go`` (``computeReplicasForMetric`` and what it calls).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.autoscaling.replica_counts import (
    DEFAULTS,
    Count,
    Sample,
    Tuning,
    Uncountable,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
)


class Unread(NamedTuple):
    """A metric that could not be read, and why."""

    why: str


Measured = Mapping[str, Sample] | int | Unread
"""Samples by the pod's name, or thousandths of a value that is no pod's (the sum, for an external metric)."""


class Proposal(NamedTuple):
    """What a metric asks for: replicas, its name in Events, its entry of ``status.currentMetrics``."""

    replicas: int
    name: str
    status: JsonObject


class Trouble(NamedTuple):
    """Why a metric proposes nothing: the condition's reason and error, and the error as the autoscaler's tells it."""

    reason: str
    error: str
    message: str


class Case(NamedTuple):
    """The target as the metrics are compared with it."""

    namespace: str
    replicas: int
    status_replicas: int
    pods: Sequence[JsonObject]
    now: datetime
    tuning: Tuning = DEFAULTS


def propose(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    """Return what one metric of the spec proposes."""
    compute = _BY_TYPE.get(metric["type"])
    if compute is None:  # only what was stored before it was checked
        text = f'unknown metric source type "{metric["type"]}"'
        return Trouble("InvalidMetricSourceType", text, text)
    return compute(metric, measured, case)


def _resource(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    source = metric["resource"]
    return _of_resource(metric, source, measured, case, f"{source['name']} resource")


def _container_resource(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    source = metric["containerResource"]
    return _of_resource(metric, source, measured, case, f"{source['container']} container")


def _of_resource(
    metric: JsonObject, source: JsonObject, measured: Measured, case: Case, what: str
) -> Proposal | Trouble:
    resource, target, container = source["name"], source.get("target") or {}, source.get("container") or ""
    reason = f"FailedGet{metric['type']}Metric"
    average = target.get("averageValue")
    try:
        samples = _samples(measured, f"unable to get metrics for resource {resource}")
        if average is not None:
            goal = quantities.to_milli(average)
            count = by_average(case.replicas, goal, case.pods, samples, case.now, resource, case.tuning)
        else:
            goal = target["averageUtilization"]
            count = by_utilization(case.replicas, goal, resource, case.pods, samples, case.now, container, case.tuning)
    except Uncountable as error:
        failed = f"failed to get {resource} {'usage' if average is not None else 'utilization'}: {error}"
        return Trouble(reason, failed, f"failed to get {what} metric value: {failed}")
    named = f"{resource} {'container ' if container else ''}resource utilization (percentage of request)"
    status = {"name": resource, **({"container": container} if container else {}), "current": _current(count)}
    return _proposal(metric, count, f"{resource} resource" if average is not None else named, status)


def _current(count: Count) -> JsonObject:
    current: JsonObject = {"averageValue": quantities.format_milli(count.value)}
    return current if count.utilization is None else {"averageUtilization": count.utilization, **current}


def _pods(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    source = metric["pods"]
    name = source["metric"]["name"]
    try:
        samples = _samples(measured, f"unable to get metric {name}")
        goal = quantities.to_milli(source["target"]["averageValue"])
        count = by_average(case.replicas, goal, case.pods, samples, case.now, tuning=case.tuning)
    except Uncountable as error:
        return Trouble("FailedGetPodsMetric", str(error), f"failed to get pods metric value: {error}")
    return _proposal(metric, count, f"pods metric {name}", {"metric": _identifier(source), "current": _current(count)})


def _object(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    source = metric["object"]
    name, described = source["metric"]["name"], source["describedObject"]
    target = source.get("target") or {}
    per_pod = target.get("type") == "AverageValue"
    try:
        value = _value(measured, f"unable to get metric {name}: ", f" on {_whose(described, case)}")
        count, shown = _of_value(target, value, case, per_pod=per_pod)
    except Uncountable as error:
        failed = f"failed to get {name} object metric: {error}" if per_pod else str(error)
        return Trouble("FailedGetObjectMetric", str(error), f"failed to get object metric value: {failed}")
    status = {"metric": _identifier(source), "current": shown}
    if per_pod:
        # upstream leaves out whose value it is, and calls it an external one
        return _proposal(metric, count, f"external metric {name}({selector_words(source)})", status)
    return _proposal(metric, count, f"{described['kind']} metric {name}", {"describedObject": described, **status})


def _external(metric: JsonObject, measured: Measured, case: Case) -> Proposal | Trouble:
    source = metric["external"]
    name, target = source["metric"]["name"], source.get("target") or {}
    per_pod = target.get("averageValue") is not None
    try:
        value = _value(measured, f"unable to get external metric {case.namespace}/{name}/{selector_words(source)}: ")
        count, shown = _of_value(target, value, case, per_pod=per_pod)
    except Uncountable as error:
        failed = f"failed to get {name} external metric" if per_pod else f"failed to get external metric {name}"
        text = f"failed to get {name} external metric value: {failed}: {error}"
        return Trouble("FailedGetExternalMetric", str(error), text)
    status = {"metric": _identifier(source), "current": shown}
    return _proposal(metric, count, f"external metric {name}({selector_words(source)})", status)


def _whose(described: JsonObject, case: Case) -> str:
    return f"{described['kind']} {case.namespace}/{described['name']}"


def _of_value(target: JsonObject, value: int, case: Case, *, per_pod: bool) -> tuple[Count, JsonObject]:
    field = "averageValue" if per_pod else "value"
    if target.get(field) is None:
        raise Uncountable("invalid metric source: neither a value target nor an average value target was set")
    goal = quantities.to_milli(target[field])
    if per_pod:
        count = by_value_per_pod(case.status_replicas, goal, value, case.tuning)
    else:
        count = by_value(case.replicas, goal, value, case.pods, case.tuning)
    return count, {field: quantities.format_milli(count.value)}


def _value(measured: Measured, before: str, behind: str = "") -> int:
    if isinstance(measured, Unread):
        raise Uncountable(f"{before}{measured.why}{behind}")
    if not isinstance(measured, int):
        raise TypeError("a metric of something else has one value")
    return measured


def _samples(measured: Measured, at: str) -> Mapping[str, Sample]:
    if isinstance(measured, Unread):
        raise Uncountable(f"{at}: {measured.why}")
    if isinstance(measured, int):
        raise TypeError("a metric of pods has samples by pod")
    return measured


def _identifier(source: JsonObject) -> JsonObject:
    return dict(source["metric"])


def _proposal(metric: JsonObject, count: Count, name: str, status: JsonObject) -> Proposal:
    kind = metric["type"]
    return Proposal(count.replicas, name, {"type": kind, kind[0].lower() + kind[1:]: status})


def selector_words(source: JsonObject) -> str:
    """Return the selector of a metric as upstream's messages print it: Go's form of the structure, or ``nil``."""
    selector = source["metric"].get("selector")
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or [])}],}},"
        for each in selector.get("matchExpressions") or []
    )
    matched = f"MatchLabels:map[string]string{{{labels}}}"
    return f"&LabelSelector{{{matched},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"


_BY_TYPE: Mapping[str, Callable[[JsonObject, Measured, Case], Proposal | Trouble]] = {
    "Resource": _resource,
    "ContainerResource": _container_resource,
    "Pods": _pods,
    "Object": _object,
    "External": _external,
}
