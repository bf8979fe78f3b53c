"""The Scale of a workload: how many copies it has, in one form for all kinds (autoscaling/v1 Scale)."""

from __future__ import annotations

from minik8s_modules.api.errors import InternalError
from minik8s_modules.api.kind import Declaration, ScalePaths
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig, metadata, spec, status
from minik8s_modules.api.tables.workloads import selector_text

SCALE = Kind("autoscaling", "v1", "Scale", "scales", "io.k8s.api.autoscaling.v1.Scale")
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the Scale of a workload."""
    if kind.custom is not None:
        return _custom_scale(kind.custom, obj)
    selector = spec(obj).get("selector")
    shown: JsonObject = {"replicas": status(obj).get("replicas") or 0}
    if selector is not None:
        shown["selector"] = selector_text(selector)
    return _scale(obj, spec(obj).get("replicas") or 0, shown)


def _scale(obj: JsonObject, replicas: int, shown: JsonObject) -> JsonObject:
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {field: value for field, value in metadata(obj).items() if field in _SHOWN},
        "spec": {"replicas": replicas},
        "status": shown,
    }


def _custom_scale(declared: Declaration, obj: JsonObject) -> JsonObject:
    """Return the Scale of an object whose definition says by paths where it stands."""
    at = _paths(declared)
    shown: JsonObject = {"replicas": dig(obj, *at.status_replicas) or 0}
    if at.selector and dig(obj, *at.selector):
        shown["selector"] = dig(obj, *at.selector)
    replicas = dig(obj, *at.replicas)
    if replicas is None:
        raise InternalError(f"the spec replicas field {'.'.join(('', *at.replicas))!r} does not exist")
    return _scale(obj, replicas, shown)


def _paths(declared: Declaration) -> ScalePaths:
    if declared.scale is None:
        raise TypeError("a kind without scale is asked for one")
    return declared.scale


def set_replicas(kind: Kind, obj: JsonObject, replicas: int) -> None:
    """Write, in place, how many copies a Scale wants of an object."""
    path = ("spec", "replicas") if kind.custom is None else _paths(kind.custom).replicas
    for step in path[:-1]:
        obj = obj.setdefault(step, {})
    obj[path[-1]] = replicas
