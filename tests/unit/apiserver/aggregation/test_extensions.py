"""Carrying requests: what is kept of a body, who has a place to dial, and how long a slow client is waited for."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import Any

import h11
import pytest

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.apiserver.aggregation import extensions
from minik8s_modules.apiserver.aggregation.exchanges import Body, Exchange, Outcome
from minik8s_modules.apiserver.aggregation.extensions import Extensions

REMOTE = Remote("g.example.com", "v1", (1, 1), "a", "api", 443, "", blind=False, available=True, uid="u")


def test_a_body_is_nobodys_once_it_is_sent() -> None:
    given_back: list[int] = []
    body = Body(b"said", lambda: given_back.append(4))
    assert (body.take(), body.take(), given_back) == (b"said", b"", [])
    body.drop()
    body.drop()
    assert given_back == [4]


def test_an_outcome_is_told_once() -> None:
    codes: list[int] = []
    outcome = Outcome(codes.append)
    outcome.begun(201)
    outcome.tell()
    outcome.tell()
    Outcome(codes.append).tell()
    assert codes == [201, 0]


def test_a_dial_that_nobody_waits_for_keeps_its_place_until_it_ends() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    dialled: list[int] = []

    def connect(*_: Any) -> socket.socket:
        dialled.append(1)
        begun.release()
        assert go_on.wait(60)
        raise OSError("nobody is there")

    carrying = Extensions(None, connect, None)  # type: ignore[arg-type]  # dialling needs neither
    carrying.start()

    def dial() -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(carrying._connected(REMOTE, [("192.0.2.1", 1)]), carrying._loop)  # type: ignore[list-item]

    try:
        for _ in range(4):
            waiting = dial()
            assert begun.acquire(timeout=60)
            waiting.cancel()
        fifth = dial()
        assert not begun.acquire(timeout=0.2)  # a thread more of the pool that all extensions share
        go_on.set()
        assert isinstance(fifth.exception(60), OSError)
        assert len(dialled) == 5
    finally:
        go_on.set()
        carrying.stop()


def test_a_client_that_does_not_read_holds_no_place_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "WAIT_S", 0.1)
    codes: list[int] = []

    async def reported() -> None:
        ours, client = socket.socketpair()
        theirs, _extension = socket.socketpair()
        outcome = Outcome(codes.append)
        exchange = Exchange(REMOTE, "GET", "/", [], Body(), outcome)
        reader, writer = await asyncio.open_connection(sock=ours)
        mine = extensions._Wire(extensions._client_side(exchange), reader, writer, outcome)
        reader, other = await asyncio.open_connection(sock=theirs)
        wire = extensions._Wire(h11.Connection(h11.CLIENT), reader, other, Outcome())
        await wire.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        await wire.send(h11.EndOfMessage())
        wire.http.receive_data(b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n" + b"x" * 8_000_000)
        first = wire.http.next_event()
        assert isinstance(first, h11.Response)
        async with asyncio.timeout(60):
            await extensions._tell(mine, wire, exchange, first)
        outcome.tell()
        for each in (writer, other):
            each.transport.abort()
        client.close()
        _extension.close()

    asyncio.run(reported())
    assert codes == [200]
