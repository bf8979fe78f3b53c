"""Validation of the annotation that makes a pod a mirror: it tells the truth, and nobody ever changes it.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``ValidatePodSpecificAnnotations``,
``ValidatePodSpecificAnnotationUpdates``).
"""

from __future__ import annotations

from minik8s_modules.api import cause, objects
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import MIRROR, faults, is_mirror

_FIELD = f"metadata.annotations[{MIRROR}]"


def validate_new(pod: JsonObject) -> list[Cause]:
    """Return why a new pod may not be the mirror that it says it is."""
    found = faults(pod) if is_mirror(pod) else []
    return [cause.invalid(_FIELD, objects.annotations(pod)[MIRROR], each) for each in found]


def validate_change(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why an update may not do what it does to the annotation."""
    before, after = (objects.annotations(pod).get(MIRROR) for pod in (old, new))
    if before == after:
        return []
    detail = "may not add mirror pod annotation" if before is None else "may not remove or update mirror pod annotation"
    return [cause.forbidden(_FIELD, detail)]
