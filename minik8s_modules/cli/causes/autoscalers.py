"""Why an autoscaler scales nothing, and how it decided last: what was measured, what it asks for, what damped it.

What it decided stands in its status and in its Events. Nothing else is kept: what its Pods use is asked of
``metrics.k8s.io``, and is of now, not of the decision. A proposal is computed from the shown average: it is about what
the metric asked for where Pods are not ready or tell nothing, which then count otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import KINDS, LEGACY_AUTOSCALER, POD_METRICS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import parse, to_milli
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.causes.workloads import selector_text

_TOLERANCE = 0.1
_SHOWN = 5
_CALM = ("ReadyForNewScale", "SucceededRescale", "SucceededGetScale", "DesiredWithinRange")
_FAILED = ("FailedGetScale", "FailedUpdateScale")
_SCALED = ("SuccessfulRescale", "FailedRescale")


def autoscaler_faults(autoscaler: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a HorizontalPodAutoscaler scales nothing."""
    namespace = objects.namespace(autoscaler)
    for kind in ("AbleToScale", "ScalingActive"):
        condition = objects.condition(autoscaler, kind) or {}
        if condition.get("status") == "False":
            lead = _next(autoscaler, str(condition.get("reason")), around)
            yield Fault(f"{condition.get('reason')}: {condition.get('message')}", lead)
    if not objects.status(autoscaler).get("conditions"):
        yield Fault("nothing has been decided yet", kubectl(namespace, "describe", resource(autoscaler)))


