"""What a run by several processes tells of its time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.repository.group_times import GroupTimes, ticks


def report(made: GroupTimes, nodeid: str, begun: float, ended: float, **more: Any) -> Any:
    return SimpleNamespace(nodeid=nodeid, start=made._began + begun, stop=made._began + ended, **more)


def test_seconds_are_told_by_group_and_process_the_longest_first():
    made = GroupTimes(lambda nodeid: nodeid.partition("::")[0])
    made.pytest_runtest_logreport(report(made, "short::a", 0, 10, worker_id="gw0"))
    made.pytest_runtest_logreport(report(made, "long::a", 0, 20, worker_id="gw1"))
    made.pytest_runtest_logreport(report(made, "long::b", 20, 50, worker_id="gw1"))
    made.pytest_runtest_logreport(report(made, "short::b", 55, 60, worker_id="gw1"))
    made.pytest_runtest_logreport(report(made, "long::b", 0, 900))  # of a process that runs nothing

    lines = [" ".join(line.split()) for line in made.lines()]

    assert lines[:5] == [
        "50 s gw1 0 to 50 long",
        "15 s gw0, gw1 0 to 60 short",
        "0 s 0 others",
        "gw0: busy from 0 to 10 s, but for 0 s between tests",
        "gw1: busy from 0 to 60 s, but for 5 s between tests",
    ]


def test_a_guests_time_is_not_counted_twice():
    #             user nice system idle iowait irq softirq steal guest guest_nice
    assert ticks("cpu  10 1 20 100 5 2 3 4 7 1\ncpu0 ...\n") == (36, 145)
