"""The Pods of a Subset: those it names, and those with its labels, which controllers name in its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


def pods_of(subset: JsonObject) -> list[str]:
    """Return the names of a Subset's Pods, each once."""
    return list(dict.fromkeys([*(objects.spec(subset).get("pods") or ()), *(objects.status(subset).get("pods") or ())]))


def has_labels_of(pod: JsonObject, subset: JsonObject) -> bool:
    """Return whether a Pod has all the labels of a Subset that asks for some."""
    wanted = objects.spec(subset).get("labels") or {}
    return bool(wanted) and wanted.items() <= objects.labels(pod).items()


def with_pods(subset: JsonObject, pods: Iterable[JsonObject]) -> JsonObject:
    """Return a Subset whose status names those of ``pods``, of its namespace, that have its labels."""
    if not objects.spec(subset).get("labels"):
        return {field: value for field, value in subset.items() if field != "status"}
    found = sorted(objects.name(pod) for pod in pods if has_labels_of(pod, subset) and not objects.is_deleting(pod))
    return {**subset, "status": {"pods": found}}
