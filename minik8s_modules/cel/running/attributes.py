"""Variables, fields, indexes: reading what JSON holds.

A field that is null counts as absent where a schema names the object's fields, as upstream has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.errors import EvaluationError, no_such_overload
from minik8s_modules.cel.running.code import SPENT, Code, Frame, Run
from minik8s_modules.cel.running.reading import Read, reader
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import NONE, Optional, UInt, key_of, type_of

_ABSENT = object()
_NULL = "invalid data, got null for schema with nullable=false"


def variable(slot: int, name: str) -> Code:
    """Return what reads a variable."""
    del name
    return Code(lambda frame: frame[slot], 1, attribute=True, branch_discount=1, slot=slot)


def missing_variable(name: str) -> EvaluationError:
    """The error of a variable that was declared but not given."""
    return EvaluationError(f"no such attribute(s): {name}")


def _no_key(key: Any) -> EvaluationError:
    return EvaluationError(f"no such key: {key}")


def _cost(operand: Code) -> int:
    return operand.cost + (1 if operand.attribute else 2)


def select(operand: Code, kind: Type, name: str, *, optional: bool) -> Code:
    """Return what reads ``operand.name``, where the operand has a static type."""
    if optional or kind.kind not in {"object", "map"}:
        code = _attribute(_select_dynamic(operand.run, _finder(kind, name), name, optional=optional), operand)
        return code._replace(cost=code.cost - 1)
    if kind.kind == "map":
        return _attribute(_select_key(operand.run, name), operand)
    found = kind.declared.fields[name] if kind.declared else None
    if found is None or (kind.declared and kind.declared.null_is_value):
        return _attribute(_select_key(operand.run, name), operand)
    read = reader(found.type)
    run = _fast(operand, found.json_name, name) if read is None else None
    code = _attribute(run or _select_field(operand.run, found.json_name, name, read), operand)
    if run is not None:
        return code._replace(slot=operand.slot, names=(*operand.names, found.json_name))
    return code


def _attribute(run: Run, operand: Code) -> Code:
    return Code(run, _cost(operand), attribute=True, branch_discount=1 if operand.attribute else 0)


def _fast(operand: Code, key: str, name: str) -> Run | None:
    """Return one closure for fields of a variable: each closure less saves 50 ns."""
    slot, names = operand.slot, operand.names
    if slot < 0 or len(names) > 2:  # noqa: PLR2004 - the forms below
        return None
    slow = _select_field(operand.run, key, name, None)

    def one(frame: Frame) -> Any:
        try:
            value = frame[slot][key]
        except (KeyError, TypeError):
            return slow(frame)
        return slow(frame) if value is None else value

    if not names:
        return one
    first, second = names[0], names[-1]

    def two(frame: Frame) -> Any:
        try:
            value = frame[slot][first][key]
        except (KeyError, TypeError):
            return slow(frame)
        return slow(frame) if value is None else value

    def three(frame: Frame) -> Any:
        try:
            value = frame[slot][first][second][key]
        except (KeyError, TypeError):
            return slow(frame)
        return slow(frame) if value is None else value

    return two if len(names) == 1 else three


def _select_field(run: Run, key: str, name: str, read: Read | None) -> Run:
    def field(frame: Frame) -> Any:
        operand = run(frame)
        try:
            value = operand[key]
        except KeyError:
            raise _no_key(name) from None
        except (TypeError, IndexError):
            raise no_such_overload() from None
        if value is None:
            raise _no_key(name)
        return read(value) if read else value

    return field


def _select_key(run: Run, key: str) -> Run:
    def entry(frame: Frame) -> Any:
        operand = run(frame)
        try:
            return operand[key]
        except KeyError:
            raise _no_key(key) from None
        except (TypeError, IndexError):
            raise no_such_overload() from None

    return entry


Find = Callable[[Any], Any]


def _finder(kind: Type, name: str) -> Find:
    """Return what finds a field in a value that may be an object: ``_ABSENT`` when it has none."""
    inner = kind.params[0] if kind.kind == "opaque" and kind.params else kind
    declared = inner.declared.fields.get(name) if inner.kind == "object" and inner.declared else None
    key = declared.json_name if declared else name
    read = reader(declared.type) if declared else None

    def find(value: Any) -> Any:
        if not isinstance(value, dict):
            raise no_such_overload()
        try:
            found = value[key]
        except KeyError:
            return _ABSENT
        if found is None and declared is not None:
            return _ABSENT
        return read(found) if read else found

    return find


def _select_dynamic(run: Run, find: Find, name: str, *, optional: bool) -> Run:
    def field(frame: Frame) -> Any:
        operand = run(frame)
        wrapped = operand.__class__ is Optional
        if wrapped and not operand.present:
            return NONE
        value = find(operand.value if wrapped else operand)
        if value is not _ABSENT or not (wrapped or optional):
            frame[SPENT] += 1  # upstream does not count an optional field that is absent
        if wrapped or optional:
            return NONE if value is _ABSENT else Optional(present=True, value=value)
        if value is _ABSENT:
            raise _no_key(name)
        return value

    return field


def has(operand: Code, kind: Type, name: str) -> Code:
    """Return what tells whether the operand has a field."""
    run, find = operand.run, _finder(kind, name)

    def test(frame: Frame) -> bool:
        value = run(frame)
        if value.__class__ is Optional:
            return value.present and find(value.value) is not _ABSENT
        return find(value) is not _ABSENT

    return Code(_fast_has(operand, kind, name) or test, operand.cost + (0 if operand.attribute else 1))


_MAP = "a map for the provided schema with type=object"
_EXPECTED: dict[str, tuple[tuple[type, ...], str]] = {
    "list": ((list,), "an array for the provided schema with type=array"),
    "map": ((dict,), _MAP),
    "object": ((dict,), _MAP),
    "dyn": ((str, int), "XIntOrString value to be either a string or integer"),
}


def _fast_has(operand: Code, kind: Type, name: str) -> Run | None:
    if kind.kind != "object" or kind.declared is None:
        return None
    found = kind.declared.fields[name]
    run, key = operand.run, found.json_name
    expected, text = _EXPECTED.get(found.type.kind if found.type.declared else "", ((), ""))

    def test(frame: Frame) -> bool:
        try:
            value = run(frame)[key]
        except KeyError:
            return False
        except (TypeError, IndexError):
            raise no_such_overload() from None
        if value is None:
            return False
        if value.__class__ not in expected and expected:
            raise EvaluationError(f"invalid data, expected {text}")
        return True

    return test


def index(operand: Code, kind: Type, at: Code, *, optional: bool) -> Code:
    """Return what reads ``operand[at]``."""
    run, position, counted = operand.run, at.run, at.constant
    strict = _never_null(kind)

    def entry(frame: Frame) -> Any:
        value = run(frame)
        key = position(frame)
        wrapped = value.__class__ is Optional
        if wrapped and not value.present:
            return NONE
        found = _found(value.value if wrapped else value, key)
        if optional and counted and found is not _ABSENT:
            frame[SPENT] += 1
        if wrapped or optional:
            return NONE if found is _ABSENT else Optional(present=True, value=found)
        if found is None and strict:
            raise EvaluationError(_NULL)
        if found is _ABSENT:
            raise _no_key(key) if isinstance(value, dict) else EvaluationError(f"index out of bounds: {key}")
        return found

    beyond = (0 if optional else 1) if at.constant else at.cost + (0 if at.attribute else 1)
    cost = operand.cost + (0 if operand.attribute else 1) + beyond
    return Code(entry, cost, attribute=True, branch_discount=1 if operand.attribute else 0)


def _found(value: Any, key: Any) -> Any:
    if value.__class__ is list:
        at = _position(key)
        return value[at] if 0 <= at < len(value) else _ABSENT
    if isinstance(value, dict):
        return value.get(key_of(key), _ABSENT) if value.__class__ is dict else _lazily(value, key)
    raise no_such_overload()


def _never_null(kind: Type) -> bool:
    """Whether a schema says that items (or entries) are not null."""
    item = kind.params[-1] if kind.kind in {"list", "map"} else None
    return item is not None and item.declared is not None and not item.declared.nullable and kind.declared is not None


def _lazily(value: dict[Any, Any], key: Any) -> Any:
    try:
        return value[key]
    except KeyError:
        return _ABSENT


def _position(key: Any) -> int:
    if key.__class__ is int or key.__class__ is UInt or (key.__class__ is float and key.is_integer()):
        return int(key)
    raise EvaluationError(f"unsupported index type '{type_of(key)}' in list")
