"""``fieldPath`` of a rule: a JSON path of fields and map keys (apiextensions, schema/cel/validation.go)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]'][^.\[\]]*|'")
_ESCAPE = re.compile(r"\\(.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
_NOT_A_FIELD = "does not refer to a valid field"


def normalized(path: str, schema: Mapping[str, Any]) -> str:
    """Return the path as messages write it; raises ValueError when the schema has no such field."""
    tokens = _TOKEN.findall(path)
    result = ""
    at = 0
    while at < len(tokens):
        name, at = _step(tokens, at)
        properties, below = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                raise ValueError(_NOT_A_FIELD)
            schema, result = properties[name], f"{result}.{name}" if result else name
        elif isinstance(below, Mapping):
            schema, result = below, f"{result}[{name}]"
        else:
            raise ValueError(_NOT_A_FIELD)
    return result


def _step(tokens: list[str], at: int) -> tuple[str, int]:
    following = [*tokens[at + 1 : at + 3], "", ""]
    if tokens[at] == "." and following[0]:
        return following[0], at + 2
    if tokens[at] != "[":
        raise ValueError(
            "unexpected end of JSON path" if tokens[at] == "." else f"expected [ or . but got: {tokens[at]}"
        )
    quoted = following[0]
    if len(quoted) < 2 or not quoted.startswith("'") or not quoted.endswith("'"):  # noqa: PLR2004 - two quotes
        raise ValueError(f"expected single quoted string but got {quoted}" if quoted else "unexpected end of JSON path")
    if following[1] != "]":
        raise ValueError(f"expected ] but got {following[1]}" if following[1] else "unexpected end of JSON path")
    return _ESCAPE.sub(_unescaped, quoted[1:-1]), at + 3


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _LETTERS:
        raise ValueError(f"invalid string literal: invalid escape char {found[0]}")
    return _LETTERS[found[1]]
