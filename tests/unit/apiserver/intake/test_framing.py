"""Where requests end, however their bytes are cut; the ambiguous ones are in tests/attacks."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import BadRequest, RequestEntityTooLarge, StatusError
from minik8s_modules.apiserver.http.bodies import MAX_BODY_BYTES
from minik8s_modules.apiserver.intake.framing import (
    MAX_CHUNKS,
    MAX_HEAD_BYTES,
    MAX_KEPT_BYTES,
    MAX_KEPT_LINES,
    Reader,
    Whole,
)
from minik8s_modules.apiserver.intake.heads import environ_of
from tests.attacks.requests.test_requests_are_framed_one_way import AMBIGUOUS

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# what heads.py refuses: it has no say in where a request ends
NO_MATTER_OF_LENGTH = {"a header without a colon", "a header without a name"}
TWO = HEAD + b"content-length:  5 \r\n\r\nhello" + CHUNKED + b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n"


def taken(data: bytes, step: int) -> list[Whole]:
    """Return the requests in ``data``, fed in pieces of ``step`` bytes."""
    reader, found = Reader(), []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        while whole := reader.take():
            found.append(whole)
    assert reader.held == 0
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_requests_are_the_same_however_they_are_cut(step: int):
    assert [whole.body for whole in taken(TWO, step)] == [b"hello", b"abc0123456789"]


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("case", sorted(set(AMBIGUOUS) - NO_MATTER_OF_LENGTH))
def test_what_is_ambiguous_is_refused_however_it_is_cut(case: str, step: int):
    with pytest.raises(BadRequest):
        taken(AMBIGUOUS[case], step)


@pytest.mark.parametrize("name", ["Content-Length-Hint", "Hostname", "X-Content-Length", "Expect-CT", "Content-Type"])
def test_names_that_only_resemble_are_no_lengths(name: str):
    (whole,) = taken(HEAD + f"{name}: chunked, 5\r\n\r\n".encode(), 1000)
    assert whole.body == b""


def test_a_head_says_what_is_to_come():
    reader = Reader()
    reader.feed(HEAD + b"Expect: 100-Continue\r\nContent-Length: 10\r\n\r\nabc")
    assert reader.take() is None
    assert reader.frame is not None
    assert (reader.frame.length, reader.frame.asks, reader.to_come) == (10, True, 7)


def test_http_1_0_needs_no_host_and_is_asked_nothing():
    reader = Reader()
    reader.feed(b"POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
    reader.take()
    assert reader.frame is not None
    assert not reader.frame.asks


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (CHUNKED + b"%x\r\n" % (MAX_BODY_BYTES + 1), 413),
        (CHUNKED + b"1\r\na\r\n" * MAX_CHUNKS + b"1\r\n", 400),
        (HEAD + b"X: " + b"a" * MAX_HEAD_BYTES, 431),
        (HEAD + b"Expect: a-miracle\r\n\r\n", 417),
    ],
)
def test_what_is_too_much_is_refused_at_once(data: bytes, code: int):
    with pytest.raises(StatusError) as refused:
        taken(data, len(data))
    assert refused.value.code == code
    assert isinstance(refused.value, RequestEntityTooLarge) == (code == 413)


@pytest.mark.parametrize(
    "path",
    [
        b"/api/v1/namespaces/default/services/web/proxy/upload",
        b"/api/v1/namespaces/default/pods/web:8080/proxy/",
        b"/apis/wardle.example.com/v1alpha1/namespaces/default/flunders",
    ],
)
@pytest.mark.parametrize(
    "length", [b"Content-Length: 5242880\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n500000\r\n"]
)
def test_what_is_passed_on_is_no_longer_than_what_is_kept(path: bytes, length: bytes):
    with pytest.raises(RequestEntityTooLarge, match="limit is 3145728"):
        taken(b"POST %s HTTP/1.1\r\nHost: x\r\n%s" % (path, length), 1000)


def test_what_comes_after_a_request_is_kept():
    reader = Reader()
    reader.feed(HEAD + b"\r\nearly")
    whole = reader.take()
    assert whole is not None
    assert whole[:2] == (HEAD + b"\r\n", b"")
    assert reader.leftover() == b"early"
    assert reader.held == 0


def environs(*heads: bytes) -> list[dict[str, Any]]:
    """Return what the requests of one connection are as environments, without the streams."""
    return [
        {key: value for key, value in environ_of(whole, ("::1", 1), ("::1", 2)).items() if not key.startswith("wsgi.")}
        for whole in taken(b"".join(heads), 1000)
    ]


def test_a_request_is_read_alike_whatever_came_before_on_its_connection():
    first = b"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer one\r\n\r\n"
    others = (
        b"GET /b?c=d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer one\r\n\r\n",
        b"GET /a HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer one\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer two\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /a HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"X-Y: z\r\n" * 50),
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"z" * 4000),
    )
    for other in others:
        assert environs(first, other, other, first) == [
            each for head in (first, other, other, first) for each in environs(head)
        ]


@pytest.mark.parametrize(
    "broken", [b"GET /a\nHTTP/1.1\r\n", b"GET  /a HTTP/1.1\r\n", b"GET /\0 HTTP/1.1\r\n", b"GET /a HTTP/2.0\r\n"]
)
def test_a_line_is_looked_at_though_the_fields_were_read_before(broken: bytes):
    fields = b"Host: x\r\n\r\n"
    with pytest.raises(BadRequest):
        taken(b"GET /a HTTP/1.1\r\n" + fields + broken + fields, 1000)


def test_fields_that_need_much_room_are_not_kept():
    for fields in (b"X: %b\r\n" % (b"z" * MAX_KEPT_BYTES), b"X: z\r\n" * MAX_KEPT_LINES):
        (whole,) = taken(b"GET /a HTTP/1.1\r\nHost: x\r\n%b\r\n" % fields, 10_000)
        assert whole.read is None
