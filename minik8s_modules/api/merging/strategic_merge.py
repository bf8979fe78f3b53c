"""Strategic merge patch, driven by the merge keys of the OpenAPI definitions (``schema.Shape.merge``).

Understands ``$patch``, ``$retainKeys``, ``$setElementOrder/…`` and ``$deleteFromPrimitiveList/…``; the order of merged
lists follows k8s.io/apimachinery ``util/strategicpatch/patch.go``. The other two formats: patch.py.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import structural

_DELETE_FROM = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"


def strategic_merge(kind: Kind, obj: JsonObject, patch: Any) -> JsonObject:
    """Return what ``strategic_merged`` does; both arguments stay as they are."""
    return strategic_merged(kind, copy.deepcopy(obj), copy.deepcopy(patch))


def strategic_merged(kind: Kind, obj: JsonObject, patch: Any) -> JsonObject:
    """Return ``obj`` with ``patch`` merged in by the kind's merge keys; both arguments are used up.

    Raises:
        BadRequest: the patch is no object, a directive in it is malformed, or a list item lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch is a JSON object")
    return _merge_map(obj, patch, structural.kind_shape(kind))


def _merge_map(original: JsonObject, patch: JsonObject, shape: structural.Shape | None) -> JsonObject:
    if not any(name[:1] == "$" for name in patch):  # most maps have no directives
        for name, value in patch.items():
            _merge_field(original, name, value, _field_shape(shape, name))
        return original
    directive = patch.pop("$patch", None)
    if directive == "replace":
        replaced: JsonObject = _without_directives(patch)
        return replaced
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):  # a tuple: what is no text may not be hashable
        raise BadRequest(f"invalid value of $patch: {directive!r}")
    _retain_keys(original, patch)
    deletions = {name: patch.pop(name) for name in [n for n in patch if n.startswith(_DELETE_FROM)]}
    orders = {name: patch.pop(name) for name in [n for n in patch if n.startswith(_SET_ORDER)]}
    before = {name.removeprefix(_SET_ORDER): original.get(name.removeprefix(_SET_ORDER)) for name in orders}
    for name, value in patch.items():
        _merge_field(original, name, value, _field_shape(shape, name))
    _delete_from_primitive_lists(original, deletions)
    for name, order in orders.items():
        field = name.removeprefix(_SET_ORDER)
        _set_order(original, field, order, before[field], _field_shape(shape, field))
    return original


def _field_shape(shape: structural.Shape | None, name: str) -> structural.Shape | None:
    if shape is None:
        return None
    if shape.kind == "map":
        return shape.items
    return shape.fields[name] if name in shape.fields else None  # noqa: SIM401 - fields are compiled when asked for


def _merge_field(original: JsonObject, name: str, value: Any, shape: structural.Shape | None) -> None:
    strategies = shape.merge.strategies if shape else frozenset()
    if value is None:
        original.pop(name, None)
    elif isinstance(value, dict):
        there = original.get(name)
        keep = isinstance(there, dict) and "replace" not in strategies
        original[name] = _merge_map(there if keep and there is not None else {}, value, shape)
    elif isinstance(value, list) and shape is not None and "merge" in strategies:
        there = original.get(name)
        original[name] = _merge_list(there if isinstance(there, list) else [], value, shape)
    else:
        original[name] = _without_directives(value)


