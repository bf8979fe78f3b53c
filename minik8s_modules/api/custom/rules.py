"""CEL rules of custom kinds: asked after the schema, and only where that leaves them something to read.

The room cel is imported for the first schema that has rules: daemons of clusters without such are 2 MB smaller.
Source: apiextensions-apiserver ``pkg/registry/customresource/strategy.go`` (``hasBlockingErr``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kind import Check, Warn, nobody
from minik8s_modules.api.objects import JsonObject

_BLOCKING = frozenset(
    (
        "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
        "FieldValueTypeInvalid",
    )
)  # fmt: skip
_SKIPPED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
SchemaCheck = Callable[[JsonObject, JsonObject | None], list[Cause]]


def with_rules(schema: JsonObject, check: SchemaCheck) -> Check:
    """Return ``check`` followed by the CEL rules of the schema, if it has any.

    Of a part that an update left as it was, a broken rule is warned of, and what breaks the schema passes silently.
    """
    if not _has_rules(schema):
        return lambda new, old, _warn=nobody: check(new, old)
    from minik8s_modules.cel import compile_schema, validate  # noqa: PLC0415 - see the top of this file

    compiled, _ = compile_schema(schema)

    def both(new: JsonObject, old: JsonObject | None, warn: Warn = nobody) -> list[Cause]:
        causes = check(new, old)
        if any(one.reason in _BLOCKING for one in causes):
            return [*causes, Cause("FieldValueInvalid", f"Invalid value: null: {_SKIPPED}", "<nil>")]
        for error in validate(compiled, new, old):
            found = cause_of(error.type, error.path, error.value, error.message)
            if error.warning:
                warn(str(found))
            else:
                causes.append(found)
        return causes

    return both


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_has_rules, schema))
    if not isinstance(schema, dict):
        return False
    return "x-kubernetes-validations" in schema or any(map(_has_rules, schema.values()))


def cause_of(type_: str, path: str, value: Any, message: str) -> Cause:
    """Return the cause that Kubernetes tells for an error of CEL: Required, Invalid, Forbidden, Duplicate and so on."""
    at = path or "<nil>"
    match type_:
        case "Required":
            return cause.required(at, message)
        case "Forbidden":
            return cause.forbidden(at, message)
        case "Duplicate":
            return cause.duplicate(at, value)
        case "NotSupported":
            return Cause("FieldValueNotSupported", f"Unsupported value: {orjson.dumps(value).decode()}: {message}", at)
        case "InternalError":
            return Cause("InternalError", f"Internal error: {message}", at)
    return cause.invalid(at, value, message)
