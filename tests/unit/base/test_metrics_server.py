"""A daemon's metrics over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    registry = Registry()
    registry.counter("things_total", "Things.").inc()
    server = MetricsServer(registry, "127.0.0.1:0")
    server.start()
    yield server
    server.stop()


def get(server: MetricsServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=20) as answer:
        return str(answer.read().decode())


def test_metrics_and_health_are_answered_and_nothing_else(server: MetricsServer):
    assert "things_total 1\n" in get(server, "/metrics")
    assert get(server, "/healthz") == "ok"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(server, "/other")
    refused.value.close()
    assert refused.value.code == 404


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:80"])
def test_an_address_that_cannot_be_used_is_told(address: str):
    with pytest.raises(ConfigurationError, match="metrics:"):
        MetricsServer(Registry(), address)
