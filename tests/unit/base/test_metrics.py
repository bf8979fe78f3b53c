"""What a registry adds to prometheus_client: gauges that are read when asked, and no series that nobody wants."""

from __future__ import annotations

import math

from minik8s_modules.base.metrics import Registry, joined

ODD = ("+Inf", "-Inf", "NaN")


def test_gauges_are_read_when_asked():
    values: dict[tuple[str, ...], float] = {("a",): 1.0}
    registry = Registry()
    registry.gauge("open", "Open.", ("what",), lambda: values)
    values["b",] = 2.0
    assert registry.text() == ('# HELP open Open.\n# TYPE open gauge\nopen{what="a"} 1.0\nopen{what="b"} 2.0\n')


def test_a_count_is_one_series():
    registry = Registry()
    registry.counter("requests_total", "Requests.", ("verb",)).labels("get").inc()
    assert registry.text() == (
        '# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total{verb="get"} 1.0\n'
    )


def test_the_buckets_are_those_of_latencies():
    registry = Registry()
    registry.histogram("seconds", "Time.").observe(0.3)
    lines = registry.text().splitlines()
    assert {'seconds_bucket{le="0.001"} 0.0', 'seconds_bucket{le="30.0"} 1.0'} <= set(lines)


def test_a_process_tells_of_itself_where_it_is_asked_to():
    assert "process_resident_memory_bytes" in Registry().of_process().text()
    assert "process_" not in Registry().text()


def test_the_figures_of_processes_keep_apart_in_one_text():
    registries = {"0": Registry(), "1": Registry()}
    for number, registry in registries.items():
        registry.counter("requests_total", "Requests.", ("verb",)).labels("get").inc(int(number) + 1)
    registries["1"].gauge("open", "Open.", (), lambda: {(): 3.0})
    told = {number: registry.families() for number, registry in registries.items()}
    assert joined({**told, "2": b"cut off in the mid"}, "worker") == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{verb="get",worker="0"} 1.0\nrequests_total{verb="get",worker="1"} 2.0\n'
        '# HELP open Open.\n# TYPE open gauge\nopen{worker="1"} 3.0\n'
    )


def test_a_value_without_a_number_spoils_no_others():
    registry = Registry()
    registry.gauge("odd", "Odd.", ("what",), lambda: {("a",): math.inf, ("b",): -math.inf, ("c",): math.nan})
    lines = joined({"0": registry.families()}, "worker").splitlines()
    assert lines[2:] == [f'odd{{what="{what}",worker="0"}} {value}' for what, value in zip("abc", ODD, strict=True)]
