"""The text Prometheus reads."""

from __future__ import annotations

from minik8s_modules.base.metrics import Registry


def test_counters_count_by_label():
    registry = Registry()
    total = registry.counter("requests_total", "Requests.", ("verb", "code"))
    total.inc("get", "200")
    total.inc("get", "200")
    total.inc("list", "200", by=3)
    assert registry.text() == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{verb="get",code="200"} 2\nrequests_total{verb="list",code="200"} 3\n'
    )


def test_histograms_are_cumulative_and_a_bound_belongs_to_its_bucket():
    registry = Registry()
    seconds = registry.histogram("seconds", "Time.")
    for value in (0.001, 0.3, 99.0):
        seconds.observe(value)
    lines = registry.text().splitlines()
    assert 'seconds_bucket{le="0.001"} 1' in lines
    assert 'seconds_bucket{le="0.25"} 1' in lines
    assert 'seconds_bucket{le="0.5"} 2' in lines
    assert 'seconds_bucket{le="+Inf"} 3' in lines
    assert "seconds_count 3" in lines


def test_gauges_are_read_when_rendered():
    values: dict[tuple[str, ...], float] = {("a",): 1.0}
    registry = Registry()
    registry.gauge("open", "Open.", ("what",), lambda: values)
    values["b",] = 2.0
    assert 'open{what="b"} 2' in registry.text()


def test_label_values_are_escaped():
    registry = Registry()
    registry.counter("c", "C.", ("x",)).inc('a"b\\c\nd')
    assert 'c{x="a\\"b\\\\c\\nd"} 1' in registry.text()
