"""Heads as WSGI environments: what clients send is there, what nobody may pass off is not, and bad ones are told."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.heads import MAX_HEADERS, MAX_LINE_BYTES, asks_to_close, environ_of


def read(first: str, *lines: str, body: bytes = b"") -> dict[str, Any]:
    head = "\r\n".join([first, *lines, "", ""]).encode("latin-1")
    return environ_of(Whole(head, body), ("10.0.0.7", 4711), ("10.0.0.1", 6443))


def test_a_request_is_told_as_pep_3333_wants_it():
    environ = read(
        "POST /api/v1/pods%2Fa?watch=1&a=%20 HTTP/1.1",
        "Host: api:6443",
        "Content-Type:application/json \t",
        "content-length: 2",
        "X-Long-Name:  a  b ",
        body=b"{}",
    )

    assert environ["REQUEST_METHOD"] == "POST"
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("", "/api/v1/pods/a")
    assert environ["QUERY_STRING"] == "watch=1&a=%20"
    assert environ["RAW_URI"] == "/api/v1/pods%2Fa?watch=1&a=%20"
    assert (environ["CONTENT_TYPE"], environ["CONTENT_LENGTH"]) == ("application/json", "2")
    assert "HTTP_CONTENT_TYPE" not in environ
    assert (environ["HTTP_HOST"], environ["HTTP_X_LONG_NAME"]) == ("api:6443", "a  b")
    assert (environ["REMOTE_ADDR"], environ["REMOTE_PORT"]) == ("10.0.0.7", "4711")
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("10.0.0.1", "6443")
    assert (environ["SERVER_PROTOCOL"], environ["wsgi.url_scheme"]) == ("HTTP/1.1", "https")
    assert environ["wsgi.input"].read() == b"{}"


def test_equal_headers_are_joined():
    assert read("GET / HTTP/1.1", "Accept: a", "accept: b")["HTTP_ACCEPT"] == "a,b"


def test_a_name_with_an_underscore_passes_for_no_other():
    environ = read("GET / HTTP/1.1", "Impersonate_User: admin", "Script_Name: /api", "X-Script-Name: y")

    assert "HTTP_IMPERSONATE_USER" not in environ
    assert environ["SCRIPT_NAME"] == ""


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a%C3%A9", "/aÃ©", ""),
        ("//a/b", "//a/b", ""),
        ("/a#b?c", "/a", ""),
        ("/a?b#c", "/a", "b"),
        ("/a?b?c", "/a", "b?c"),
        ("http://api:6443/a?b", "/a", "b"),
        ("*", "*", ""),
    ],
)
def test_targets(target: str, path: str, query: str):
    environ = read(f"GET {target} HTTP/1.1")

    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (path, query)


@pytest.mark.parametrize(
    ("first", "lines", "code"),
    [
        ("get / HTTP/1.1", [], 400),
        ("GE / HTTP/1.1", [], 400),
        ("G{T / HTTP/1.1", [], 400),
        ("GET http://[/a HTTP/1.1", [], 400),
        ("GET / HTTP/1.1", ["no colon"], 400),
        ("GET / HTTP/1.1", [": no name"], 400),
        ("GET / HTTP/1.1", ["a name: x"], 400),
        ("GET / HTTP/1.1", ["näme: x"], 400),
        (f"GET /{'a' * MAX_LINE_BYTES} HTTP/1.1", [], 414),
        ("GET / HTTP/1.1", [f"X: {'a' * MAX_LINE_BYTES}"], 431),
        ("GET / HTTP/1.1", [f"X-{number}: a" for number in range(MAX_HEADERS + 1)], 431),
    ],
)
def test_what_cannot_be_read_is_refused(first: str, lines: list[str], code: int):
    with pytest.raises(StatusError) as refused:
        read(first, *lines)

    assert refused.value.code == code


@pytest.mark.parametrize(
    ("version", "asked", "closes"),
    [
        ("1.1", "", False),
        ("1.1", "keep-alive", False),
        ("1.1", "Close", True),
        ("1.1", "upgrade, close", True),
        ("1.0", "", True),
        ("1.0", "Keep-Alive", False),
    ],
)
def test_who_wants_the_connection_to_end(version: str, asked: str, *, closes: bool):
    lines = [f"Connection: {asked}"] if asked else []

    assert asks_to_close(read(f"GET / HTTP/{version}", *lines)) is closes
