"""``string.format``: the clauses of cel-go's ext/formatting.go, in its locale en_US."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.libraries import numbers, times
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import Duration, Timestamp, UInt, from_key, type_of

MOST_DIGITS = 1000  # of a precision
_SUPERSCRIPT = str.maketrans("0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b")
_CLAUSES = frozenset("sdfebxXo")
_ALLOWED = {  # which types a clause takes when types are known
    "d": {"int", "uint"},
    "f": {"double", "string"},
    "e": {"double", "string"},
    "b": {"int", "uint", "bool"},
    "x": {"int", "uint", "string", "bytes"},
    "X": {"int", "uint", "string", "bytes"},
    "o": {"int", "uint"},
    "s": {"list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"},
}
_REFUSALS = {
    "d": "decimal clause can only be used on integers, was given {}",
    "f": "fixed-point clause can only be used on doubles, was given {}",
    "e": "scientific clause can only be used on doubles, was given {}",
    "b": "only integers and bools can be formatted as binary, was given {}",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "X": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "o": "octal clause can only be used on integers, was given {}",
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
    "and timestamps, was given {}",
}


def format_string(text: str, values: list[Any]) -> str:
    """Return the text with its clauses replaced by the values in turn."""
    parts = []
    used = 0
    for part, clause, precision in _parts(text):
        if not clause:
            parts.append(part)
            continue
        if used >= len(values):
            raise EvaluationError(f"index {used} out of range")
        parts.append(_format(clause, precision, values[used]))
        used += 1
    return "".join(parts)


def check_format(text: str, given: list[Type]) -> Iterator[tuple[int | None, str]]:
    """Yield what is wrong with a constant format: the index of the value (None: the whole call), and the message."""
    used = 0
    try:
        for _, clause, _ in _parts(text):
            if not clause:
                continue
            if used >= len(given):
                yield None, f"index {used} out of range"
                return
            if given[used].kind not in _ALLOWED[clause] | {"dyn", "error"}:
                yield used, _refusal(clause, given[used])
                return
            used += 1
    except EvaluationError as error:
        yield None, str(error)
        return
    if used < len(given):
        yield None, f"too many arguments supplied to string.format (expected {used}, got {len(given)})"


def _parts(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield texts as they are, and clauses: letter and precision (-1: none given)."""
    position = 0
    while position < len(text):
        percent = text.find("%", position)
        if percent < 0:
            break
        if percent > position:
            yield text[position:percent], "", -1
        position = percent + 1
        if text[position : position + 1] == "%":
            yield "%", "", -1
            position += 1
            continue
        precision, position = _precision(text, position)
        clause = text[position : position + 1]
        if not clause:
            raise EvaluationError("unexpected end of string")
        if clause not in _CLAUSES:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
        yield "", clause, precision
        position += 1
    yield text[position:], "", -1


def _precision(text: str, position: int) -> tuple[int, int]:
    if text[position : position + 1] != ".":
        return -1, position
    end = position + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    digits = text[position + 1 : end]
    if not digits or len(digits) > 4 or int(digits) > MOST_DIGITS:  # noqa: PLR2004 - digits of MOST_DIGITS
        raise EvaluationError("error while parsing precision: could not convert precision to integer")
    return int(digits), end


def _refusal(clause: str, kind: Type) -> str:
    return f"error during formatting: {_REFUSALS[clause].format(kind.name or kind.kind)}"


def _format(clause: str, precision: int, value: Any) -> str:
    kind = type_of(value)
    if kind.kind not in _ALLOWED[clause]:
        raise EvaluationError(_refusal(clause, kind))
    if clause == "s":
        return _text(value)
    if clause in "fe":
        return _decimal(clause, 6 if precision < 0 else precision, _number(clause, value, kind))
    if clause == "d":
        return str(int(value))
    if clause in "xX" and value.__class__ in {str, bytes}:
        digits = value.hex() if isinstance(value, bytes) else str(value).encode().hex()
        return digits.upper() if clause == "X" else digits
    return format(int(value), clause)


def _number(clause: str, value: Any, kind: Type) -> float:
    if value.__class__ is str and value not in {"NaN", "Infinity", "-Infinity"}:
        raise EvaluationError(_refusal(clause, kind))
    return float(value)


def _decimal(clause: str, precision: int, value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("\u221e" if value > 0 else "-\u221e")
    if clause == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{mantissa}\u202f\u00d7\u202f10{exponent.lstrip('+').translate(_SUPERSCRIPT)}"


def _text(value: Any) -> str:
    kind = value.__class__
    if kind is str:
        return str(value)
    if value is None:
        return "null"
    if kind is list:
        return f"[{', '.join(_literal(each) for each in value)}]"
    if kind is dict:
        return _map_text(value)
    if kind is Type:
        return str(value)
    printer: Callable[[Any], str] = numbers.PRINTERS[kind]
    return printer(value)


def _map_text(value: dict[Any, Any]) -> str:
    pairs = sorted((_literal(from_key(key)), _literal(each)) for key, each in value.items())
    return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"


def _literal(value: Any) -> str:
    """Return a value as it stands within a list or map: a literal of CEL."""
    kind = value.__class__
    if kind is str:
        return json.dumps(value, ensure_ascii=False)
    if kind is bytes:
        return "b" + json.dumps(value.decode(errors="replace"), ensure_ascii=False)
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{numbers.print_double(value)}"'
    if kind is Timestamp:
        return f'timestamp("{times.print_timestamp(value)}")'
    if kind is Duration:
        return f'duration("{times.print_duration(value)}")'
    if kind is UInt or kind in {int, bool, list, dict, Type} or value is None:
        return _text(value)
    raise EvaluationError(f"no formatting function for {type_of(value)}")
