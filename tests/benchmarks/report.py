"""BENCHMARKS.md: written from one run's rows, and read again to say what has become slower since.

Times and shares of a core are compared in units of the machine's factor, rates by its inverse; what is neither (memory,
bytes, ratios, counts) as it is. Rows that only one of two runs has are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.benchmarks.figures import Figure
from tests.benchmarks.machine import Run

HEAD = """\
# Benchmarks

Written by one run of `make bench`; a bar is the limit this project holds itself to. "Over the floor" compares a pod
with the same pod made by raw calls on the same Docker, in turn, so that both meet the same load. CPU is the processes'
own account. The column *factor* is the CPU time of a fixed Python workload on this machine, taken just before. Rows
that name a commit were measured then; all others are of this one:

{run}
{missing}
## Bars

| bar | limit | value | met or missed | load | factor | measured | how |
|---|---|---|---|---|---|---|---|
{bars}

## Other figures

| figure | value | load | factor | measured | how |
|---|---|---|---|---|---|
{others}

## Not measured

{never}
"""
NEVER = """\
A hundred machines over SSH with Pods. "100 names of one local interpreter" are one machine under 100 names, and "100
network namespaces" have a bridge and rules of their own, but neither SSH nor Pods."""
TIMES, RATES = {"s", "ms", "us", "% of a core"}, {"1/s", "Gbit/s", "MB/s"}
SLOWER = 1.25
"""A figure that differs by less between two runs has not changed: repeated on a calm machine, most are within 15 %."""
_CELL = re.compile(r"^(-?[\d.]+)(?: (.+))?$")


class Row(NamedTuple):
    """A figure, the load average while it was measured, when that was, and the machine's factor then (0: unknown)."""

    figure: Figure
    load: float
    when: str
    python_s: float = 0.0
    commit: str = ""
    """Of a former run; "": of the one that the document opens with."""

    def of(self, former: str) -> Row:
        """Return the row for the document of a later run."""
        return self if self.commit else self._replace(commit=former)


class Measured(NamedTuple):
    """What BENCHMARKS.md says of a figure."""

    value: float
    unit: str
    python_s: float


class Change(NamedTuple):
    """A figure of two runs; ``ratio`` is above 1 where the later one is slower, by the machine's factor."""

    name: str
    before: Measured
    after: Measured
    ratio: float

    def line(self) -> str:
        """Return one line for a terminal."""
        before, after = (f"{value_of(each.value)} {each.unit}".rstrip() for each in (self.before, self.after))
        return f"  {self.name:<64} {before:>16} → {after:<16} {self.ratio:5.2f} x"


def document(found: Iterable[Row], run: Run, missing: Sequence[str] = ()) -> str:
    """Return BENCHMARKS.md; ``missing`` says of each group that could not be measured why."""
    known = list(found)
    bars = [_bar_line(row) for row in known if row.figure.bar is not None]
    others = [_other_line(row) for row in known if row.figure.bar is None]
    failed = "".join(f"\nNot measured in this run: {line}\n" for line in missing)
    return HEAD.format(run=run.opening(), missing=failed, bars="\n".join(bars), others="\n".join(others), never=NEVER)


def read(text: str) -> dict[str, Measured]:
    """Return what a BENCHMARKS.md says, by the figure's name; files from before factors were taken have 0 for them."""
    found: dict[str, Measured] = {}
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] in (["bar"], ["figure"]):
            columns = cells
        elif cells and len(cells) == len(columns) and (value := _CELL.match(cells[columns.index("value")])):
            fields = dict(zip(columns, cells, strict=True))
            factor = fields.get("factor", "").removesuffix(" s")
            found[cells[0]] = Measured(float(value[1]), value[2] or "", float(factor or 0))
    return found


def measured(rows: Iterable[Row]) -> dict[str, Measured]:
    """Return rows as a file would say them."""
    return {row.figure.name: Measured(row.figure.value, row.figure.unit, row.python_s) for row in rows}


def compare(before: Mapping[str, Measured], after: Mapping[str, Measured]) -> list[Change]:
    """Return what two runs have both measured, the slower first."""
    both = [name for name in after if name in before and before[name].unit == after[name].unit]
    changes = [Change(name, before[name], after[name], _ratio(before[name], after[name])) for name in both]
    return sorted(changes, key=lambda change: -change.ratio)


def _ratio(before: Measured, after: Measured) -> float:
    """Return how much slower, or larger, the later one is; 1 where nothing can be said."""
    if before.value <= 0 or after.value <= 0:
        return 1.0
    machine = after.python_s / before.python_s if before.python_s and after.python_s else 1.0
    if after.unit in RATES:
        return before.value / after.value / machine
    return after.value / before.value / (machine if after.unit in TIMES else 1.0)


def comparison(changes: Sequence[Change]) -> str:
    """Return for a terminal what is slower and what is faster, by the machine's factor."""
    slower = [change.line() for change in changes if change.ratio > SLOWER]
    faster = [change.line() for change in reversed(changes) if change.ratio < 1 / SLOWER]
    known = all(change.before.python_s for change in changes)
    note = "" if known else " (the committed run has no machine factor: values are compared as they are)"
    lines = [f"compared with the committed BENCHMARKS.md: {len(changes)} figures{note}"]
    lines += [f"slower or larger by more than {SLOWER:g} x:", *(slower or ["  none"])]
    return "\n".join([*lines, f"faster or smaller by more than {SLOWER:g} x:", *(faster or ["  none"])])


def value_of(value: float) -> str:
    """Return a value with as many digits as a reader needs."""
    return f"{value:.{2 if abs(value) < 10 else 0}f}"


def _bar_line(row: Row) -> str:
    figure = row.figure
    limit = f"≤ {figure.bar:g} {figure.unit}".rstrip()
    verdict = figure.verdict if figure.verdict == "met" else f"**{figure.verdict}**"
    return f"| {figure.name} | {limit} | {_value(figure)} | {verdict} | {_circumstances(row)} | {figure.note} |"


def _other_line(row: Row) -> str:
    return f"| {row.figure.name} | {_value(row.figure)} | {_circumstances(row)} | {row.figure.note} |"


def _circumstances(row: Row) -> str:
    when = f"{row.when}, {row.commit}" if row.commit else row.when
    return f"{row.load:.1f} | {row.python_s:.3f} s | {when}"


def _value(figure: Figure) -> str:
    return f"{value_of(figure.value)} {figure.unit}".rstrip()
