"""Views: kinds whose objects are kept as another kind's.

``events.k8s.io/v1`` Event over the core Event, ``autoscaling/v1`` HorizontalPodAutoscaler over v2, and the original's
``v1`` ReplicaSet over that of ``apps/v1``.

``to_storage`` and ``from_storage`` return a new object; for a kind without ``storage`` they return what they were
given. Source: kubernetes ``pkg/apis/events/v1/conversion.go`` and ``pkg/apis/autoscaling/v1/conversion.go``; what v1 of
the autoscaler has no field for travels in its annotations, as there.
"""

from __future__ import annotations

from typing import Any

import orjson

from minik8s_modules.api.defaulting.defaults_policies import cpu_metric
from minik8s_modules.api.kind import Convert, Declaration
from minik8s_modules.api.kinds import (
    EVENT,
    EVENTS_EVENT,
    HORIZONTAL_POD_AUTOSCALER,
    HORIZONTAL_POD_AUTOSCALER_V1,
    LEGACY_REPLICA_SET,
    REPLICA_SET,
    Kind,
)
from minik8s_modules.api.objects import MISREAD, JsonObject, spec, status
from minik8s_modules.api.schema.structural import type_errors

_NEW_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def stored_kind(kind: Kind) -> Kind:
    """Return the kind whose form the objects are kept in."""
    return _STORED.get(kind.api_version + kind.kind, kind) if kind.storage else kind


_STORED = {
    EVENTS_EVENT.api_version + EVENTS_EVENT.kind: EVENT,
    HORIZONTAL_POD_AUTOSCALER_V1.api_version + HORIZONTAL_POD_AUTOSCALER_V1.kind: HORIZONTAL_POD_AUTOSCALER,
    LEGACY_REPLICA_SET.api_version + LEGACY_REPLICA_SET.kind: REPLICA_SET,
}


def kept_version(kind: Kind) -> str:
    """Return the ``apiVersion`` in which objects of the kind are kept: a custom kind's may be another than its own."""
    return f"{kind.group}/{kind.custom.storage_version}" if kind.custom is not None else ""


