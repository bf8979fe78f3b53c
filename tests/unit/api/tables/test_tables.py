"""Rows as kubectl prints them, by cases; and ages."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.api.kinds import EVENTS_EVENT, KINDS
from minik8s_modules.api.tables.printers import human_duration, since, table_columns, table_row
from tests.unit.api import samples


@samples.cases("table_row")
def test_table_row(path: Path):
    case = samples.read(path)
    kind = KINDS.by_name(case["kind"])
    assert kind is not None
    columns = [column.name for column in table_columns(kind)]
    row = dict(zip(columns, table_row(kind, case["object"], samples.NOW), strict=True))
    assert {name: row[name] for name in case["cells"]} == case["cells"]


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")
def test_every_kind_has_a_row_even_for_an_empty_object(kind):
    columns, row = table_columns(kind), table_row(kind, {"metadata": {"name": "x"}}, samples.NOW)
    assert len(columns) == len(row)
    assert "x" in row
    assert [column.format for column in columns if column.name == "Name"] == ["name"]


def test_an_event_of_the_new_group_has_the_same_row():
    event = {
        "metadata": {"name": "x"},
        "regarding": {"kind": "Pod", "name": "web"},
        "note": "hello",
        "eventTime": "2026-01-01T11:59:00.000000Z",
    }
    row = table_row(EVENTS_EVENT, event, samples.NOW)
    assert ("pod/web" in row, "hello" in row, row[0]) == (True, True, "60s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"), (10800, "3h"), (14700, "4h5m"), (28800, "8h"), (172799, "47h"), (172800, "2d"),
        (183600, "2d3h"), (691200, "8d"), (63072000, "2y"), (63158400, "2y1d"), (252288000, "8y"), (300000000, "9y"),
    ],
)  # fmt: skip
def test_human_duration(seconds, text):
    assert human_duration(seconds) == text


def test_a_missing_time_is_unknown():
    assert since(None, samples.NOW) == "<unknown>"
