"""A daemon's metrics over HTTPS."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from minik8s_modules.base import https
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer
from minik8s_modules.base.tls import server_context
from tests.support.pki import Authority
from tests.support.waiting import until

ANSWERS = {"": HTTPStatus.UNAUTHORIZED, "good": HTTPStatus.OK, "poor": HTTPStatus.FORBIDDEN}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "cluster")


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("controllers", "minik8s-controllers"))


@pytest.fixture
def server(context: ssl.SSLContext) -> Iterator[MetricsServer]:
    registry = Registry()
    registry.counter("things_total", "Things.").inc()
    server = MetricsServer(registry, "127.0.0.1:0", context, lambda token: ANSWERS[token])
    server.start()
    yield server
    server.stop()


def get(server: MetricsServer, authority: Authority, path: str, authorization: str = "") -> tuple[int, str]:
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the test's certificates lack what Python 3.13 asks for
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=trusting)
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_for_a_token_that_opens_them(server: MetricsServer, authority: Authority):
    status, text = get(server, authority, "/metrics?x", "Bearer good")
    assert (status, "things_total 1.0\n" in text) == (200, True)
    assert get(server, authority, "/metrics", "Bearer poor")[0] == 403
    for nobody in ("", "good", "Basic good", "Bearer"):
        status, text = get(server, authority, "/metrics", nobody)
        assert (status, "things_total" in text) == (401, False)


def test_health_is_for_everybody_and_there_is_nothing_else(server: MetricsServer, authority: Authority):
    assert get(server, authority, "/healthz") == (200, "ok")
    assert get(server, authority, "/other", "Bearer good")[0] == 404


def test_no_part_of_an_answer_waits_for_the_part_before(
    server: MetricsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
):
    send, found = https.HttpsHandler.send, list[int]()

    def noted(self: https.HttpsHandler, status: int, kind: str, body: bytes) -> None:
        found.append(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        send(self, status, kind, body)

    monkeypatch.setattr(https.HttpsHandler, "send", noted)
    assert get(server, authority, "/healthz") == (200, "ok")
    assert found == [1]


def test_a_server_looks_around_only_when_there_is_something(
    authority: Authority, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
):
    turns: list[https.HttpsServer] = []

    def ended(self: https.HttpsServer) -> None:
        turns.append(self)

    monkeypatch.setattr(https.HttpsServer, "service_actions", ended)
    server = MetricsServer(Registry(), "127.0.0.1:0", context, lambda _token: HTTPStatus.OK)
    server.start()
    for _ in range(2):
        assert get(server, authority, "/healthz") == (200, "ok")
    until(lambda: len(turns) == 2)
    time.sleep(1.2)
    assert len(turns) == 2
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()


def test_silent_peers_take_no_more_than_their_share(
    server: MetricsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch, context: ssl.SSLContext
):
    monkeypatch.setattr(https, "MOST", 3)
    small = MetricsServer(Registry(), "127.0.0.1:0", context, lambda _token: HTTPStatus.OK)
    small.start()
    silent = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(3)]
    try:
        with socket.create_connection(("127.0.0.1", small.port), timeout=20) as fourth:
            assert fourth.recv(1) == b""  # cut off, no thread waits for it
        silent.pop().close()
        until(lambda: _answers(small, authority))
    finally:
        for one in silent:
            one.close()
        small.stop()


def _answers(server: MetricsServer, authority: Authority) -> bool:
    try:
        return get(server, authority, "/healthz")[0] == 200
    except OSError:
        return False


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:80"])
def test_an_address_that_cannot_be_used_is_told(address: str, context: ssl.SSLContext):
    with pytest.raises(ConfigurationError, match=r"metrics\.listen:"):
        MetricsServer(Registry(), address, context, lambda _token: HTTPStatus.OK)
