"""Links in what pods answer through a proxy: which are changed, and that everything else stays byte by byte."""

from __future__ import annotations

import gzip
import time
import zlib

import pytest

from minik8s_modules.streams.proxying import Unpacked, client_head, is_page
from minik8s_modules.streams.rewriting import TAG_BYTES, Page, Proxy, location

P = "/api/v1/namespaces/ns/services/web:80/proxy"
PROXY = Proxy(P, "localhost:8001", "10.1.2.3:80")


@pytest.mark.parametrize(
    ("url", "leads_to"),
    [
        ("/a?b=c#d", f"{P}/a?b=c#d"),
        ("/", f"{P}/"),
        ("a/b", "a/b"),
        ("?page=2", "?page=2"),
        ("#here", "#here"),
        ("", ""),
        (f"{P}/a", f"{P}/a"),
        (f"{P}x/a", f"{P}{P}x/a"),
        ("http://10.1.2.3:80/a", f"{P}/a"),
        ("https://localhost:8001/a", f"https://localhost:8001{P}/a"),
        ("//localhost:8001/a", f"//localhost:8001{P}/a"),
        ("http://example.org/a", "http://example.org/a"),
        ("//example.org/a", "//example.org/a"),
        ("mailto:somebody@example.org", "mailto:somebody@example.org"),
        ("http://[::1/a", "http://[::1/a"),
    ],
)
def test_where_a_link_leads(url: str, leads_to: str) -> None:
    assert location(url, PROXY) == leads_to


def whole(page: bytes, piece: int = 1 << 20) -> bytes:
    made = Page(PROXY)
    return b"".join(made.feed(page[at : at + piece]) for at in range(0, len(page), piece)) + made.end()


PAGES = [
    ('<a href="/x">t</a>', f'<a href="{P}/x">t</a>'),
    ("<A class='b' HREF = '/x' id=c>", f"<A class='b' HREF = '{P}/x' id=c>"),
    ('<img src=/x><img title=\'href="/x"\' src="/y">', f'<img src={P}/x><img title=\'href="/x"\' src="{P}/y">'),
    ('<form action="/x"><input formaction="/y">', f'<form action="{P}/x"><input formaction="{P}/y">'),
    ("<p href=/x>1 < 2 > <b", "<p href=/x>1 < 2 > <b"),
    ('<!-- <a href="/x"> --><a href="/y">', f'<!-- <a href="/x"> --><a href="{P}/y">'),
    ('<script>"<a href=/x>"</script ><a href=/y>', f'<script>"<a href=/x>"</script ><a href={P}/y>'),
    ("<STYLE><a href=/x></style><a href=/y>", f"<STYLE><a href=/x></style><a href={P}/y>"),
    ("<!doctype html><html manifest=/m>\xe4\xff", f"<!doctype html><html manifest={P}/m>\xe4\xff"),
    ("<a href='/x' href>", f"<a href='{P}/x' href>"),
    ("<a b='>' href=/x>", f"<a b='>' href={P}/x>"),
    ("<", "<"),
    ("<!-", "<!-"),
    ("<a href='/x", "<a href='/x"),
]


@pytest.mark.parametrize(("page", "changed"), PAGES, ids=range(len(PAGES)))
def test_links_in_pages_in_whatever_pieces_they_come(page: str, changed: str) -> None:
    for piece in (1, 2, 3, 1000):
        assert whole(page.encode("latin-1"), piece) == changed.encode("latin-1")


def test_of_a_page_no_more_than_a_tag_is_held() -> None:
    made = Page(PROXY)
    sent = b"".join(made.feed(b"<a " + b"x" * 1000) for _ in range(100))
    assert len(sent) > 100 * 1003 - 2 * TAG_BYTES
    assert sent + made.end() == (b"<a " + b"x" * 1000) * 100


@pytest.mark.parametrize("bad", [b"<", b"<a", b"<a '", b"<!--", b"<script>", b'<a href="/x', b"</"])
def test_no_page_takes_long(bad: bytes) -> None:
    """Twice as much takes about twice as long, not four times: no page makes everybody else wait."""

    def seconds(count: int) -> float:
        began = time.process_time()
        whole(bad * count, 16 * 1024)
        return time.process_time() - began

    small = min(seconds(5_000) for _ in range(3))
    large = min(seconds(40_000) for _ in range(3))
    assert large < 8 * 4 * max(small, 0.005)


def test_the_head_a_client_gets() -> None:
    head = [
        (b"Connection", b"keep-alive, X-Own"), (b"X-Own", b"1"), (b"Keep-Alive", b"5"), (b"Content-Length", b"3"),
        (b"Transfer-Encoding", b"chunked"), (b"Access-Control-Allow-Origin", b"*"), (b"Location", b"/x"),
        (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b"),
    ]  # fmt: skip
    assert client_head(head, PROXY) == [
        (b"Location", f"{P}/x".encode()), (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b"), (b"Connection", b"close"),
    ]  # fmt: skip


def test_what_is_a_page() -> None:
    assert is_page({b"content-type": b"text/html; charset=utf-8"})
    assert is_page({b"content-type": b"text/html", b"content-encoding": b"gzip"})
    assert not is_page({b"content-type": b"text/html", b"content-encoding": b"br"})
    assert not is_page({b"content-type": b"text/html", b"location": b"/x"})
    assert not is_page({b"content-type": b"text/plain"})
    assert not is_page({})


@pytest.mark.parametrize(("encoding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_a_packed_page_is_unpacked_in_pieces(encoding: bytes, pack: object) -> None:
    assert callable(pack)
    packed = pack(b"x" * 50_000_000)
    pieces = Unpacked(encoding).feed(packed)
    first = next(pieces)
    assert len(first) <= 16 * 1024
    assert sum(map(len, pieces)) + len(first) == 50_000_000


def test_what_is_not_packed_as_its_header_says() -> None:
    with pytest.raises(ConnectionAbortedError, match="cannot be unpacked"):
        list(Unpacked(b"gzip").feed(b"no gzip at all"))
