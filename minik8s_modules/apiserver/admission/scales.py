"""The Scale of a workload: how many copies it has, in one form for all kinds (autoscaling/v1 Scale)."""

from __future__ import annotations

from minik8s_modules.api.errors import BadRequest, InternalError
from minik8s_modules.api.kind import Declaration, ScalePaths
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, dig, metadata, spec, status
from minik8s_modules.api.selectors import selector_text

SCALE = Kind("autoscaling", "v1", "Scale", "scales", "io.k8s.api.autoscaling.v1.Scale")
NEVER_SET = -(2**31)
"""What a Scale to be changed says where its object says nothing: left so, nothing was asked for (as upstream)."""
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(kind: Kind, obj: JsonObject, absent: int = 0) -> JsonObject:
    """Return the Scale of a workload; ``absent`` stands where an object of a custom kind says no number."""
    if kind.custom is not None:
        return _custom_scale(kind.custom, obj, absent)
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


def check_said(kind: Kind, obj: JsonObject) -> None:
    """Raise InternalError when an object of a custom kind says no number: its Scale cannot be read."""
    if kind.custom is not None and dig(obj, *_paths(kind.custom).replicas) is None:
        raise InternalError(f"the spec replicas field {_path_shown(kind.custom)} does not exist")


def check_asked(kind: Kind, scale: JsonObject) -> None:
    """Raise BadRequest when a change leaves open a number that was never set."""
    if kind.custom is not None and spec(scale).get("replicas") == NEVER_SET:
        raise BadRequest(f"the spec replicas field {_path_shown(kind.custom)} cannot be empty")


def _path_shown(declared: Declaration) -> str:
    return '"' + ".".join(("", *_paths(declared).replicas)) + '"'


def _custom_scale(declared: Declaration, obj: JsonObject, absent: int) -> JsonObject:
    """Return the Scale of an object whose definition says by paths where it stands."""
    at = _paths(declared)
    shown: JsonObject = {"replicas": dig(obj, *at.status_replicas) or 0}
    if at.selector and dig(obj, *at.selector):
        shown["selector"] = dig(obj, *at.selector)
    replicas = dig(obj, *at.replicas)
    return _scale(obj, absent if replicas is None else replicas, shown)


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
