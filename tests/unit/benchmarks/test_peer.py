"""What the client beside the peer says is read, and a run with failures is none."""

from __future__ import annotations

import pytest

from tests.benchmarks.peer import MEDIANS, Cost, cost, median

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


def test_medians_of_lists_and_fan_out_are_read():
    text = "list: items=5000 MB=6.41 med=26 min=18 max=40 ms load=25.4"
    assert median(text, MEDIANS["list"][0]) == 26
    text = "fanout watchers=100 updates=200: write->last p50=14.2 p99=172.3; write->first p50=8.8; write p50=8.3 ms"
    assert median(text, MEDIANS["fanout"][0]) == 14.2
    with pytest.raises(ValueError, match="the client says"):
        median("Traceback", MEDIANS["fanout"][0])
