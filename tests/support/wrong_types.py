"""Objects made along their types, and values of other types to put into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import Shape

WRONG: tuple[Any, ...] = ("text", 5, True, ["x"], [None], [5], {"x": "y"}, {"x": None}, {"5": 5}, [{}], {}, [])
DEPTH = 6
VALID = {"operator": "In", "clusterIP": "100.0.0.9", "clusterIPs": "100.0.0.9"}
"""By field, a text that is read as something else than a text."""


def made(at: Shape, depth: int = DEPTH, called: str = "") -> Any:
    """Return a value of a type, with everything in it once."""
    if at.kind == "object":
        return {name: made(at.fields[name], depth - 1, name) for name in at.fields} if depth else {}
    if at.kind in {"map", "list"}:
        inner = [made(at.items, depth - 1, called)] if depth and at.items is not None else []
        return inner if at.kind == "list" else {"a": inner[0]} if inner else {}
    plain = {"boolean": False, "quantity": "1", "any": {}, "integer": 1, "number": 1, "intstr": 1}
    formats = {"date-time": "2026-01-01T00:00:00Z", "byte": "eA=="}
    return plain.get(at.kind, formats.get(at.format, VALID.get(called, "x")))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where values are."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from places(each, (*path, name))


def put(obj: JsonObject, path: tuple[Any, ...], value: Any) -> None:
    """Set the value at ``path``."""
    at: Any = obj
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
