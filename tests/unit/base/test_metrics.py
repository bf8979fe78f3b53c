"""What a registry adds to prometheus_client: gauges that are read when asked, and no series that nobody wants."""

from __future__ import annotations

from minik8s_modules.base.metrics import Registry


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
