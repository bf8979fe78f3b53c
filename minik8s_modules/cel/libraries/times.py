"""Timestamps and durations: how they are read and printed, and what they are made of (cel-go, common/types)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.values import INT_MAX, INT_MIN, SECOND, TIME_MAX, TIME_MIN, Duration, Timestamp

_UNITS = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND,
    "h": 3600 * SECOND,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION = re.compile(rf"[+-]?(?:{_DURATION_PART.pattern})+")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_OFFSET = re.compile(r"([+-]?)(\d{1,2}):(\d{2})", re.ASCII)


def parse_duration(text: str) -> Duration:
    """Return the span that Go's notation names (``1h30m``, ``-1.5s``, ``0``)."""
    if text in {"0", "+0", "-0"}:
        return Duration(0)
    if not _DURATION.fullmatch(text):
        raise EvaluationError(f'time: invalid duration "{text}"')
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        if not whole and not fraction:
            raise EvaluationError(f'time: invalid duration "{text}"')
        total += int(Decimal(f"{whole or 0}.{fraction or 0}") * _UNITS[unit])
    return duration(-total if text.startswith("-") else total, f'time: invalid duration "{text}"')


def duration(ns: int, message: str = "integer overflow") -> Duration:
    """Return the span, or raise when it does not fit 64 bits of nanoseconds."""
    if INT_MIN <= ns <= INT_MAX:
        return Duration(ns)
    raise EvaluationError(message)


def timestamp(ns: int, offset_s: int = 0) -> Timestamp:
    """Return the moment, or raise when it is outside the years 1 to 9999."""
    if TIME_MIN <= ns <= TIME_MAX:
        return Timestamp(ns, offset_s)
    raise EvaluationError("timestamp overflow")


def parse_timestamp(text: str) -> Timestamp:
    """Return the moment that a text in RFC 3339 names."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise EvaluationError(f'parsing time "{text}" as RFC 3339: cannot parse')
    *numbers, fraction, utc, sign, hours, minutes = found.groups()
    offset = 0 if utc else (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)
    try:
        moment = datetime(*map(int, numbers))  # type: ignore[arg-type] # noqa: DTZ001 - the offset is apart
    except ValueError as error:
        raise EvaluationError(f'parsing time "{text}": {error}') from error
    seconds = (moment - datetime(1970, 1, 1)) // timedelta(seconds=1)  # noqa: DTZ001
    return timestamp((seconds - offset) * SECOND + int((fraction or "0")[:9].ljust(9, "0")), offset)


def print_duration(value: Duration) -> str:
    """Return the span in seconds, as ``string()`` does."""
    seconds = Decimal(value.ns) / SECOND
    return f"{format(seconds.normalize(), 'f')}s"


def print_timestamp(value: Timestamp) -> str:
    """Return the moment in RFC 3339, in the zone it was read in."""
    shifted = value.ns + value.offset_s * SECOND
    moment = Timestamp(shifted).moment()
    nanos = shifted % SECOND
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    zone = "Z"
    if value.offset_s:
        hours, rest = divmod(abs(value.offset_s), 3600)
        zone = f"{'-' if value.offset_s < 0 else '+'}{hours:02}:{rest // 60:02}"
    return f"{moment.year:04}{moment:-%m-%dT%H:%M:%S}{fraction}{zone}"


def _zone(name: str) -> tzinfo:
    if ":" in name:
        found = _OFFSET.fullmatch(name)
        if found is None:
            raise EvaluationError(f'invalid time zone "{name}"')
        minutes = int(found[2]) * 60 + int(found[3])
        return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, KeyError) as error:
        raise EvaluationError(f"unknown time zone {name}") from error


def _local(value: Timestamp, zone: str) -> datetime:
    moment = value.moment()
    if zone == "UTC":
        return moment
    try:
        return moment.astimezone(_zone(zone))
    except (OverflowError, ValueError) as error:
        raise EvaluationError("timestamp overflow") from error


_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda at: at.year,
    "month": lambda at: at.month - 1,
    "day_of_year": lambda at: at.timetuple().tm_yday - 1,
    "day_of_month": lambda at: at.day - 1,
    "day_of_month_1_based": lambda at: at.day,
    "day_of_week": lambda at: (at.weekday() + 1) % 7,
    "hours": lambda at: at.hour,
    "minutes": lambda at: at.minute,
    "seconds": lambda at: at.second,
    "milliseconds": lambda at: at.microsecond // 1000,
}


def _accessors() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name, part in _PARTS.items():
        found[f"timestamp_to_{name}"] = lambda at, part=part: part(_local(at, "UTC"))
        found[f"timestamp_to_{name}_with_tz"] = lambda at, zone, part=part: part(_local(at, zone))
    return found


def _in(unit: int) -> Callable[[Duration], int]:
    return lambda span: abs(span.ns) // unit * (1 if span.ns >= 0 else -1)


_WORDS = (
    (("ns", "nano"), 1), (("us", "\u00b5s", "micro"), 1_000), (("ms", "milli"), 1_000_000), (("s", "sec"), SECOND),
    (("m", "min"), 60 * SECOND), (("h", "hr", "hour"), 3600 * SECOND), (("d", "day"), 86400 * SECOND),
    (("w", "week", "wk"), 604800 * SECOND),
)  # fmt: skip
_WORDED = re.compile(r"([0-9]+)\s*([A-Za-z\u00b5]+)")


def schema_duration(text: str) -> Duration:
    """Return the span a field of format ``duration`` holds: Go's notation, or words (``2 days``; strfmt)."""
    try:
        return parse_duration(text)
    except EvaluationError:
        pass
    spans = [
        int(number) * span
        for number, unit in _WORDED.findall(text)
        for words, span in _WORDS
        for word in words
        if unit.lower() == word or (word == words[-1] and unit.lower().startswith(word))
    ]
    if not spans:
        raise EvaluationError(f"Invalid duration {text}: unable to parse {text} as duration")
    return duration(sum(spans))


def schema_date(text: str) -> Timestamp:
    """Return the moment a field of format ``date`` holds."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise EvaluationError(f"Invalid date formatted string {text}")
    return parse_timestamp(f"{text}T00:00:00Z")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add_duration_duration": lambda a, b: duration(a.ns + b.ns),
    "add_duration_timestamp": lambda a, b: timestamp(a.ns + b.ns, b.offset_s),
    "add_timestamp_duration": lambda a, b: timestamp(a.ns + b.ns, a.offset_s),
    "subtract_duration_duration": lambda a, b: duration(a.ns - b.ns),
    "subtract_timestamp_duration": lambda a, b: timestamp(a.ns - b.ns, a.offset_s),
    "subtract_timestamp_timestamp": lambda a, b: duration(a.ns - b.ns),
    "string_to_duration": parse_duration,
    "int64_to_duration": duration,
    "duration_to_int64": lambda span: span.ns,
    "duration_to_string": print_duration,
    "string_to_timestamp": parse_timestamp,
    "int64_to_timestamp": lambda seconds: timestamp(seconds * SECOND),
    "timestamp_to_int64": lambda at: at.ns // SECOND,
    "timestamp_to_string": print_timestamp,
    "duration_to_hours": _in(3600 * SECOND),
    "duration_to_minutes": _in(60 * SECOND),
    "duration_to_seconds": _in(SECOND),
    "duration_to_milliseconds": _in(1_000_000),
    **_accessors(),
}
