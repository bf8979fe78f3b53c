"""Arithmetic with overflow as an error, and conversions between types (cel-go, common/types)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.libraries import times
from minik8s_modules.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    Timestamp,
    UInt,
    checked_int,
    checked_uint,
)

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_MOST_DIGITS = 25  # more cannot fit 64 bits, zeros in front aside
_SMALLEST_PLAIN, _LARGEST_PLAIN = -4, 6  # powers of ten that Go prints without an exponent


def _divide(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return checked_int(quotient if (one < 0) == (other < 0) else -quotient)


def _modulo(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("modulus by zero")
    if one == INT_MIN and other == -1:
        raise EvaluationError("integer overflow")
    return int(math.copysign(1, one)) * (abs(one) % abs(other)) if one else 0


def _unsigned_divide(one: int, other: int) -> UInt:
    if other == 0:
        raise EvaluationError("division by zero")
    return UInt(one // other)


def _unsigned_modulo(one: int, other: int) -> UInt:
    if other == 0:
        raise EvaluationError("modulus by zero")
    return UInt(one % other)


def _float_divide(one: float, other: float) -> float:
    if other == 0:
        return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
    return one / other


def _to_int(value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _to_uint(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _parse_int(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise EvaluationError(f"type conversion error from 'string' to 'int': {text}")
    value = int(text)
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError(f"type conversion error from 'string' to 'int': {text}: value out of range")
    return value


def _parse_uint(text: str) -> UInt:
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS or int(text) > UINT_MAX:
        raise EvaluationError(f"type conversion error from 'string' to 'uint': {text}")
    return UInt(text)


def _parse_double(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise EvaluationError(f"type conversion error from 'string' to 'double': {text}")
    return float(text)


def _parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvaluationError(f"type conversion error from 'string' to 'bool': {text}")


def _decode(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


def print_double(value: float) -> str:
    """Return the shortest text that names the number, as Go's %g."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(digits) + int(exponent) - 1
    if value and not _SMALLEST_PLAIN <= power < _LARGEST_PLAIN:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        return f"{'-' * sign}{text[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02}"
    return "-" * sign + format(Decimal(text).scaleb(int(exponent)), "f")


def _identity(value: Any) -> Any:
    return value


PRINTERS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    UInt: lambda value: str(int(value)),
    float: print_double,
    str: str,
    bytes: _decode,
    Timestamp: times.print_timestamp,
    Duration: times.print_duration,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "logical_not": lambda value: not value,
    "add_int64": lambda a, b: checked_int(a + b),
    "subtract_int64": lambda a, b: checked_int(a - b),
    "multiply_int64": lambda a, b: checked_int(a * b),
    "divide_int64": _divide,
    "modulo_int64": _modulo,
    "negate_int64": lambda value: checked_int(-value),
    "add_uint64": lambda a, b: checked_uint(a + b),
    "subtract_uint64": lambda a, b: checked_uint(a - b),
    "multiply_uint64": lambda a, b: checked_uint(a * b),
    "divide_uint64": _unsigned_divide,
    "modulo_uint64": _unsigned_modulo,
    "add_double": lambda a, b: a + b,
    "subtract_double": lambda a, b: a - b,
    "multiply_double": lambda a, b: a * b,
    "divide_double": _float_divide,
    "negate_double": lambda value: -value,
    "bool_to_bool": _identity,
    "string_to_bool": _parse_bool,
    "bytes_to_bytes": _identity,
    "string_to_bytes": lambda text: text.encode(errors="replace"),
    "double_to_double": _identity,
    "int64_to_double": float,
    "uint64_to_double": float,
    "string_to_double": _parse_double,
    "int64_to_int64": _identity,
    "uint64_to_int64": lambda value: checked_int(int(value)),
    "double_to_int64": _to_int,
    "string_to_int64": _parse_int,
    "uint64_to_uint64": _identity,
    "int64_to_uint64": checked_uint,
    "double_to_uint64": _to_uint,
    "string_to_uint64": _parse_uint,
    "string_to_string": _identity,
    "bool_to_string": PRINTERS[bool],
    "bytes_to_string": _decode,
    "double_to_string": print_double,
    "int64_to_string": str,
    "uint64_to_string": PRINTERS[UInt],
    "duration_to_duration": _identity,
    "timestamp_to_timestamp": _identity,
    "to_dyn": _identity,
}
