"""Attack: a node answers for a log so that the client keeps the connection, which leads to the node from then on.

The client's next request would come to the node with the client's token, and the node could answer it in the API
server's name. The answer's head says that the connection ends, whatever the node's said.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.answer_heads import AnswerHead
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission, Holder
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.metrics import Registry

JANE = Holder(Account("jane", USER), "192.0.2.1")
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def tunnels() -> Iterator[Tunnels]:
    made = Tunnels(SystemClock(), Admission(Limits(), Registry()))
    made.start()
    yield made
    made.stop()


@contextlib.contextmanager
def _answered(tunnels: Tunnels, told: bytes) -> Iterator[socket.socket]:
    """Yield a client's connection on which a node answers with ``told``, and goes on listening."""
    client, ours = socket.socketpair()
    node, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(0)
    client.settimeout(30)
    tunnels.join(ours, theirs, JANE, head=AnswerHead(switches=False))
    with client, node:
        with contextlib.suppress(OSError):  # what is no head is not read to its end
            for at in range(0, len(told), 7):
                node.sendall(told[at : at + 7])
        yield client


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 2\r\n",
        b"Connection: keep-alive\r\nContent-Length: 2\r\n",
        b"CONNECTION : keep-alive\r\nKeep-Alive: timeout=9\r\nconnection: upgrade\r\nContent-Length: 2\r\n",
    ],
)
def test_the_client_keeps_no_connection_to_a_node(tunnels: Tunnels, head: bytes) -> None:
    with _answered(tunnels, OK + head + b"\r\nhi") as client:
        answer = http.client.HTTPResponse(client)
        answer.begin()
        told = answer.read()
        answer.close()
        assert (told, answer.will_close, answer.headers.get_all("Connection")) == (b"hi", True, ["close"])


@pytest.mark.parametrize(
    "told",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\nConnection: keep-alive\n\n\r\n\r\n",
        OK + b"Connection: close,\r\n keep-alive\r\nContent-Length: 0\r\n\r\n",
        OK + b"X: a\rConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        OK + b"X: " + b"a" * 70_000,
    ],
)
def test_what_is_no_plain_head_ends_the_stream(tunnels: Tunnels, told: bytes) -> None:
    with _answered(tunnels, told) as client:
        assert client.recv(100) == b""


@pytest.mark.parametrize("status", [b"301 Moved Permanently", b"302 Found", b"303 See Other", b"307 X", b"308 X"])
def test_a_node_sends_no_client_elsewhere(tunnels: Tunnels, status: bytes) -> None:
    told = b"HTTP/1.1 " + status + b"\r\nLocation: https://evil.test/\r\nContent-Length: 4\r\n\r\nevil"
    with _answered(tunnels, told) as client:
        answer = http.client.HTTPResponse(client)
        answer.begin()
        body = answer.read()
        assert (answer.status, answer.headers["Location"]) == (502, None)
        assert b"redirect" in body
        assert b"evil" not in body


def test_a_node_sets_nothing_in_a_browser(tunnels: Tunnels) -> None:
    head = b"Set-Cookie: a=b\r\ncontent-type : text/html\r\nAccess-Control-Allow-Origin: *\r\nRefresh: 0;url=//evil\r\n"
    with _answered(tunnels, OK + head + b"Content-Length: 2\r\n\r\nhi") as client:
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.read() == b"hi"
        told = {name.lower(): value for name, value in answer.headers.items()}
    assert told == {
        "content-type": "text/plain",
        "content-length": "2",
        "x-content-type-options": "nosniff",
        "connection": "close",
    }


def test_what_a_pod_answers_a_proxy_is_its_own() -> None:
    told = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nSet-Cookie: a=b\r\n\r\n"
    head = AnswerHead(switches=False, of_node=False)
    assert head.take(told) == told[:-2] + b"Connection: close\r\n\r\n"


def test_a_stream_that_was_asked_for_goes_on() -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00"
    head = AnswerHead(switches=True)
    assert head.take(switched[:30]) + head.take(switched[30:]) + head.take(b"\r\n\r\n") == switched + b"\r\n\r\n"
