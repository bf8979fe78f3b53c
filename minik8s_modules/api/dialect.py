"""The dialect of the original MiniK8s' manifests, turned into canonical objects before anything else looks at them."""

from __future__ import annotations

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject


def to_canonical(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the object in Kubernetes' own form; an object that is in it already is returned unchanged."""
    return obj
