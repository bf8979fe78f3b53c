"""Fields that are refused or warned about, by the data of ``coverage.yml``."""

from __future__ import annotations

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import coverage


def refused(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return a ``Forbidden`` for each field of the object that minik8s does not act on and must not ignore."""
    return [
        cause.forbidden(found.path, f"not supported by minik8s: {found.rule.reason}")
        for found in coverage.findings(kind, obj)
        if found.rule.treatment == "refused"
    ]


def newly_refused(kind: Kind, new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return what ``refused`` says of ``new``, less what it says of ``old``.

    An object that was stored when a field was still accepted can be changed, and its finalizers removed.
    """
    causes = refused(kind, new)
    known = set(refused(kind, old)) if causes else set()
    return [one for one in causes if one not in known]


def warned(kind: Kind, obj: JsonObject) -> list[str]:
    """Return a text for each reason why fields of the object are stored and not acted on, with the fields in front."""
    reasons: dict[str, list[str]] = {}
    for found in coverage.findings(kind, obj):
        if found.rule.treatment == "warned":
            reasons.setdefault(found.rule.reason, []).append(found.path)
    return [f"{', '.join(paths)}: stored, but minik8s does not act on it: {why}" for why, paths in reasons.items()]
