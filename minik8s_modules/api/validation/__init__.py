"""Validation: whether an object may be stored, in Kubernetes' words.

Pure functions that return a list of ``Cause``; an empty list means yes. Call them after ``structural.type_errors``
(they rely on right JSON types) and ``apply_defaults``. ``registry`` has the check of each kind, ``meta`` what every
object must keep, and the other modules one family of kinds each. What a single field must keep is a row of a table
(``check`` reads them); what several decide together is a function. Fields that ``coverage.yml`` refuses come last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import orjson

from minik8s_modules.api import cause
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kind import Warn, nobody
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.schema import coverage
from minik8s_modules.api.validation import meta
from minik8s_modules.api.validation.pods import ephemeral, mirrors, resizes
from minik8s_modules.api.validation.registry import CREATE, CREATE_ONLY, OF_SPEC, STATUS, UPDATE

__all__ = ["validate_create", "validate_delete_options", "validate_update", "warnings"]

_POLICIES = ("Background", "Foreground", "Orphan")


def validate_create(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return why ``obj`` may not be created; [] when it may. Call it after ``strategy.prepare_create``."""
    causes = meta.validate_metadata(kind, obj)
    if kind.custom is not None:
        return causes + kind.custom.check(obj, None)
    for checks in (CREATE, CREATE_ONLY):
        check = checks.get(kind.id)
        if check is not None:
            causes += check(obj)
    return causes + _refused(kind, obj)


def validate_update(
    kind: Kind, new: JsonObject, old: JsonObject, subresource: str = "", warn: Warn = nobody
) -> list[Cause]:
    """Return why ``old`` may not become ``new`` through ``subresource`` ("" is the object itself); [] when it may.

    Call it after ``strategy.prepare_update``, with both objects in canonical form. ``warn`` hears of rules of a custom
    kind that are broken where nothing was changed.
    """
    causes, refused = meta.validate_metadata_update(kind, new, old), partial(_refused, kind)
    if kind.custom is not None:
        return causes + kind.custom.check(new, old, warn)
    if subresource == "status":
        check_status = STATUS.get(kind.id)
        return causes + (_newly(check_status, new, old) if check_status is not None else [])
    if subresource == "ephemeralcontainers":
        return causes + ephemeral.validate_added(new, old) + _newly(refused, new, old)
    if subresource == "resize":
        return causes + resizes.validate_resize(new, old) + _newly(resizes.validate_policies, new, old)
    if subresource == "binding":
        return causes + mirrors.validate_change(new, old)
    check_update = UPDATE.get(kind.id)
    if check_update is not None:
        causes += check_update(new, old)
    check = CREATE.get(kind.id)
    if check is not None and not causes and not (kind.id in OF_SPEC and _same_spec(new, old)):
        causes += _newly(check, new, old)
    return causes + _newly(refused, new, old)


def _same_spec(new: JsonObject, old: JsonObject) -> bool:
    """Return whether both have the same spec, value by value: 1 equals ``True``. False where nobody can tell."""
    with contextlib.suppress(TypeError):  # deeper than orjson goes
        return orjson.dumps(new.get("spec")) == orjson.dumps(old.get("spec"))
    return False


def _newly(check: Callable[[JsonObject], list[Cause]], new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return what ``check`` says of ``new`` and not of ``old``.

    An object that was stored before a rule was made can be changed, and its finalizers removed.
    """
    causes = check(new)
    known = set(check(old)) if causes else set()
    return [one for one in causes if one not in known]


def _refused(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return a ``Forbidden`` for each field of the object that minik8s does not act on and must not ignore."""
    return [
        cause.forbidden(found.path, f"not supported by minik8s: {found.rule.reason}")
        for found in coverage.findings(kind, obj)
        if found.rule.treatment == "refused"
    ]


def warnings(kind: Kind, obj: JsonObject) -> list[str]:
    """Return the texts of the ``Warning`` headers that a write of ``obj`` is answered with.

    There is one for each reason why fields are stored and not acted on, with the fields in front, and one for each size
    of huge pages that containers share.
    """
    if kind.custom is not None:
        return []
    reasons: dict[str, list[str]] = {}
    for found in coverage.findings(kind, obj):
        if found.rule.treatment == "warned":
            reasons.setdefault(found.rule.reason, []).append(found.path)
    texts = [f"{', '.join(paths)}: stored, but minik8s does not act on it: {why}" for why, paths in reasons.items()]
    if (obj.get("metadata") or {}).get("annotations", {}).get(dialect.ANNOTATION) == dialect.ORIGINAL:
        texts.append(dialect.explanation(kind))
    return texts + huge_pages.warnings(kind.id, obj)


def validate_delete_options(options: JsonObject) -> list[Cause]:
    """Return what is wrong with the DeleteOptions of a DELETE."""
    causes = []
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        causes.append(cause.not_supported("propagationPolicy", policy, [*_POLICIES, "nil"]))
    if policy is not None and options.get("orphanDependents") is not None:
        texts = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(cause.invalid("propagationPolicy", policy, texts))
    dry_run = options.get("dryRun") or []
    causes += [cause.not_supported("dryRun", each, ["All"]) for each in dry_run if each != "All"]
    return causes
