"""Handing a request over: who is charged for its body, how long, and who learns what became of it."""

from __future__ import annotations

import io
import socket
from typing import Any

import pytest
from flask import Request

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.apiserver.aggregation import forwarding
from minik8s_modules.apiserver.aggregation.exchanges import Exchange
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation, Carried
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.intake.limits import USER, Account, Holder

REMOTE = Remote("g.example.com", "v1", (1, 1), "a", "api", 443, "", blind=False, available=True, uid="u")
HOLDER = Holder(Account("jane", USER), "192.0.2.1")


class Room:
    """What stands for extensions and tunnels: takes everything, and notes it."""

    def __init__(self) -> None:
        self.carried: list[Exchange] = []
        self.charges: list[int] = []

    def admit(self, *_: Any) -> None:
        """Take it."""

    def join(self, _client: Any, ours: socket.socket, *_: Any) -> None:
        """Take the tunnel's end."""
        ours.close()

    def charge(self, _holder: Holder, amount: int) -> None:
        """Note what is charged."""
        self.charges.append(amount)

    def carry(self, exchange: Exchange, client: socket.socket) -> None:
        """Note what is carried."""
        self.carried.append(exchange)
        client.close()


@pytest.fixture
def room() -> Room:
    return Room()


def answer(room: Room, method: str, body: bytes) -> tuple[Carried, Request]:
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": "/apis/g.example.com/v1/flunders", "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": io.BytesIO(body), "wsgi.url_scheme": "https", "CONTENT_LENGTH": str(len(body)),
        "HTTP_HOST": "x", "wsgi.input_terminated": True,
    }  # fmt: skip
    request = Request(environ, populate_request=False)
    found = Aggregation(None, None, room, room).answer(  # type: ignore[arg-type]
        REMOTE, request, User("jane", ()), HOLDER, "1", endless=False
    )
    assert isinstance(found, Carried)
    return found, request


def test_a_body_is_charged_from_its_handing_over_until_it_is_sent(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "take_socket", lambda _: (None, b""))
    response, request = answer(room, "POST", b"12345")
    assert room.charges == []
    with pytest.raises(StopIteration):
        response(request.environ, lambda *_: None)
    (exchange,) = room.carried
    assert (room.charges, request.environ["wsgi.input"].read()) == ([5], b"")
    assert exchange.body.take() == b"12345"
    exchange.body.drop()
    assert room.charges == [5, -5]
    codes: list[int] = []
    response.on_end = codes.append
    exchange.outcome.begun(201)
    exchange.outcome.tell()
    assert codes == [201]


def test_what_could_not_be_handed_over_is_told_too(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Any) -> None:
        raise OSError("the client is gone")

    monkeypatch.setattr(forwarding, "take_socket", gone)
    response, request = answer(room, "POST", b"12345")
    codes: list[int] = []
    response.on_end = codes.append
    with pytest.raises(OSError, match="gone"):
        response(request.environ, lambda *_: None)
    assert (codes, room.charges) == ([0], [])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_has_no_body(room: Room, method: str) -> None:
    with pytest.raises(BadRequest, match=f"get no body with {method}"):
        answer(room, method, b"{}")
    answer(room, method, b"")
