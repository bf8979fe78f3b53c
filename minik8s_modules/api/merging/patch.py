"""The three patch formats of Kubernetes: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.

All take an object and return a new one; neither argument is changed. Strategic merge is driven by the merge keys of the
OpenAPI definitions (``schema.Shape.merge``) and understands ``$patch``, ``$retainKeys``, ``$setElementOrder/…`` and
``$deleteFromPrimitiveList/…``; the order of merged lists follows k8s.io/apimachinery ``util/strategicpatch/patch.go``.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import structural

MAX_OPERATIONS = 10_000  # apiserver handlers/patch.go
MAX_COPIED_BYTES = 3 << 20  # apiserver's limit on what "copy" may add
_DELETE_FROM = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"

# --- RFC 7386 -------------------------------------------------------------------------------------


def merge_patch(obj: Any, patch: Any) -> Any:
    """Return ``obj`` with ``patch`` merged in: maps merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(obj) if isinstance(obj, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


# --- RFC 6902 -------------------------------------------------------------------------------------


class _OperationError(Exception):
    """An operation cannot be carried out on this object; the message says why."""


def json_patch(obj: JsonObject, ops: Any) -> JsonObject:
    """Return ``obj`` with the operations carried out in order.

    Raises:
        BadRequest: ``ops`` is no JSON patch.
        StatusError: 422 Invalid: an operation failed on this object; the message names its index, op and path.
        StatusError: 413: more than MAX_OPERATIONS operations, or copies of more than MAX_COPIED_BYTES or MAX_VALUES.
    """
    if not isinstance(ops, list):
        raise BadRequest("a JSON patch is a list of operations")
    if len(ops) > MAX_OPERATIONS:
        detail = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}"
        raise StatusError(413, "RequestEntityTooLarge", detail)
    document = {"": copy.deepcopy(obj)}  # the root is one more map, so that path "" needs no special case
    copies = _Copies()
    for index, op in enumerate(ops):
        carry_out = _read_operation(index, op)
        if op["op"] == "copy":
            copies.count(_get_or_none(document, op["from"]))
        try:
            carry_out(document, op)
        except _OperationError as error:
            detail = f'operation {index} of the JSON patch ({op["op"]} "{op["path"]}") failed: {error}'
            raise StatusError(422, "Invalid", detail) from error
    root: Any = document.get("")
    if not isinstance(root, dict):
        raise StatusError(422, "Invalid", "the JSON patch does not result in an object")
    return root


class _Copies:
    """How much a patch has copied: each copy may double the object."""

    def __init__(self) -> None:
        self._bytes = self._values = 0

    def count(self, value: Any) -> None:
        """Count a value that is about to be copied; raises StatusError when it is too much, or nested too deeply."""
        try:
            self._bytes += len(orjson.dumps(value))
        except orjson.JSONEncodeError as error:  # all that was let in is shallower; only copies into copies get here
            raise size_limits.too_deep(f"more than {size_limits.MAX_DEPTH}") from error
        self._values += size_limits.size(value)
        if self._bytes > MAX_COPIED_BYTES or self._values > size_limits.MAX_VALUES:
            detail = (
                f"copies of a JSON patch are limited to {MAX_COPIED_BYTES} bytes and {size_limits.MAX_VALUES} values"
            )
            raise StatusError(413, "RequestEntityTooLarge", detail)


_Operation = Callable[[JsonObject, JsonObject], None]


def _read_operation(index: int, op: Any) -> _Operation:
    if not isinstance(op, dict):
        raise BadRequest(f"operation {index} of the JSON patch is not an object")
    name = op.get("op")
    carry_out = _OPERATIONS.get(name) if isinstance(name, str) else None
    if carry_out is None:
        raise BadRequest(
            f"operation {index} of the JSON patch: unknown op {op.get('op')!r}; known: {', '.join(_OPERATIONS)}"
        )
    pointers = ["path", "from"] if op["op"] in {"move", "copy"} else ["path"]
    for field in pointers:
        pointer = op.get(field)
        if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
            raise BadRequest(f'operation {index} of the JSON patch ({op["op"]}): "{field}" must be a JSON pointer')
    if op["op"] in {"add", "replace", "test"} and "value" not in op:
        raise BadRequest(f'operation {index} of the JSON patch ({op["op"]}) lacks "value"')
    return carry_out


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _locate(document: JsonObject, pointer: str) -> tuple[Any, str]:
    *parents, last = _steps(pointer)
    at: Any = document
    for step in parents:
        at = _child(at, step)
    return at, last


