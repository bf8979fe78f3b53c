"""Equality and ``+`` of what a schema describes: lists of type set and map, and objects field by field.

As pkg/cel/common/values.go: a set equals one with the same items in any order, a list of type map one with equal
items under the same keys; what the left side is decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.checking.unify import most_general
from minik8s_modules.cel.running.reading import reader
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import count_comparisons, equal

Equal = Callable[[Any, Any], bool]


def equality(left: Type, right: Type) -> Equal:
    """Return how values of two static types compare; of the left side's type, unless only the right one is known."""
    kind = left if left.declared is not None else most_general(left, right)
    return _equality(kind) or equal


def _equality(kind: Type) -> Equal | None:
    """Return the comparison, or None when the general one does."""
    declared = kind.declared
    if kind.kind == "list" and declared is not None:
        if declared.list_type == "set":
            return _same_set
        item = _equality(kind.params[0])
        if declared.list_type == "map":
            return _same_map_list(declared.map_keys, item or equal)
        return _same_items(item) if item else None
    if kind.kind == "map" and declared is not None:
        item = _equality(kind.params[1])
        return _same_entries(item) if item else None
    if kind.kind == "object" and declared is not None:
        return _same_object(kind)
    return None


def _same_set(one: list[Any], other: list[Any]) -> bool:
    count_comparisons(len(one))
    return (
        len(one) == len(other) and all(any(equal(a, b) for a in one) for b in other)
        if _unhashable(one, other)
        else (len(one) == len(other) and set(other) <= set(one))
    )


def _unhashable(*lists: list[Any]) -> bool:
    return any(item.__class__ in {dict, list, bool} for items in lists for item in items)


def _key(item: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(item, dict):
        return None
    return tuple((item.get(key).__class__, item.get(key)) for key in keys)


def _same_map_list(keys: tuple[str, ...], same: Equal) -> Equal:
    def compare(one: list[Any], other: list[Any]) -> bool:
        if len(one) != len(other):
            return False
        count_comparisons(len(one) + 1)
        known = {_key(item, keys): item for item in one}
        return all((key := _key(item, keys)) in known and same(known[key], item) for item in other)

    return compare


def _same_items(same: Equal) -> Equal:
    def compare(one: list[Any], other: list[Any]) -> bool:
        count_comparisons(len(one) + 1)
        return len(one) == len(other) and all(map(same, one, other))

    return compare


def _same_entries(same: Equal) -> Equal:
    def compare(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
        count_comparisons(len(one) + 1)
        return len(one) == len(other) and all(key in other and same(each, other[key]) for key, each in one.items())

    return compare


def _same_object(kind: Type) -> Equal | None:
    fields = {} if kind.declared is None else {each.json_name: each.type for each in kind.declared.fields.values()}
    known = {name: (reader(each), _equality(each)) for name, each in fields.items()}
    special = {name: how for name, how in known.items() if any(how)}
    if not special:
        return None

    def same(name: str, value: Any, other: Any) -> bool:
        read, compare = special.get(name, (None, None))
        if value is None or other is None:
            return value is other
        return (compare or equal)(*(map(read, (value, other)) if read else (value, other)))

    def compare(one: Any, other: Any) -> bool:
        if one.__class__ is not dict or other.__class__ is not dict or len(one) != len(other):
            return bool(one == other)
        count_comparisons(len(one) + 1)
        return all(name in other and same(name, value, other[name]) for name, value in one.items())

    return compare


def adding(kind: Type) -> Callable[[list[Any], list[Any]], list[Any]] | None:
    """Return ``+`` of a list of type set or map, or None for plain lists."""
    declared = kind.declared
    if declared is None or declared.list_type == "atomic":
        return None
    return _union if declared.list_type == "set" else _merge(declared.map_keys)


def _union(one: list[Any], other: list[Any]) -> list[Any]:
    result = list(one)
    if _unhashable(one, other):
        for item in other:
            if not any(equal(item, each) for each in result):
                result.append(item)
        return result
    return (
        list(dict.fromkeys(result + other))
        if len(set(one)) == len(one)
        else result + [i for i in other if i not in one]
    )


def _merge(keys: tuple[str, ...]) -> Callable[[list[Any], list[Any]], list[Any]]:
    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        merged = {_key(item, keys): item for item in one}
        merged.update((_key(item, keys), item) for item in other)
        return list(merged.values())

    return merge
