"""Checks of entries: a field that is unknown or of a wrong type is refused, so that nothing is accepted and ignored.

What an entry holds is declared once, as the TypedDicts of ``entries/``; ``schema_of`` reads them.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from .faults import KeyFault


class Default(NamedTuple):
    """What a left-out field means, beside its type: ``Annotated[int, Default(0)]``; without it, null."""

    value: Any


class Field(NamedTuple):
    """A field of an entry: its JSON types, and whether it may be left out (its meaning then is ``default``)."""

    types: tuple[type, ...]
    required: bool = True
    default: Any = None
    choices: tuple[Any, ...] = ()


Schema = dict[str, Field]


def schema_of(entry: type) -> Schema:
    """Return the fields of a TypedDict of ``entries/``, each with what may be in it."""
    required: frozenset[str] = entry.__required_keys__  # type: ignore[attr-defined]
    return {name: _field(kind, required=name in required) for name, kind in entry.__annotations__.items()}


def _field(kind: Any, *, required: bool) -> Field:
    default = None
    if get_origin(kind) is Annotated:
        default, kind = kind.__metadata__[0].value, kind.__origin__
    choices: tuple[Any, ...] = ()
    types: list[type] = []
    for one in get_args(kind) if get_origin(kind) is Union else (kind,):
        choices += get_args(one) if get_origin(one) is Literal else ()
        types.append(_json_type(one))
    return Field(tuple(dict.fromkeys(types)), required, default, choices)


def _json_type(kind: Any) -> type:
    """Return the type that json gives a value of ``kind``, which is a class, a list, a dict or a Literal of texts."""
    if get_origin(kind) is Literal:
        return str
    found: type = get_origin(kind) or kind
    return dict if issubclass(found, dict) else found


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
        elif expected.choices and value[name] is not None and value[name] not in expected.choices:
            allowed = expected.choices
            raise KeyFault("InvalidEntry", f"{where}.{name} is {value[name]!r}; allowed are {allowed}")


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


def check_address(where: str, value: Any) -> None:
    """Raise KeyFault (InvalidEntry) for what is not an IPv4 address."""
    try:
        socket.inet_pton(socket.AF_INET, value)
    except (OSError, TypeError, ValueError):
        raise KeyFault("InvalidEntry", f"{where} {value!r:.80} is not an IPv4 address") from None