def to_storage(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the object in the form it is kept in; one of a custom kind is given its version when it is stored."""
    if kind is HORIZONTAL_POD_AUTOSCALER_V1:
        return to_storage_autoscaler(obj)
    if kind is LEGACY_REPLICA_SET:
        return {**obj, "apiVersion": REPLICA_SET.api_version}
    return to_storage_event(obj) if kind is EVENTS_EVENT else obj


def from_storage(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the kept object in the form of ``kind``."""
    if kind.custom is not None:
        return from_storage_custom(kind, kind.custom, obj)
    if kind is HORIZONTAL_POD_AUTOSCALER_V1:
        try:
            return _from_storage_autoscaler(obj)
        except MISREAD:  # put into the store by hand: nothing of it can be told in other words
            return {**obj, "apiVersion": kind.api_version}
    if kind is LEGACY_REPLICA_SET:
        return {**obj, "apiVersion": LEGACY_REPLICA_SET.api_version}
    return _renamed(obj, _CORE_TO_NEW, EVENTS_EVENT) if kind is EVENTS_EVENT else obj


def from_storage_custom(kind: Kind, declared: Declaration, obj: JsonObject) -> JsonObject:
    """Return an object of a custom kind, in whichever version it is, in that of ``kind``, as its schema has it now."""
    return in_version(kind, declared, [orjson.loads(orjson.dumps(obj))])[0]


def in_version(kind: Kind, declared: Declaration, objs: list[JsonObject]) -> list[JsonObject]:
    """Return objects of a custom kind in the version of ``kind``, as its schema has them now (``objs`` are used up).

    Raises:
        StatusError: the webhook that converts them fails.
    """
    if declared.convert is not None:
        objs = _asked(declared, declared.convert, objs, kind.api_version)
    for obj in objs:
        obj["apiVersion"] = kind.api_version
        declared.fill(obj)
    return objs


def in_storage_version(kind: Kind, declared: Declaration, obj: JsonObject) -> JsonObject:
    """Return an object of a custom kind as it is kept; raises as ``in_version``."""
    wanted = kept_version(kind)
    if declared.convert is None or obj["apiVersion"] == wanted:
        return {**obj, "apiVersion": wanted}
    kept = declared.convert([obj], wanted)[0]
    if (stored := declared.sibling(wanted)) is not None and stored.custom is not None:
        stored.custom.fill(kept)
    return kept


def _asked(declared: Declaration, convert: Convert, objs: list[JsonObject], wanted: str) -> list[JsonObject]:
    """Return ``objs`` with those of other versions converted; a converter sees objects with their defaults."""
    others = [index for index, obj in enumerate(objs) if obj.get("apiVersion") != wanted]
    for obj in (objs[index] for index in others):
        source = declared.sibling(str(obj.get("apiVersion")))
        if source is not None and source.custom is not None:
            source.custom.fill(obj)
    made = dict(zip(others, convert([objs[index] for index in others], wanted), strict=True)) if others else {}
    return [made.get(index, obj) for index, obj in enumerate(objs)]


def to_storage_event(obj: JsonObject) -> JsonObject:
    """Return an events.k8s.io/v1 Event as a core Event."""
    return _renamed(obj, _NEW_TO_CORE, EVENT)


def _renamed(obj: JsonObject, names: dict[str, str], kind: Kind) -> JsonObject:
    renamed = {names.get(field, field): value for field, value in obj.items()}
    return {**renamed, "apiVersion": kind.api_version, "kind": kind.kind}


# --- autoscalers ----------------------------------------------------------------------------------

_ANNOTATION = "autoscaling.alpha.kubernetes.io/"
_SAME_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_CPU_TARGET, _CPU_NOW = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_CARRIED = (  # annotation, where it stands in v2
    ("metrics", "spec", "metrics"),
    ("behavior", "spec", "behavior"),
    ("current-metrics", "status", "currentMetrics"),
    ("conditions", "status", "conditions"),
)


def to_storage_autoscaler(obj: JsonObject) -> JsonObject:
    """Return an autoscaling/v1 HorizontalPodAutoscaler as v2."""
    declared, seen = dict(spec(obj)), {k: v for k, v in status(obj).items() if k in _SAME_STATUS}
    cpu, cpu_now = declared.pop(_CPU_TARGET, None), status(obj).get(_CPU_NOW)
    meta = dict(obj.get("metadata") or {})
    kept = dict(meta.get("annotations") or {})
    parts: dict[str, JsonObject] = {"spec": declared, "status": seen}
    for name, part, field in _CARRIED:
        carried = _loaded(kept.pop(_ANNOTATION + name, ""))
        if carried is not None and not type_errors(HORIZONTAL_POD_AUTOSCALER, {part: {field: carried}}):
            parts[part][field] = carried
    if cpu is not None:
        declared["metrics"] = [*(declared.get("metrics") or []), cpu_metric(cpu)]
    if cpu_now is not None:
        current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": cpu_now}}}
        seen["currentMetrics"] = [*(seen.get("currentMetrics") or []), current]
    if "annotations" in meta:
        meta["annotations"] = kept
    return _autoscaler(obj, HORIZONTAL_POD_AUTOSCALER, meta, parts)


def _from_storage_autoscaler(obj: JsonObject) -> JsonObject:
    declared, seen = spec(obj), status(obj)
    own, cpu, others = {k: v for k, v in declared.items() if k not in {"metrics", "behavior"}}, None, []
    for metric in declared.get("metrics") or []:
        if cpu is None and _is_cpu_utilization(metric):
            cpu = metric["resource"]["target"]["averageUtilization"]
        else:
            others.append(metric)
    shown = {"currentReplicas": 0, **{k: v for k, v in seen.items() if k in _SAME_STATUS}}
    for metric in seen.get("currentMetrics") or []:
        current = metric.get("resource") or {}
        if current.get("name") == "cpu" and "averageUtilization" in (current.get("current") or {}):
            shown.setdefault(_CPU_NOW, current["current"]["averageUtilization"])
    if cpu is not None:
        own[_CPU_TARGET] = cpu
    carried = {"metrics": others, "behavior": declared.get("behavior"), "conditions": seen.get("conditions")}
    meta = dict(obj.get("metadata") or {})
    texts = {_ANNOTATION + name: orjson.dumps(value).decode() for name, value in carried.items() if value}
    if texts:
        meta["annotations"] = {**(meta.get("annotations") or {}), **texts}
    return _autoscaler(obj, HORIZONTAL_POD_AUTOSCALER_V1, meta, {"spec": own, "status": shown})


def _is_cpu_utilization(metric: JsonObject) -> bool:
    resource = metric.get("resource") or {}
    return (
        metric.get("type") == "Resource"
        and resource.get("name") == "cpu"
        and (resource.get("target") or {}).get("averageUtilization") is not None
    )


def _loaded(text: str) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


def _autoscaler(obj: JsonObject, kind: Kind, meta: JsonObject, parts: dict[str, JsonObject]) -> JsonObject:
    present = {part: value for part, value in parts.items() if part in obj or value}
    return {**obj, **present, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
