"""JSON patch (RFC 6902) and merge patch (RFC 7386); the third format is strategic_merge.py.

Both take an object and return a new one; neither argument is changed (``json_patched`` uses both up).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.objects import JsonObject

MAX_OPERATIONS = 10_000  # apiserver handlers/patch.go
MAX_COPIED_BYTES = 3 << 20  # apiserver's limit on what "copy" may add

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
    """Return what ``json_patched`` does; both arguments stay as they are."""
    return json_patched(copy.deepcopy(obj), copy.deepcopy(ops))


def json_patched(obj: JsonObject, ops: Any) -> JsonObject:
    """Return ``obj`` with the operations carried out in order; both arguments are used up.

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
    document = {"": obj}  # the root is one more map, so that path "" needs no special case
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
    _put(document, op["path"], op["value"])


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
    at[last if isinstance(at, dict) else int(last)] = op["value"]


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
