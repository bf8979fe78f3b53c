"""Times of VirtualServices: a whole number and ms, s or m, above nothing and at most an hour."""

from __future__ import annotations

import re

LONGEST_MS = 3_600_000
_TIME = re.compile(r"([1-9]\d{0,6})(ms|s|m)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000}


def milliseconds(text: str) -> int:
    """Return how long a time is.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS_MS[found[2]]


def time_fault(text: str) -> str:
    """Return what is wrong with a time, "" if nothing is."""
    try:
        return "" if milliseconds(text) <= LONGEST_MS else "must be at most an hour"
    except ValueError:
        return "must be a time such as 500ms, 2s or 1m"
