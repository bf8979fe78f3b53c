"""From JSON to values, by type: numbers that JSON wrote as integers, timestamps, durations, bytes.

Objects stay as they are and are read field by field; lists and maps of what needs reading are read as a whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.libraries import times
from minik8s_modules.cel.types import Type

Read = Callable[[Any], Any]


def reader(kind: Type) -> Read | None:
    """Return what turns JSON of a schema's type into a value; None when nothing needs to be done."""
    if kind.declared is None:
        return None
    if kind.kind in _SCALARS:
        return _SCALARS[kind.kind] if not kind.declared.nullable else _or_null(_SCALARS[kind.kind])
    if kind.kind in {"list", "map"} and (item := reader(kind.params[-1])) is not None:
        return _items(item) if kind.kind == "list" else _entries(item)
    return None


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _items(read: Read) -> Read:
    return lambda values: [read(value) for value in values] if values is not None else None


def _entries(read: Read) -> Read:
    return lambda values: {key: read(value) for key, value in values.items()} if values is not None else None


def _double(value: Any) -> float:
    if value.__class__ is float:
        return float(value)
    if value.__class__ is int:
        return float(value)
    raise EvaluationError(f"invalid data, expected float, got {value.__class__.__name__}")


def _text(read: Callable[[str], Any]) -> Read:
    def from_text(value: Any) -> Any:
        if value.__class__ is not str:
            raise EvaluationError(f"invalid data, expected string, got {value.__class__.__name__}")
        return read(value)

    return from_text


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"Invalid byte formatted string {text}: {error}") from error


def _date_time(text: str) -> Any:
    return times.schema_date(text) if len(text) == len("2000-01-01") else times.parse_timestamp(text)


_SCALARS: dict[str, Read] = {
    "double": _double,
    "bytes": _text(_bytes),
    "timestamp": _text(_date_time),
    "duration": _text(times.schema_duration),
}