def _child(at: Any, step: str) -> Any:
    if isinstance(at, dict):
        if step not in at:
            raise _OperationError(f'"{step}" does not exist')
        return at[step]
    if isinstance(at, list):
        return at[_index(at, step, len(at) - 1)]
    raise _OperationError(f'"{step}" is below a value that is neither an object nor an array')


_LONGEST_INDEX = 9  # digits; Python refuses to read numbers of more than 4,300


def _index(at: list[Any], step: str, last: int) -> int:
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0"):
        raise _OperationError(f'"{step}" is not an array index')
    if len(step) > _LONGEST_INDEX or int(step) > last:
        raise _OperationError(f"index {step} is outside the array of {len(at)}")
    return int(step)


def _get(document: JsonObject, pointer: str) -> Any:
    at, last = _locate(document, pointer)
    return _child(at, last)


def _get_or_none(document: JsonObject, pointer: str) -> Any:
    try:
        return _get(document, pointer)
    except _OperationError:
        return None


def _put(document: JsonObject, pointer: str, value: Any) -> None:
    at, last = _locate(document, pointer)
    if isinstance(at, dict):
        at[last] = value
    elif isinstance(at, list):
        at.insert(len(at) if last == "-" else _index(at, last, len(at)), value)
    else:
        raise _OperationError(f'"{last}" is below a value that is neither an object nor an array')


def _add(document: JsonObject, op: JsonObject) -> None:
    _put(document, op["path"], copy.deepcopy(op["value"]))


def _remove_at(document: JsonObject, pointer: str) -> Any:
    at, last = _locate(document, pointer)
    value = _child(at, last)
    if isinstance(at, dict):
        del at[last]
    else:
        del at[int(last)]
    return value


def _remove(document: JsonObject, op: JsonObject) -> None:
    _remove_at(document, op["path"])


def _replace(document: JsonObject, op: JsonObject) -> None:
    """Replace a value, or add a member that an object lacks.

    RFC 6902 refuses the latter. Kubernetes' library (evanphx/json-patch 4) does not, and clients count on it:
    csi-snapshotter replaces the annotations and the status of objects that have none yet.
    """
    at, last = _locate(document, op["path"])
    if not isinstance(at, dict):
        _child(at, last)
    at[last if isinstance(at, dict) else int(last)] = copy.deepcopy(op["value"])


def _move(document: JsonObject, op: JsonObject) -> None:
    if op["path"].startswith(op["from"] + "/"):
        raise _OperationError("a value cannot be moved into itself")
    _put(document, op["path"], _remove_at(document, op["from"]))


def _copy(document: JsonObject, op: JsonObject) -> None:
    _put(document, op["path"], copy.deepcopy(_get(document, op["from"])))


def _test(document: JsonObject, op: JsonObject) -> None:
    found = _get_or_none(document, op["path"])
    if found != op["value"] or isinstance(found, bool) != isinstance(op["value"], bool):
        raise _OperationError("the value is different")


_OPERATIONS: dict[str, _Operation] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


# --- strategic merge ------------------------------------------------------------------------------


def strategic_merge(kind: Kind, obj: JsonObject, patch: Any) -> JsonObject:
    """Return ``obj`` with the strategic merge ``patch`` merged in by the kind's merge keys.

    Raises:
        BadRequest: the patch is no object, a directive in it is malformed, or a list item lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch is a JSON object")
    return _merge_map(copy.deepcopy(obj), copy.deepcopy(patch), structural.kind_shape(kind))


def _merge_map(original: JsonObject, patch: JsonObject, shape: structural.Shape | None) -> JsonObject:
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
