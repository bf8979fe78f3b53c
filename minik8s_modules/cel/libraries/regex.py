"""Regular expressions by RE2, whose time is linear in the text; ``findAll`` counts matches as Go does."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from minik8s_modules.cel.errors import EvaluationError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern; raises EvaluationError."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        kind, _, part = text.rpartition(": ")
        raise EvaluationError(f"error parsing regexp: {kind}: `{part}`") from error


def matches(text: str, pattern: str) -> bool:
    """Return whether some part of the text matches."""
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    """Return the first match, or an empty text."""
    found = compiled(pattern).search(text)
    return str(found.group()) if found else ""


def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    """Return the matches, at most ``most`` unless it is negative."""
    expression = compiled(pattern)
    found: list[str] = []
    position, last = 0, -1
    while position <= len(text) and (most < 0 or len(found) < most):
        match = expression.search(text, position)
        if match is None:
            break
        begin, end = match.span()
        if not (end == position and begin == last):  # an empty match right after another one does not count
            found.append(match.group())
        position = end + 1 if end == position else end
        last = end
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matches": matches,
    "matches_string": matches,
    "string_find_string": find,
    "string_find_all_string": find_all,
    "string_find_all_string_int": find_all,
}
