"""A pytest plugin: at the end of a run by several processes, where their time went.

Tells which groups of tests (``group_of`` of tests/conftest.py) took longest, on which process and from when to when,
when each process had nothing left to do, and how busy the machine's processors were. Groups that share a cluster run
one after the other, so the last ones to end say what a shorter run needs: an earlier begin, or less to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

SHOWN = 30
STAT = Path("/proc/stat")
# user, nice, system, irq, softirq among the numbers of the line "cpu" (proc(5))
BUSY = (0, 1, 2, 5, 6)


@dataclass
class Times:
    """When tests of one kind ran, in seconds since the run began."""

    begun: float = float("inf")
    ended: float = 0.0
    seconds: float = 0.0
    processes: set[str] = field(default_factory=set)

    def add(self, process: str, begun: float, ended: float) -> None:
        """Count a set-up, a test or a tear-down."""
        self.begun, self.ended = min(self.begun, begun), max(self.ended, ended)
        self.seconds += ended - begun
        self.processes.add(process)


def ticks(stat: str) -> tuple[int, int]:
    """Return from the text of /proc/stat for how long processors have worked, and for how long there were any."""
    numbers = [int(word) for word in stat.partition("\n")[0].split()[1:9]]  # what guests took is in user already
    return sum(numbers[place] for place in BUSY), sum(numbers)


class GroupTimes:
    """Collects the reports of all processes, in the one that hands out tests."""

    def __init__(self, group_of: Callable[[str], str]) -> None:
        self._group_of = group_of
        self._began, self._ticks = time.time(), ticks(STAT.read_text(encoding="ascii"))
        self._groups: dict[str, Times] = {}
        self._processes: dict[str, Times] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report; those of this process itself have no process's name."""
        process = getattr(report, "worker_id", "")
        if process:
            span = report.start - self._began, report.stop - self._began
            self._groups.setdefault(self._group_of(report.nodeid), Times()).add(process, *span)
            self._processes.setdefault(process, Times()).add(process, *span)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Write the table."""
        if self._processes:
            terminalreporter.section(f"the {SHOWN} groups that took longest")
            for line in self.lines():
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table."""
        longest = sorted(self._groups.items(), key=lambda each: -each[1].seconds)
        for group, times in longest[:SHOWN]:
            where = ", ".join(sorted(times.processes))
            yield f"{times.seconds:6.0f} s  {where:4} {times.begun:5.0f} to {times.ended:5.0f}  {group}"
        rest = sum(times.seconds for _, times in longest[SHOWN:])
        yield f"{rest:6.0f} s  {len(longest[SHOWN:])} others"
        for process, times in sorted(self._processes.items()):
            waits = times.ended - times.begun - times.seconds
            yield f"{process}: busy from {times.begun:.0f} to {times.ended:.0f} s, but for {waits:.0f} s between tests"
        busy, all_ = (
            now - then for now, then in zip(ticks(STAT.read_text(encoding="ascii")), self._ticks, strict=True)
        )
        yield f"the processors were busy for {100 * busy / max(1, all_):.0f} % of the time"
