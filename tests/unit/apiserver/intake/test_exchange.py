"""Answers of WSGI applications as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.apiserver.intake.exchange import Exchange
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.heads import environ_of


def environ(method: str = "GET", version: str = "1.1", connection: str = "") -> dict[str, Any]:
    head = f"{method} / HTTP/{version}\r\nHost: x\r\nConnection: {connection}\r\n\r\n"
    return environ_of(Whole(head.encode(), b""), ("10.0.0.7", 4711), ("10.0.0.1", 6443))


def answering(status: str, *headers: tuple[str, str], body: list[bytes]) -> Callable[..., Any]:
    def application(_environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        start(status, list(headers))
        return body

    return application


def heads(exchange: Exchange, application: Callable[..., Any]) -> tuple[list[str], bytes]:
    head, *parts = exchange.run(application)
    assert head.endswith(b"\r\n\r\n")
    return head.decode().split("\r\n")[:-2], b"".join(parts)


def test_an_answer_has_its_status_headers_length_and_date():
    lines, body = heads(Exchange(environ(), close=False), answering("200 OK", ("X-A", "b"), body=[b"ab", b"c"]))

    assert lines[0] == "HTTP/1.1 200 OK"
    assert {"X-A: b", "Content-Length: 3"} < set(lines)
    assert any(line.startswith("Date: ") and line.endswith(" GMT") for line in lines)
    assert not any(line.startswith("Connection") for line in lines)
    assert body == b"abc"


def test_a_length_that_is_told_is_not_told_twice():
    lines, _ = heads(Exchange(environ(), close=False), answering("200 OK", ("content-length", "3"), body=[b"abc"]))

    assert [line for line in lines if "ength" in line] == ["content-length: 3"]


def test_head_gets_the_headers_alone():
    application = answering("200 OK", ("Content-Length", "3"), body=[b"abc"])

    assert heads(Exchange(environ("HEAD"), close=False), application)[1] == b""


def test_what_has_no_body_has_no_length():
    lines, _ = heads(Exchange(environ(), close=False), answering("204 No Content", body=[]))

    assert not any("Content-Length" in line for line in lines)


@pytest.mark.parametrize(
    ("version", "connection", "message"), [("1.1", "close", "close"), ("1.0", "keep-alive", "keep-alive")]
)
def test_the_connection_ends_or_stays_as_asked(version: str, connection: str, message: str):
    exchange = Exchange(environ(version=version, connection=connection), close=False)

    assert f"Connection: {message}" in heads(exchange, answering("200 OK", body=[]))[0]
    assert exchange.close is (message == "close")


def test_a_server_that_stops_keeps_no_connection():
    exchange = Exchange(environ(), close=True)

    assert "Connection: close" in heads(exchange, answering("200 OK", body=[]))[0]


def test_a_line_break_in_a_header_is_a_defect_and_not_sent():
    with pytest.raises(AssertionError, match="line break"):
        Exchange(environ(), close=False).run(answering("200 OK", ("X-A", "b\r\nX-B: c"), body=[]))


def test_what_the_application_opened_is_closed_when_it_fails():
    closed = []

    class Body:
        def __iter__(self) -> Any:
            raise ValueError("gone")

        def close(self) -> None:
            closed.append(True)

    with pytest.raises(ValueError, match="gone"):
        Exchange(environ(), close=False).run(lambda _environ, _start: Body())

    assert closed == [True]