def _merge_list(original: list[Any], patch: list[Any], shape: structural.Shape) -> list[Any]:
    key = shape.merge.key
    if not key:
        there = set(map(_hashable, original))
        new = {_hashable(value): value for value in patch}
        merged = original + [value for name, value in new.items() if name not in there]
        return _ordered(merged, patch, original, _itself)
    if any(_directive(item) == "replace" for item in patch):
        return [
            _merge_map({}, dict(item), shape.items) for item in patch if _directive(item) not in ("replace", "delete")
        ]
    identify = _by_key(key)
    deleted = {_hashable(identify(item)) for item in patch if _directive(item) == "delete"}
    merged = [item for item in original if _hashable(identify(item)) not in deleted]
    kept = [item for item in patch if _directive(item) != "delete"]
    places = {_hashable(identify(item)): index for index, item in reversed(list(enumerate(merged)))}
    for item in kept:
        index = places.setdefault(_hashable(identify(item)), len(merged))
        if index == len(merged):
            merged.append(_merge_map({}, dict(item), shape.items))
        else:
            merged[index] = _merge_map(merged[index], dict(item), shape.items)
    return _ordered(merged, kept, original, identify)


_Identify = Callable[[Any], Any]


def _itself(item: Any) -> Any:
    return item


def _by_key(key: str) -> _Identify:
    def identify(item: Any) -> Any:
        if not isinstance(item, dict) or key not in item:
            raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
        return item[key]

    return identify


def _directive(item: Any) -> str:
    return str(item.get("$patch") or "") if isinstance(item, dict) else ""


def _ordered(merged: list[Any], wanted: Sequence[Any], server: Sequence[Any], identify: _Identify) -> list[Any]:
    """Return ``merged`` with the items of ``wanted`` in its order, and the others where the server had them."""
    places = {_hashable(identify(item)): place for place, item in reversed(list(enumerate(wanted)))}
    server_places = {_hashable(identify(item)): place for place, item in reversed(list(enumerate(server)))}
    named = [(_hashable(identify(item)), item) for item in merged]
    left = deque(sorted((e for e in named if e[0] not in places), key=lambda e: server_places.get(e[0], len(server))))
    right = deque(sorted((e for e in named if e[0] in places), key=lambda e: places[e[0]]))
    result = []
    while left and right:
        ours, theirs = server_places.get(left[0][0]), server_places.get(right[0][0])
        goes_first = ours is not None and theirs is not None and ours < theirs
        result.append((left if goes_first else right).popleft()[1])
    return result + [item for _, item in (*left, *right)]


def _hashable(value: Any) -> Any:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if isinstance(value, dict | list) else value


def _set_order(original: JsonObject, field: str, order: Any, before: Any, shape: structural.Shape | None) -> None:
    items = original.get(field)
    if not isinstance(order, list):
        raise BadRequest(f"{_SET_ORDER}{field} must be a list")
    if not isinstance(items, list) or shape is None or "merge" not in shape.merge.strategies:
        return
    identify = _by_key(shape.merge.key) if shape.merge.key else _itself
    original[field] = _ordered(items, order, before if isinstance(before, list) else [], identify)


def _retain_keys(original: JsonObject, patch: JsonObject) -> None:
    retained = patch.pop("$retainKeys", None)
    if retained is None:
        return
    if not isinstance(retained, list):
        raise BadRequest("$retainKeys must be a list of field names")
    kept = set(map(_hashable, retained))
    missing = [
        name for name, value in patch.items() if value is not None and not name.startswith("$") and name not in kept
    ]
    if missing:
        raise BadRequest(f"$retainKeys does not name {', '.join(missing)}, which the patch sets")
    for name in [name for name in original if name not in kept]:
        del original[name]


def _delete_from_primitive_lists(original: JsonObject, deletions: JsonObject) -> None:
    for name, deleted in deletions.items():
        field = name.removeprefix(_DELETE_FROM)
        if not isinstance(deleted, list):
            raise BadRequest(f"{name} must be a list")
        if isinstance(original.get(field), list):
            gone = set(map(_hashable, deleted))
            original[field] = [value for value in original[field] if _hashable(value) not in gone]


def _without_directives(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _without_directives(inner)
            for name, inner in value.items()
            if inner is not None and not _is_directive(name)
        }
    return value


def _is_directive(name: str) -> bool:
    return name in {"$patch", "$retainKeys"} or name.startswith((_DELETE_FROM, _SET_ORDER))
