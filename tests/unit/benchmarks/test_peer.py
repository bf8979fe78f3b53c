"""What the client beside the peer says is read, and a run with failures is none."""

from __future__ import annotations

import pytest

from tests.benchmarks.peer import Cost, cost

LINE = (
    "create   thr=16 procs=2 n=1500: 500 req/s p50=25.69 p99=94.18 max=124.8 ms bad={bad}"
    " client_cpu=1.10s/2.93s srv_cpu=1.80s load=13.2\n"
)


def test_time_and_cpu_of_a_request_are_read():
    assert cost(LINE.format(bad=0)) == Cost(0.002, 1.8 / 1_500)


@pytest.mark.parametrize("line", [LINE.format(bad=3), "Traceback", ""])
def test_a_run_with_failures_is_none(line):
    with pytest.raises(ValueError, match="the client says"):
        cost(line)
