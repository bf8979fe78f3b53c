"""How far a client's value may extend: how deep it is nested, and how many values it has.

Everything that walks over an object costs time per value and stack per level, so both are bounded once, where a value
comes in, and again where a patch has made a new one. Length in bytes says little about either: 3 MB hold 1.5 million
lists. The walk takes one pass per level (some 50 ns a value) and does not recurse.
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.errors import BadRequest, StatusError

# A CustomResourceDefinition's schema spends two or three levels on each level of the objects that it describes; the
# deepest that are in use (operators that embed a pod's spec) reach about 60.
MAX_DEPTH = 128
# A large pod has 500, an EndpointSlice of 1,000 endpoints 15,000. Checking, completing and storing an object costs 5 to
# 20 µs a value, so that the worst one stays below half a second.
MAX_VALUES = 20_000
# of a body that holds many objects, each of which is held to MAX_VALUES by itself
MAX_VALUES_TOGETHER = 200_000
_LARGE = frozenset({("apiextensions.k8s.io", "CustomResourceDefinition")})


def values_allowed(kind: tuple[str, str]) -> int:
    """Return how many values an object of the kind (group, name) may have.

    prometheus-operator's largest definition has 40,000; schemas have a bound of their own (api/custom/schemas.py).
    """
    return MAX_VALUES_TOGETHER if kind in _LARGE else MAX_VALUES


def fits(data: bytes, values_allowed: int = MAX_VALUES) -> bool:
    """Return whether JSON is so short, and has so few brackets, that ``check`` of what it holds cannot fail.

    The walk is a twentieth of what a small object's creation costs; this is a thousandth.
    """
    # a value takes a byte, and the comma or bracket that it stands before
    return len(data) < 2 * values_allowed and data.count(b"{") + data.count(b"[") <= MAX_DEPTH


def check(value: Any, values_allowed: int = MAX_VALUES) -> None:
    """Return when ``value`` is neither too deep nor too large.

    Raises:
        BadRequest: it is nested more than MAX_DEPTH levels deep.
        StatusError: 413: it has more than ``values_allowed`` values.
    """
    depth, values = 0, 1
    level = [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        values += sum(map(len, level))
        if values > values_allowed:
            raise too_many_values(values_allowed)
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    if depth > MAX_DEPTH:
        raise too_deep(str(depth))


def size(value: Any) -> int:
    """Return the number of values in ``value``, itself included."""
    values, level = 1, [value]
    while level:
        level = [each for each in level if isinstance(each, dict | list)]
        values += sum(map(len, level))
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return values


def names(value: Any) -> int:
    """Return how many names the objects in ``value`` have."""
    found, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            found += len(each)
            left += [inner for inner in each.values() if isinstance(inner, (dict, list))]
        elif isinstance(each, list):
            left += [inner for inner in each if isinstance(inner, (dict, list))]
    return found


def too_deep(levels: str) -> BadRequest:
    """Return the 400 for what is nested ``levels`` deep."""
    return BadRequest(f"the object is nested {levels} levels deep; at most {MAX_DEPTH} are accepted")


def too_many_values(allowed: int = MAX_VALUES) -> StatusError:
    """Return the 413 for what has more than ``allowed`` values."""
    detail = f"Request entity too large: the object has more than {allowed} values (fields and items of lists)"
    return StatusError(413, "RequestEntityTooLarge", detail)
