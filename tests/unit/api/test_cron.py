"""Schedules as Kubernetes reads them (robfig/cron v3): what is refused, and when the next time is."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from minik8s_modules.api.cron import BadSchedule, Schedule, parse, zone_of


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(schedule: Schedule, since: str, zone: str | None = None, count: int = 3) -> list[str]:
    def following() -> object:
        found = at(since)
        while (found := schedule.next_after(found, zone_of(zone))) is not None:  # type: ignore[assignment]
            yield found.strftime("%Y-%m-%dT%H:%M")

    return list(islice(following(), count))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "since", "following"),
    [
        ("* * * * *", "2026-01-01T12:00:30", "2026-01-01T12:01"),
        ("*/15 * * * *", "2026-01-01T12:15", "2026-01-01T12:30"),
        ("5/20 * * * *", "2026-01-01T12:00", "2026-01-01T12:05"),
        ("5/20 * * * *", "2026-01-01T12:45", "2026-01-01T13:05"),
        ("0 9-17/4 * * *", "2026-01-01T13:30", "2026-01-01T17:00"),
        ("0,30 8 * * *", "2026-01-01T08:00", "2026-01-01T08:30"),
        ("0 0 1 * *", "2026-01-31T10:00", "2026-02-01T00:00"),
        ("0 0 31 * *", "2026-02-01T00:00", "2026-03-31T00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 0 ? JAN-mar MON", "2026-01-01T00:00", "2026-01-05T00:00"),
        ("0 0 13 * FRI", "2026-02-01T00:00", "2026-02-06T00:00"),  # either will do
        ("0 0 */2 * FRI", "2026-02-01T00:00", "2026-02-03T00:00"),  # a step restricts, too
        ("0 0 13 * */1", "2026-02-01T00:00", "2026-02-13T00:00"),  # a step of 1 does not
        ("0 0 * * sun", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
        ("@hourly", "2026-01-01T12:00", "2026-01-01T13:00"),
        ("@daily", "2026-01-01T12:00", "2026-01-02T00:00"),
        ("@weekly", "2026-01-01T12:00", "2026-01-04T00:00"),
        ("@monthly", "2026-01-01T12:00", "2026-02-01T00:00"),
        ("@yearly", "2026-01-01T12:00", "2027-01-01T00:00"),
        ("@every 1h30m", "2026-01-01T12:10", "2026-01-01T13:40"),
    ],
)
def test_the_next_time(text: str, since: str, following: str):
    assert times(parse(text), since, count=1) == [following]


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *"])
def test_what_never_comes(text: str):
    assert parse(text).next_after(at("2026-01-01T00:00")) is None


def test_a_day_in_a_time_zone():
    assert times(parse("30 6 * * *"), "2026-01-01T00:00", "America/New_York") == [
        "2026-01-01T11:30", "2026-01-02T11:30", "2026-01-03T11:30",
    ]  # fmt: skip


def test_a_time_that_daylight_saving_skips_does_not_come_that_day():
    # 29 March 2026: from 02:00 straight to 03:00 in Berlin
    assert times(parse("30 2 * * *"), "2026-03-28T00:00", "Europe/Berlin") == [
        "2026-03-28T01:30", "2026-03-30T00:30", "2026-03-31T00:30",
    ]  # fmt: skip


def test_a_time_that_daylight_saving_repeats_comes_twice():
    # 25 October 2026: from 03:00 back to 02:00 in Berlin
    assert times(parse("30 2 * * *"), "2026-10-24T12:00", "Europe/Berlin") == [
        "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-26T01:30",
    ]  # fmt: skip


def test_midnight_where_daylight_saving_begins_at_midnight():
    # Beirut, 29 March 2026: no 00:00 that day
    assert times(parse("0 5 29 3 *"), "2026-03-01T00:00", "Asia/Beirut", 1) == ["2026-03-29T02:00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("* * * * * *", "expected exactly 5 fields, found 6"),
        ("60 * * * *", r"end of range \(60\) above maximum \(59\): 60"),
        ("* 24 * * *", "above maximum"),
        ("* * 0 * *", r"beginning of range \(0\) below minimum \(1\): 0"),
        ("* * * * 7", r"end of range \(7\) above maximum \(6\): 7"),
        ("5-1 * * * *", r"beginning of range \(5\) beyond end of range \(1\): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("a * * * *", "failed to parse int from a"),
        ("1-2-3 * * * *", "failed to parse minute"),
        ("1/2/3 * * * *", "failed to parse minute"),
        ("-1 * * * *", "failed to parse int from"),
        ("99999999999999999999 * * * *", "failed to parse int"),
        ("*,, * * * *", "failed to parse int from"),
        ("@never", "unrecognized descriptor: @never"),
        ("@every 9999999999h", "more than 30 years"),
        ("@every x", "failed to parse duration @every x"),
        ("", "expected exactly 5 fields, found 0"),
    ],
)
def test_what_is_refused(text: str, message: str):
    with pytest.raises(BadSchedule, match=message):
        parse(text)


@pytest.mark.parametrize("name", ["Mars/Phobos", "Local", "", "../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_a_zone_that_is_none(name: str):
    with pytest.raises(BadSchedule, match="unknown time zone"):
        zone_of(name)
