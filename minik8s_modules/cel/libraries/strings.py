"""Strings, version 2 (cel-go, ext/strings.go): positions are code points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.errors import CostExceeded, EvaluationError
from minik8s_modules.cel.libraries.formatting import format_string

LONGEST = 16 * 1024 * 1024  # of a text that a function may make: far above what a budget allows to be read again
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTED = str.maketrans({"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
                         "\\": "\\\\", '"': '\\"'})  # fmt: skip


def _out_of_range(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


def bounded(length: int) -> None:
    """Raise when a result would be too long to be made."""
    if length > LONGEST:
        raise CostExceeded


def concatenated(one: Any, other: Any) -> Any:
    """Return two strings, bytes or lists joined."""
    bounded(len(one) + len(other))
    return one + other


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    return text.rfind(part) if text else -1


def _last_index_before(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    count = len(text) + 1 if not old else text.count(old)
    count = count if most < 0 else min(count, most)
    bounded(len(text) + count * len(new))
    return text.replace(old, new, count)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if separator:
        return text.split(separator, most - 1) if most > 0 else text.split(separator)
    if most < 0 or most >= len(text):
        return list(text)
    return [*text[: most - 1], text[most - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, len(text) if end is None else end):
        if not 0 <= position <= len(text):
            raise _out_of_range(position)
    return text[start:end]


def _join(items: list[Any], separator: str = "") -> str:
    for item in items:
        if item.__class__ is not str:
            raise EvaluationError(f"join: invalid input: {item}")
    bounded(sum(map(len, items)) + len(separator) * len(items))
    return separator.join(items)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains_string": lambda text, part: part in text,
    "starts_with_string": lambda text, part: text.startswith(part),
    "ends_with_string": lambda text, part: text.endswith(part),
    "add_string": concatenated,
    "add_bytes": concatenated,
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_before,
    "string_lower_ascii": lambda text: text.translate(_ASCII_LOWER),
    "string_upper_ascii": lambda text: text.translate(_ASCII_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_SPACES),
    "string_format": format_string,
    "strings_quote": lambda text: f'"{text.translate(_QUOTED)}"',
    "list_join": _join,
    "list_join_string": _join,
}
