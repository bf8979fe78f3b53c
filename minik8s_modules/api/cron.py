"""Cron schedules as Kubernetes reads them: five fields, names, ranges, steps, ``@daily``, ``@every 5m``. Pure.

Source: github.com/robfig/cron v3 (``parser.go``, ``spec.go``), which kube-controller-manager and its validation use. In
short: ``?`` is ``*``; ``5/10`` is ``5-59/10``; the days of the week are 0 to 6; where both the day of the month and the
day of the week are restricted, either will do. Times are local times of a zone: one that daylight saving time skips
does not come that day, one that it repeats comes twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

_MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)", re.ASCII)
_LONGEST_NUMBER = 10  # digits; Python refuses to read numbers of more than 4,300
_YEARS = 5  # robfig's: what does not come within them never comes
_DECEMBER = 12
_LONGEST_S = 1e9  # what is added to a time must stay one


class _Field(NamedTuple):
    what: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59), _Field("hour", 0, 23), _Field("day of month", 1, 31), _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)  # fmt: skip


class BadSchedule(ValueError):
    """A schedule, or a time zone, that cannot be read; says why."""


@dataclass(frozen=True)
class Schedule:
    """When something comes: sets of numbers, or every so often.

    Attributes:
        any_day: whether the day of the month or of the week is not restricted, so that both must fit.
        every: the pause of ``@every``; then the sets mean nothing.
    """

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    every: timedelta | None = None

    def next_after(self, moment: datetime, zone: tzinfo = UTC) -> datetime | None:
        """Return the first time after ``moment``, in UTC; None when none comes within five years."""
        if self.every is not None:
            return moment.replace(microsecond=0) + self.every
        at = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last_year = at.astimezone(zone).year + _YEARS
        while (local := at.astimezone(zone)).year <= last_year:
            if local.month not in self.months:
                at = _next_month(local)
            elif not self._fits_day(local):
                at = _midnight(local + timedelta(days=1))
            elif local.hour not in self.hours:
                at += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at
        return None

    def _fits_day(self, local: datetime) -> bool:
        fits = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return all(fits) if self.any_day else any(fits)


def _next_month(local: datetime) -> datetime:
    year, month = (local.year + 1, 1) if local.month == _DECEMBER else (local.year, local.month + 1)
    return local.replace(year=year, month=month, day=1, hour=0, minute=0, fold=0).astimezone(UTC)


def _midnight(local: datetime) -> datetime:
    return local.replace(hour=0, minute=0, fold=0).astimezone(UTC)


def zone_of(name: str | None) -> tzinfo:
    """Return the time zone of the IANA database; UTC without a name, as the controllers' own.

    Raises:
        BadSchedule: there is no such zone.
    """
    if name is None:
        return UTC
    if name.casefold() in {"", "local"}:
        raise BadSchedule(f"unknown time zone {name}")
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError; folders are OSErrors
        raise BadSchedule(f"unknown time zone {name}") from error


def parse(text: str) -> Schedule:
    """Return the schedule that ``text`` says.

    Raises:
        BadSchedule: it says none.
    """
    if text.startswith("@every "):
        return Schedule(every=_duration(text.removeprefix("@every "), text))
    if text.startswith("@") and text not in _MACROS:
        raise BadSchedule(f"unrecognized descriptor: {text}")
    words = _MACROS.get(text, text).split()
    if len(words) != len(_FIELDS):
        raise BadSchedule(f"expected exactly 5 fields, found {len(words)}: [{' '.join(words)}]")
    sets = [_field(word, field) for word, field in zip(words, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (values for values, _ in sets)
    return Schedule(minutes, hours, days, months, weekdays, any_day=sets[2][1] or sets[4][1])


def _duration(text: str, whole: str) -> timedelta:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text or len(text) > 2 * _LONGEST_NUMBER:
        raise BadSchedule(f"failed to parse duration {whole}")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise BadSchedule(f"failed to parse duration {whole}: more than 30 years")
    return timedelta(seconds=max(1, int(seconds)))


def _field(text: str, field: _Field) -> tuple[frozenset[int], bool]:
    """Return the numbers of a field, and whether it restricts nothing (robfig's star bit)."""
    parts = [_range(each, field) for each in text.split(",")]
    return frozenset().union(*(values for values, _ in parts)), any(star for _, star in parts)


def _range(text: str, field: _Field) -> tuple[range, bool]:
    bounds, slash, step_text = text.partition("/")
    first, hyphen, last = bounds.partition("-")
    if "/" in step_text or "-" in last:
        raise BadSchedule(f"failed to parse {field.what}: {text}")
    step = _number(step_text) if slash else 1
    star = first in {"*", "?"}
    if star:
        start, end = field.low, field.high
    else:
        start = _number(first, field)
        end = _number(last, field) if hyphen else (field.high if slash else start)
    _check(text, field, (start, end, step))
    return range(start, end + 1, step), star and step == 1


def _check(text: str, field: _Field, values: tuple[int, int, int]) -> None:
    start, end, step = values
    if start < field.low:
        raise BadSchedule(f"beginning of range ({start}) below minimum ({field.low}): {text}")
    if end > field.high:
        raise BadSchedule(f"end of range ({end}) above maximum ({field.high}): {text}")
    if start > end:
        raise BadSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise BadSchedule(f"step of range should be a positive number: {text}")


def _number(text: str, field: _Field | None = None) -> int:
    if field is not None and text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    if not (text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER):
        raise BadSchedule(f"failed to parse int from {text}")
    return int(text)
