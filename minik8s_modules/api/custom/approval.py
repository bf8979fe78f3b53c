"""Groups of Kubernetes' own: definitions of theirs need the annotation ``api-approved.kubernetes.io``."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from minik8s_modules.api import cause, objects
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, metadata, spec

APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = (".k8s.io", ".kubernetes.io")


def condition(definition: JsonObject) -> tuple[str, str, str] | None:
    """Return (status, reason, message) of the condition on approval; None for groups that need none."""
    if not _is_protected(spec(definition).get("group") or ""):
        return None
    state, message = state_of(definition)
    return ("True" if state == "ApprovedAnnotation" else "False", state, message)


def _is_protected(group: str) -> bool:
    return group in {"k8s.io", "kubernetes.io"} or group.endswith(_PROTECTED)


def state_of(definition: JsonObject) -> tuple[str, str]:
    """Return what the annotation says, as a condition's reason, and a message."""
    text = objects.annotations(definition).get(APPROVAL) or ""
    more = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not text:
        return "MissingAnnotation", f'protected groups must have approval annotation "{APPROVAL}", {more}'
    if text.startswith("unapproved"):
        return "UnapprovedAnnotation", f'not approved: "{text}"'
    parts = urlsplit(text) if re.fullmatch(r"[^\s\[\]]+", text) else None
    if parts is not None and parts.scheme and parts.netloc:
        return "ApprovedAnnotation", f"approved in {text}"
    message = f'with either a URL or a reason starting with "unapproved", {more}'
    return "InvalidAnnotation", f'protected groups must have approval annotation "{APPROVAL}" {message}'


def causes(definition: JsonObject) -> list[Cause]:
    """Return why a definition may not be stored for want of approval."""
    if not _is_protected(spec(definition).get("group") or ""):
        return []
    state, message = state_of(definition)
    at = f"metadata.annotations[{APPROVAL}]"
    if state == "MissingAnnotation":
        return [cause.required(at, message)]
    text = (metadata(definition).get("annotations") or {}).get(APPROVAL)
    return [cause.invalid(at, text, message)] if state == "InvalidAnnotation" else []
