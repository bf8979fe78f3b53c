"""Attack: a node that serves a kubelet's API answers so slowly, or so much, that API servers have no threads left.

Every ``kubectl top``, every look of an autoscaler asks all such nodes. One that sends a byte now and then never lets a
time limit between two bytes pass.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.apiserver.nodes import kubelets, metrics_api
from minik8s_modules.apiserver.nodes.kubelets import Kubelet
from minik8s_modules.store.cache import WatchCache

FAR = Kubelet("far", "192.0.2.7", 10250)
LIMIT_S = 1.0
GIVEN_UP_S = 120.0


class _Node:
    """A node that answers with what ``speak`` sends, for as long as it is listened to."""

    def __init__(self, speak: Callable[[socket.socket], None]) -> None:
        self._speak = speak
        self._ended = threading.Event()

    def of(self, _cache: WatchCache, _node: str) -> Kubelet | None:
        return FAR

    def connect(self, _kubelet: Kubelet, _request: bytes) -> socket.socket:
        ours, its = socket.socketpair()
        threading.Thread(target=self._answer, args=(its,), daemon=True).start()
        return ours

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                until = time.monotonic() + GIVEN_UP_S
                while time.monotonic() < until and not self._ended.is_set():
                    self._speak(connection)
            except OSError:
                return

    def close(self) -> None:
        self._ended.set()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelets, "ANSWER_S", LIMIT_S)
    monkeypatch.setattr(metrics_api, "TIMEOUT_S", LIMIT_S)


def _slowly(text: bytes) -> Callable[[socket.socket], None]:
    def speak(connection: socket.socket) -> None:
        connection.sendall(text)
        time.sleep(LIMIT_S / 10)

    return speak


@pytest.mark.parametrize("text", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["bytes", "continue"])
def test_an_answer_without_end_is_given_up(text: bytes) -> None:
    node = _Node(_slowly(text))
    begun_s = time.monotonic()
    try:
        with pytest.raises(ServiceUnavailable, match="did not answer /stats/summary"):
            kubelets.get(node, FAR, "/stats/summary")
    finally:
        node.close()
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2


def _once(answer: bytes) -> Callable[[socket.socket], None]:
    def speak(connection: socket.socket) -> None:
        connection.sendall(answer)
        raise ConnectionResetError

    return speak


@pytest.mark.parametrize(
    ("media", "passed_on"),
    [
        (b"text/html", "text/plain"),
        (b"text/plain\r\n X-Evil: 1", "text/plain"),
        (b"application/json", "application/json"),
        (b"text/plain; version=0.0.4; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_no_page_of_a_node_is_shown_as_the_api_servers(media: bytes, passed_on: str) -> None:
    node = _Node(_once(b"HTTP/1.1 200 OK\r\nContent-Type: " + media + b"\r\nContent-Length: 2\r\n\r\nhi"))
    assert kubelets.get(node, FAR, "/pods") == (passed_on, b"hi")


class _Gateway(_Node):
    """The gateway of a node with a reconciler of its own."""

    def connect(self, _url: str, _request: bytes) -> socket.socket:  # type: ignore[override]
        return super().connect(FAR, b"")


def test_a_gateway_that_dribbles_is_given_up() -> None:
    gateway, begun_s = _Gateway(_slowly(b"#")), time.monotonic()
    with pytest.raises(OSError, match=r"was not complete|timed out"):
        metrics_api._asked(gateway, "https://192.0.2.7:1")
    gateway.close()
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2
