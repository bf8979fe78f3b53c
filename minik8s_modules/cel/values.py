"""Values of CEL as Python objects.

null, bool, int, double, string, bytes, list and map are Python's own; JSON needs no conversion. What Python has no
type for stands here: ``UInt``, ``Timestamp``, ``Duration``, ``Optional``, and bool keys of maps (``True`` and 1 are
one key to a dict). Types are values as well: ``Type`` objects.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import CostExceeded, EvaluationError
from minik8s_modules.cel.types import Type

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)
UINT_MAX = 2**64 - 1
SECOND = 1_000_000_000  # ns
TIME_MIN = -62135596800 * SECOND  # 0001-01-01T00:00:00Z
TIME_MAX = 253402300799 * SECOND + SECOND - 1  # 9999-12-31T23:59:59.999999999Z
MOST_COMPARISONS = 500_000  # within lists, maps and objects, by one expression: costs count only the outermost size


class UInt(int):
    """An unsigned number of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment: nanoseconds since 1970-01-01T00:00:00Z, and the offset it was written with (for printing)."""

    ns: int
    offset_s: int = field(default=0, compare=False)

    def moment(self) -> datetime:
        """The moment in UTC, to the microsecond."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.ns // 1000)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span in nanoseconds."""

    ns: int


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Any = None


NONE = Optional(present=False)


@dataclass(frozen=True, slots=True)
class BoolKey:
    """A bool as key of a map."""

    value: bool


_KINDS: dict[type, Type] = {
    type(None): types.NULL,
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    list: types.list_of(types.DYN),
    dict: types.map_of(types.DYN, types.DYN),
    Timestamp: types.TIMESTAMP,
    Duration: types.DURATION,
    Optional: types.optional_of(types.DYN),
    Type: types.TYPE,
}


def type_of(value: Any) -> Type:
    """Return the type of a value, without parameters' details."""
    found = _KINDS.get(value.__class__)
    return found if found is not None else getattr(value, "cel_type", types.DYN)


def key_of(value: Any) -> Any:
    """Return what stands for the value as a key of a dict."""
    return BoolKey(value) if value.__class__ is bool else value


def from_key(key: Any) -> Any:
    """Return the value that a key of a dict stands for."""
    return key.value if key.__class__ is BoolKey else key


NUMBERS = frozenset({int, UInt, float})
_PLAIN = frozenset({str, int, bool, float, UInt, bytes, type(None), Timestamp, Duration})


class _Allowance(threading.local):
    left = MOST_COMPARISONS


_ALLOWANCE = _Allowance()


def allow_comparisons() -> None:
    """Let an expression of this thread compare ``MOST_COMPARISONS`` inner values from now on."""
    _ALLOWANCE.left = MOST_COMPARISONS


def count_comparisons(count: int) -> None:
    """Count inner values that are about to be compared; raises CostExceeded when they are too many."""
    _ALLOWANCE.left -= count
    if _ALLOWANCE.left < 0:
        raise CostExceeded


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal: numbers by value, whatever their types; other types differ."""
    kind = left.__class__
    if kind is right.__class__ and kind in _PLAIN:
        return bool(left == right)
    if kind is not right.__class__:
        return bool(left == right) if kind in NUMBERS and right.__class__ in NUMBERS else False
    if kind is list:
        count_comparisons(len(left) + 1)
        return len(left) == len(right) and all(map(equal, left, right))
    if kind is dict:
        count_comparisons(len(left) + 1)
        return len(left) == len(right) and all(key in right and equal(each, right[key]) for key, each in left.items())
    if kind is Optional:
        return left.present == right.present and equal(left.value, right.value)
    return bool(left == right)


def checked_int(value: int) -> int:
    """Return the number, or raise when it does not fit 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> UInt:
    """Return the number as unsigned, or raise when it does not fit 64 bits."""
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")


def size_of(value: Any) -> int:
    """Return the size as costs count it: items, entries, code points or bytes; 1 for all else."""
    kind = value.__class__
    if kind is str or kind is list or kind is dict or kind is bytes:
        return len(value)
    return int(value.cel_size()) if hasattr(value, "cel_size") else 1
