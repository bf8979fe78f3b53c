"""The claims whose disks an instance has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


def claims_of(instance: JsonObject) -> list[str]:
    """Return their names."""
    volumes = objects.spec(instance).get("volumes") or []
    found = (objects.dig(each, "persistentVolumeClaim", "claimName") for each in volumes)
    return [str(name) for name in found if name]


def size_of(claim: JsonObject) -> str:
    """Return how large a claim is, as an image that is made on it may be; "" where that is not known."""
    bound = objects.dig(claim, "status", "capacity", "storage")
    return str(bound or objects.dig(claim, "spec", "resources", "requests", "storage") or "")


def missing(names: Iterable[str], find: Callable[[str], object | None]) -> str:
    """Return what to tell of those that ``find`` does not find, "" where it finds all."""
    gone = [name for name in names if find(name) is None]
    return f"PersistentVolumeClaim {', '.join(gone)} not found" if gone else ""
