"""Lists and sets of Kubernetes (pkg/cel/library/lists.go) and cel-go (ext/sets.go), and optional values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from minik8s_modules.cel.declarations import COMPARABLE, SUMMABLE
from minik8s_modules.cel.errors import EvaluationError, no_such_overload
from minik8s_modules.cel.libraries.numbers import FUNCTIONS as NUMBERS
from minik8s_modules.cel.libraries.strings import concatenated
from minik8s_modules.cel.libraries.times import FUNCTIONS as TIMES
from minik8s_modules.cel.values import NONE, TIME_MIN, Duration, Optional, Timestamp, UInt, equal

_ZEROS: dict[str, Any] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
_ADDING = {
    "int": NUMBERS["add_int64"],
    "uint": NUMBERS["add_uint64"],
    "double": NUMBERS["add_double"],
    "duration": TIMES["add_duration_duration"],
}


def _is_sorted(items: list[Any]) -> bool:
    try:
        return all(not one > other for one, other in pairwise(items))
    except TypeError as error:
        raise no_such_overload() from error


def _sum(kind: str) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = _ZEROS[kind]
        for item in items:
            result = _ADDING[kind](result, item)
        return result

    return total


def _extreme(name: str, best: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def chosen(items: list[Any]) -> Any:
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        try:
            return best(items)
        except TypeError as error:
            raise no_such_overload() from error

    return chosen


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((at for at, item in enumerate(items) if equal(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if equal(items[at], wanted)), -1)


def contains(items: list[Any], wanted: Any) -> bool:
    """Return whether a list has an item that equals the value."""
    if wanted.__class__ is str:
        return wanted in items
    return any(equal(item, wanted) for item in items)


def _all_in(items: list[Any], others: list[Any]) -> bool:
    return all(contains(items, other) for other in others)


def is_zero(value: Any) -> bool:
    """Return whether the value is the zero of its type: empty, 0, false, null."""
    if value.__class__ is Optional:
        return not value.present
    if value.__class__ is Timestamp:
        return bool(value.ns == TIME_MIN)
    return (
        value is None
        or value == _ZEROS["duration"]
        or (hasattr(value, "__len__") and not len(value))
        or (isinstance(value, int | float) and not value)
    )


def _value(option: Optional) -> Any:
    if option.present:
        return option.value
    raise EvaluationError("optional.none() dereference")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add_list": concatenated,
    "size_list": len,
    "in_list": lambda wanted, items: contains(items, wanted),
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_sets_contains_list": _all_in,
    "list_sets_equivalent_list": lambda one, other: _all_in(one, other) and _all_in(other, one),
    "list_sets_intersects_list": lambda one, other: any(contains(one, each) for each in other),
    "optional_of": lambda value: Optional(present=True, value=value),
    "optional_ofNonZeroValue": lambda value: NONE if is_zero(value) else Optional(present=True, value=value),
    "optional_none": lambda: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda option: option.present,
    **{f"list_{kind}_is_sorted_bool": _is_sorted for kind in COMPARABLE},
    **{f"list_{kind}_min_{kind}": _extreme("min", min) for kind in COMPARABLE},
    **{f"list_{kind}_max_{kind}": _extreme("max", max) for kind in COMPARABLE},
    **{f"list_{kind}_sum_{kind}": _sum(kind) for kind in SUMMABLE},
    **dict.fromkeys(
        ("size_bytes", "bytes_size", "list_size", "size_map", "map_size", "size_string", "string_size"), len
    ),
}
