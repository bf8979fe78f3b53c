"""Heads of requests to extensions, and of their answers; pure.

An extension believes the headers ``X-Remote-*`` of whoever shows the front-proxy certificate, so they are this server's
alone: those of the client are dropped, as is every credential that it sent. For the same reason a connection is
switched to no protocol that carries further requests (HTTP/2 in clear text, TLS). Of the answer stays out what would
lead the client elsewhere or ask it for credentials. Source: kube-aggregator ``handler_proxy.go``, client-go
``transport/round_trippers.go``, CVE-2022-3172 (redirects).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.nodes import proxying

Head = list[tuple[bytes, bytes]]
_EXTRA_KEY = "!#$&'*+.^_`|~-"  # what a header's name may consist of; "%" escapes the rest
_PATH = "/:@!$&'()*+,;="
_SHOWN = 100
_DROPPED = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
    b"upgrade", b"www-authenticate", b"set-cookie", b"strict-transport-security", b"alt-svc",
})  # fmt: skip
_ORIGIN = b"access-control-"
_NOT_FOR_EXTENSIONS = frozenset({"cookie", "http2-settings"})
_PROTOCOLS = frozenset({"websocket", "spdy/3.1"})


def target(path: str, arguments: Iterable[tuple[str, str]]) -> str:
    """Return what an extension is asked for: the very path and arguments that were authorized, written again."""
    query = urlencode(list(arguments))
    return quote(path, safe=_PATH) + (f"?{query}" if query else "")


def identity(user: User) -> Head:
    """Return the headers that say who asks. Raises BadRequest for a name that no header can carry."""
    said = [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in user.groups)]
    for key, values in user.extra:
        said += [(f"X-Remote-Extra-{quote(key, safe=_EXTRA_KEY)}", value) for value in values]
    for _, value in said:
        if any(ord(char) < 0x20 or ord(char) == 0x7F for char in value) or value != value.strip():  # noqa: PLR2004 - control characters
            raise BadRequest("the user's name, a group or an extra has characters that no HTTP header can carry")
    return [(key.encode(), value.encode()) for key, value in said]


def request(headers: Mapping[str, str], user: User, remote: Remote, client: str, length: int | None) -> Head:
    """Return the head that an extension gets.

    Args:
        headers: those that came, named like ``Content-Type``.
        user: who asks.
        remote: who is asked.
        client: the address that the request came from.
        length: of the body, None where there is none.

    Raises:
        BadRequest: the request is for an upgrade to a protocol in which anybody could be named.
    """
    upgrade = proxying.is_upgrade(headers)
    if upgrade and headers["Upgrade"].strip().lower() not in _PROTOCOLS:
        shown = headers["Upgrade"][:_SHOWN]
        raise BadRequest(f"an extension API server cannot be upgraded to {shown!r}: use websocket or SPDY/3.1")
    before = headers.get("X-Forwarded-For")
    own = [
        ("Host", f"{remote.service}.{remote.namespace}.svc"),
        *([("Connection", "Upgrade"), ("Upgrade", headers["Upgrade"])] if upgrade else [("Connection", "close")]),
        ("X-Forwarded-For", f"{before}, {client}" if before else client),
        *([("Content-Length", str(length))] if length is not None else []),
    ]
    kept = [each for each in proxying.passed_on(headers) if each[0].lower() not in _NOT_FOR_EXTENSIONS]
    pairs = [*own, *kept]
    return [*((key.encode("latin-1"), value.encode("latin-1")) for key, value in pairs if value), *identity(user)]


def answer(headers: Iterable[tuple[bytes, bytes]], *, switching: bool = False) -> Head:
    """Return what of an extension's head goes to the client; ``switching``: of a 101, which names its protocol."""
    found = list(headers)
    own = {each.strip().lower() for name, value in found if name.lower() == b"connection" for each in value.split(b",")}
    dropped = _DROPPED - {b"connection", b"upgrade"} if switching else _DROPPED | own
    kept = [each for each in found if each[0].lower() not in dropped and not each[0].lower().startswith(_ORIGIN)]
    if any(name.lower() == b"transfer-encoding" for name, _ in found):
        kept = [each for each in kept if each[0].lower() != b"content-length"]
    return kept if switching else [*kept, (b"Connection", b"close")]


def redirects(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether an answer sends its reader elsewhere."""
    return status // 100 == 3 and any(name.lower() == b"location" for name, _ in headers)  # noqa: PLR2004 - 3xx
