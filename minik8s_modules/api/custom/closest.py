"""Which branch of an ``anyOf`` or ``oneOf`` a value that fits none was meant for: its faults are the ones told.

kube-openapi (``pkg/validation/validate``: ``MatchCount``) takes the first of those whose validators looked at most of
the value, whatever they found. Counted here as there, but that branches within branches count by their largest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minik8s_modules.api.custom import formats
from minik8s_modules.api.objects import JsonObject

_ALWAYS = 4  # schema and common validators, each with its own count
_TYPED = ("type", "format", "x-kubernetes-int-or-string")


def closest(branches: Sequence[JsonObject], value: Any) -> int:
    """Return the place of the branch that looks at most of the value, the first of equals."""
    return max(range(len(branches)), key=lambda place: _looked_at(branches[place], value))


def _looked_at(schema: JsonObject, value: Any) -> int:
    typed = 2 if any(schema.get(name) for name in _TYPED) else 0
    below = sum(_looked_at(inner, each) for inner, each in _below(schema, value))
    every = sum(_looked_at(each, value) for each in schema.get("allOf") or ())
    some = sum(max(_looked_at(each, value) for each in schema[name]) for name in ("anyOf", "oneOf") if schema.get(name))
    return _ALWAYS + typed + _of_kind(schema, value) + below + every + some


def _of_kind(schema: JsonObject, value: Any) -> int:
    if isinstance(value, str):
        return 2 if formats.check_of(schema.get("format") or "") else 1
    if isinstance(value, bool) or value is None:
        return 0
    return 1 if isinstance(value, dict) else 2


def _below(schema: JsonObject, value: Any) -> Iterator[tuple[JsonObject, Any]]:
    """Yield each part of a value that the schema says something about, with what it says."""
    if isinstance(value, dict):
        fields, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, each in value.items():
            inner = fields.get(name, others)
            if isinstance(inner, dict):
                yield inner, each
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            yield schema["items"], each
