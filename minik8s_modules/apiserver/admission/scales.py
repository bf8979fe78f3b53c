"""The Scale of a workload: how many copies it has, in one form for all kinds (autoscaling/v1 Scale)."""

from __future__ import annotations

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, metadata, spec, status
from minik8s_modules.api.tables.workloads import selector_text

SCALE = Kind("autoscaling", "v1", "Scale", "scales", "io.k8s.api.autoscaling.v1.Scale")
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: JsonObject) -> JsonObject:
    """Return the Scale of a workload."""
    meta = {field: value for field, value in metadata(obj).items() if field in _SHOWN}
    selector = spec(obj).get("selector")
    shown: JsonObject = {"replicas": status(obj).get("replicas") or 0}
    if selector is not None:
        shown["selector"] = selector_text(selector)
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": meta,
        "spec": {"replicas": spec(obj).get("replicas") or 0},
        "status": shown,
    }
