"""Heads that go to extensions and come from them: whose word counts, and what stays out."""

from __future__ import annotations

import pytest

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.apiserver.aggregation import heads
from minik8s_modules.apiserver.authorization.identity import User

REMOTE = Remote(
    "g.example.com", "v1", (1, 1), "wardle", "api", 443, "", blind=False, available=True, uid="u"
)  # fmt: skip
JANE = User("jane", ("people", "system:authenticated"), extra=(("scopes.example.com/a b", ("x", "y")),))


def test_who_asks_is_this_servers_word_alone() -> None:
    sent = {
        "Accept": "application/json", "X-Remote-User": "root", "X-Remote-Uid": "0", "Impersonate-User": "root",
        "Authorization": "Bearer secret", "Connection": "close, X-Private", "X-Private": "1", "Te": "trailers",
        "Sec-Websocket-Protocol": "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
        "Cookie": "session=1", "Http2-Settings": "AAMAAABk", "Upgrade": "h2c",
        "X-Forwarded-For": "192.0.2.1", "Content-Length": "99", "Transfer-Encoding": "chunked",
    }  # fmt: skip
    assert heads.request(sent, JANE, REMOTE, "192.0.2.2", 2) == [
        (b"Host", b"api.wardle.svc"),
        (b"Connection", b"close"),
        (b"X-Forwarded-For", b"192.0.2.1, 192.0.2.2"),
        (b"Content-Length", b"2"),
        (b"Accept", b"application/json"),
        (b"Sec-Websocket-Protocol", b"v4.channel.k8s.io"),
        (b"X-Remote-User", b"jane"),
        (b"X-Remote-Group", b"people"),
        (b"X-Remote-Group", b"system:authenticated"),
        (b"X-Remote-Extra-scopes.example.com%2Fa%20b", b"x"),
        (b"X-Remote-Extra-scopes.example.com%2Fa%20b", b"y"),
    ]


@pytest.mark.parametrize("protocol", ["h2c", "HTTP/2.0", "TLS/1.3", "websocket, h2c", "h2c,websocket", "echo"])
def test_a_connection_that_names_its_user_carries_no_further_requests(protocol: str) -> None:
    asked = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol, "Http2-Settings": "AAMAAABk"}
    with pytest.raises(BadRequest, match="use websocket or SPDY"):
        heads.request(asked, JANE, REMOTE, "192.0.2.2", None)


@pytest.mark.parametrize("protocol", ["websocket", "WebSocket", "SPDY/3.1"])
def test_the_streams_of_kubernetes_are_asked_for(protocol: str) -> None:
    asked = heads.request({"Connection": "Upgrade", "Upgrade": protocol}, JANE, REMOTE, "192.0.2.2", None)
    assert (b"Upgrade", protocol.encode()) in asked


@pytest.mark.parametrize("name", ["a\r\nX-Remote-Group: system:masters", "a\0", " a", "a\t"])
def test_a_name_that_would_break_out_of_its_header_is_refused(name: str) -> None:
    for user in (User(name, ()), User("a", (name,)), User("a", (), extra=(("k", (name,)),))):
        with pytest.raises(BadRequest, match="no HTTP header can carry"):
            heads.identity(user)


def test_what_was_authorized_is_what_is_asked_for() -> None:
    arguments = [("labelSelector", "a=b;watch=true"), ("x", "ä")]
    assert heads.target("/apis/g/v1/a%2Fb", arguments) == (
        "/apis/g/v1/a%252Fb?labelSelector=a%3Db%3Bwatch%3Dtrue&x=%C3%A4"
    )
    assert heads.target("/apis/g/v1/ä b", []) == "/apis/g/v1/%C3%A4%20b"


def test_an_answer_asks_for_no_credentials_and_speaks_for_no_origin() -> None:
    listed = [
        (b"Content-Type", b"application/json"), (b"WWW-Authenticate", b"Basic"), (b"Set-Cookie", b"a=b"),
        (b"Access-Control-Allow-Origin", b"*"), (b"Connection", b"keep-alive, X-Hop"), (b"X-Hop", b"1"),
        (b"Content-Length", b"7"), (b"Transfer-Encoding", b"chunked"),
    ]  # fmt: skip
    assert heads.answer(listed) == [(b"Content-Type", b"application/json"), (b"Connection", b"close")]
    switching = [(b"Connection", b"Upgrade"), (b"Upgrade", b"echo"), (b"Set-Cookie", b"a=b")]
    assert heads.answer(switching, switching=True) == switching[:2]


def test_an_answer_that_leads_elsewhere_is_known() -> None:
    assert heads.redirects(302, [(b"location", b"https://example.com/")])
    assert not heads.redirects(304, [(b"etag", b"1")])
    assert not heads.redirects(200, [(b"Location", b"/here")])
