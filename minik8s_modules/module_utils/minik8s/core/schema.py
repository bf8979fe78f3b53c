"""Checks of entries: a field that is unknown or of a wrong type is refused, so that nothing is accepted and ignored."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from .faults import KeyFault


class Field(NamedTuple):
    """A field of an entry: its JSON types, and whether it may be left out (its meaning then is ``default``)."""

    types: tuple[type, ...]
    required: bool = True
    default: Any = None


TEXT, WHOLE, FLAG, LIST, OBJECT, NONE = str, int, bool, list, dict, type(None)
Schema = dict[str, Field]


def _fits(value: Any, types: tuple[type, ...]) -> bool:
    return type(value) in types  # exact: a bool is no int here


def require_object(where: str, value: Any) -> None:
    """Raise KeyFault (InvalidEntry) for a value that is no JSON object."""
    if not isinstance(value, Mapping):
        raise KeyFault("InvalidEntry", f"{where} must be an object, not {type(value).__name__}")


def check_fields(where: str, value: Any, schema: Schema) -> None:
    """Check one JSON object against its fields.

    Raises:
        KeyFault: InvalidEntry, naming the field, what was found and what is expected.
    """
    require_object(where, value)
    unknown = sorted(set(value) - set(schema))
    if unknown:
        raise KeyFault("InvalidEntry", f"{where} has unknown fields {unknown}; known are {sorted(schema)}")
    for name, expected in schema.items():
        if name not in value:
            if expected.required:
                raise KeyFault("InvalidEntry", f"{where}.{name} is missing")
        elif not _fits(value[name], expected.types):
            names = " or ".join(kind.__name__ for kind in expected.types)
            raise KeyFault("InvalidEntry", f"{where}.{name} must be {names}, not {type(value[name]).__name__}")


def with_defaults(value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return ``value`` with every left-out field at its default."""
    return {name: value.get(name, expected.default) for name, expected in schema.items()}


def check_texts(where: str, value: Any, width: int = 0) -> None:
    """Check a list of strings, or of rows of ``width`` strings; NUL is refused, Docker would cut the text there."""
    rows = [[item] for item in value] if not width else value
    for row in rows:
        good = isinstance(row, (list, tuple)) and len(row) == (width or 1)
        if not good or not all(isinstance(text, str) and "\0" not in text for text in row):
            raise KeyFault(
                "InvalidEntry",
                f"{where} must hold {width or 1} string(s) an item, without NUL; found {row!r:.80}",
            )


POD: Schema = {"uid": Field((TEXT,)), "name": Field((TEXT,)), "namespace": Field((TEXT,))}


def check_address(where: str, value: Any) -> None:
    """Raise KeyFault (InvalidEntry) for what is no IPv4 address."""
    try:
        socket.inet_pton(socket.AF_INET, value)
    except (OSError, TypeError, ValueError):
        raise KeyFault("InvalidEntry", f"{where} {value!r:.80} is no IPv4 address") from None