def original_faults(autoscaler: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why an autoscaler of the original scales nothing."""
    last = next((each for each in reversed(around.events(autoscaler))), {})
    if last.get("type") == "Warning":
        message = f"{last.get('reason')}: {last.get('message')}"
        yield Fault(message, kubectl(objects.namespace(autoscaler), "describe", resource(autoscaler)))


def _next(autoscaler: JsonObject, reason: str, around: Around) -> str:
    namespace, reference = objects.namespace(autoscaler), objects.spec(autoscaler).get("scaleTargetRef") or {}
    target = f"{str(reference.get('kind')).lower()}/{reference.get('name')}"
    if reason in {"FailedGetResourceMetric", "FailedGetContainerResourceMetric"}:
        lacks = _lacks_requests(autoscaler, _target(autoscaler, around))
        return kubectl(namespace, "describe", target) if lacks else kubectl(namespace, "top", "pods")
    if reason in {"FailedGetPodsMetric", "FailedGetObjectMetric", "FailedGetExternalMetric"}:
        return kubectl("", "get", "apiservices")
    if reason == "AmbiguousSelector":
        return kubectl(namespace, "get", "hpa")
    if reason in {"FailedGetScale", "FailedUpdateScale", "ScalingDisabled"}:
        known = _target_kind(autoscaler) is not None
        return kubectl(namespace, "get", target) if known else kubectl("", "api-resources")
    return kubectl(namespace, "describe", resource(autoscaler))


def _lacks_requests(autoscaler: JsonObject, target: JsonObject) -> bool:
    """Return whether a container of the target requests nothing of a resource that is measured by its requests."""
    sources = [each.get("resource") or {} for each in objects.spec(autoscaler).get("metrics") or []]
    names = [one.get("name") for one in sources if (one.get("target") or {}).get("averageUtilization") is not None]
    declared = objects.dig(target, "spec", "template", "spec") or {}
    own = declared.get("resources") or {}
    names = [name for name in names if not any(name in (own.get(side) or {}) for side in ("requests", "limits"))]
    containers = declared.get("containers") or []
    requests = [(each.get("resources") or {}).get("requests") or {} for each in containers]
    return any(name not in each for name in names for each in requests)


def decisions(autoscaler: JsonObject, around: Around) -> Iterator[str]:
    """Yield the lines that tell how an autoscaler decided last."""
    status, declared = objects.status(autoscaler), objects.spec(autoscaler)
    target = _target(autoscaler, around)
    samples = _samples(autoscaler, target, around)
    yield from _shown("Now", [*map(_sample, samples[:_SHOWN])], len(samples), "Pods")
    if autoscaler.get("apiVersion") != LEGACY_AUTOSCALER.api_version:
        current = int(status.get("currentReplicas") or 0)
        exactly = objects.status(target).get("readyReplicas") == len(samples) == current
        for metric, shown in zip(declared.get("metrics") or [], status.get("currentMetrics") or [], strict=False):
            yield _line("Metric", _asked(metric, shown, current, "" if exactly else "about "))
        for condition in status.get("conditions") or []:
            if condition.get("reason") in _FAILED:
                continue  # which is the cause, and damps nothing
            if condition.get("type") in {"AbleToScale", "ScalingLimited"} and condition.get("reason") not in _CALM:
                yield _line("Damped", f"{condition.get('reason')}: {condition.get('message')}")
        bounds = f"at least {declared.get('minReplicas', 1)}, at most {declared.get('maxReplicas')}"
        yield _line("Replicas", f"{current}, wanted: {status.get('desiredReplicas') or 0}; {bounds}")
        declares = objects.spec(target).get("replicas")
        if (
            status.get("conditions")
            and declares is not None
            and declares not in {current, status.get("desiredReplicas")}
        ):
            yield _line("Since", f"the target was given {declares} replicas; the autoscaler decides on them next")
    changes = [f"{each.get('lastTimestamp')} {each.get('message')}" for each in around.events(autoscaler)
               if each.get("reason") in _SCALED]  # fmt: skip
    yield from _shown("Changed", changes[-_SHOWN:], len(changes), "changes, the last ones")


def _shown(title: str, lines: list[str], count: int, what: str) -> Iterator[str]:
    for each in lines:
        yield _line(title, each)
    if len(lines) < count:
        yield _line(title, f"these are {len(lines)} of {count} {what}")


def _line(title: str, text: str) -> str:
    return f"{title + ':':<10}{text}"


def _target(autoscaler: JsonObject, around: Around) -> JsonObject:
    """Return the object that is scaled, {} where it is not known here."""
    kind, name = _target_kind(autoscaler), objects.dig(autoscaler, "spec", "scaleTargetRef", "name")
    return {} if kind is None else around.get(kind, str(name), objects.namespace(autoscaler)) or {}


def _target_kind(autoscaler: JsonObject) -> Kind | None:
    reference = objects.spec(autoscaler).get("scaleTargetRef") or {}
    original = autoscaler.get("apiVersion") == LEGACY_AUTOSCALER.api_version
    version = "apps/v1" if original else str(reference.get("apiVersion") or "")
    return KINDS.by_api_version(version, str(reference.get("kind")))


def _samples(autoscaler: JsonObject, target: JsonObject, around: Around) -> list[JsonObject]:
    labels = selector_text(objects.spec(target).get("selector")) if target else ""
    return around.selected(POD_METRICS, objects.namespace(autoscaler), labels) if labels else []


def _sample(metrics: JsonObject) -> str:
    used = [one.get("usage") or {} for one in metrics.get("containers") or []]
    cpu = sum(to_milli(one.get("cpu", "0")) for one in used)
    mib = math.ceil(sum(parse(one.get("memory", "0")) for one in used) / (1024 * 1024))
    return f"{objects.name(metrics)}: cpu {cpu}m, memory {mib}Mi, measured {metrics.get('timestamp')}"


def _asked(metric: JsonObject, shown: JsonObject, current: int, about: str) -> str:
    kind = str(metric.get("type"))
    field = kind[:1].lower() + kind[1:]
    source, seen = metric.get(field) or {}, (shown.get(field) or {}).get("current") or {}
    name = source.get("name") or (source.get("metric") or {}).get("name")
    target = source.get("target") or {}
    for key, unit in (("averageUtilization", "%"), ("averageValue", " a Pod"), ("value", "")):
        if target.get(key) is not None and seen.get(key) is not None:
            ratio = float(parse(seen[key]) / parse(target[key]))
            said = f"{name}: {seen[key]}{unit}, target {target[key]}{unit}: "
            if abs(1 - ratio) <= _TOLERANCE:
                return f"{said}within a tenth of the target"
            wanted = math.ceil(round(ratio * current, 6))
            return f"{said}asks for {about}{wanted} replica{'' if wanted == 1 else 's'} of {current}"
    return f"{name}: not known"
