"""Links in what a pod answers through a proxy, so that they lead through the proxy again; pure.

A pod does not know that its paths stand behind ``/api/v1/namespaces/…/proxy``. Absolute paths in Location and in the
attributes of HTML that hold addresses get that prefix, as in Kubernetes; relative ones and those to other hosts stay.
The rest of a page stays byte by byte. It is read piece by piece: of a page nothing is held but a tag that is not whole.
Source: k8s.io/apimachinery ``util/proxy/transport.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

# a longer tag is left as it is
TAG_BYTES = 8 * 1024
_ATTRIBUTES: Mapping[bytes, frozenset[bytes]] = {
    tag.encode(): frozenset(names.encode().split())
    for tag, names in {
        "a": "href", "applet": "codebase", "area": "href", "audio": "src", "base": "href", "blockquote": "cite",
        "body": "background", "button": "formaction", "command": "icon", "del": "cite", "embed": "src",
        "form": "action", "frame": "longdesc src", "head": "profile", "html": "manifest", "iframe": "longdesc src",
        "img": "longdesc src usemap", "input": "formaction src usemap", "ins": "cite", "link": "href",
        "object": "classid codebase data usemap", "q": "cite", "script": "src", "source": "src", "video": "poster src",
    }.items()
}  # fmt: skip
# what stands inside them is text up to their end
_TEXTS = frozenset({b"script", b"style", b"textarea", b"title"})
# a tag as far as it goes: what ends it is ">", what breaks it off another "<". As its last part fits everything, no
# part is ever tried twice
_TAG = re.compile(rb"""<([a-zA-Z][^\s/<>"']*)((?:[^<>"']+|"[^"]*"|'[^']*')*)([<>]?)""")
_ATTRIBUTE = re.compile(rb"""([^\s=/>"']+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s>"']+)""")
_BEGUN = re.compile(rb"<!?-?\Z")


class Proxy(NamedTuple):
    """What paths get before them; ``client_host`` and ``pod_host`` are names for the pod itself."""

    prefix: str
    client_host: str = ""
    pod_host: str = ""


def location(url: str, proxy: Proxy) -> str:
    """Return where ``url`` leads through the proxy; what is relative, elsewhere or unreadable stays as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if parts.netloc not in {"", proxy.client_host, proxy.pod_host} or not parts.path.startswith("/"):
        return url
    if parts.netloc != proxy.client_host:
        parts = parts._replace(scheme="", netloc="")
    if parts.path != proxy.prefix and not parts.path.startswith(f"{proxy.prefix}/"):
        parts = parts._replace(path=proxy.prefix + parts.path)
    return urlunsplit(parts)


class Page:
    """One page of HTML on its way to the client."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._held = b""
        self._until = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of the page can go on."""
        self._held += data
        done: list[bytes] = []
        while step := self._step():
            done.append(step)
        return b"".join(done)

    def end(self) -> bytes:
        """Return the rest."""
        rest, self._held = self._held, b""
        return rest

    def _take(self, count: int) -> bytes:
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _step(self) -> bytes:
        """Return the next piece: text, or one tag; b"" when more of the page must come first."""
        if self._until:
            return self._text()
        start = self._held.find(b"<")
        if start:
            return self._take(start if start > 0 else len(self._held))
        if self._held.startswith(b"<!--"):
            self._until = b"-->"
            return self._take(4)
        tag = _TAG.match(self._held, 0, TAG_BYTES)
        if tag is None:
            return b"" if _BEGUN.match(self._held) else self._take(1)
        return self._tag(tag)

    def _tag(self, tag: re.Match[bytes]) -> bytes:
        """Return a tag that is whole, or what cannot be one; b"" while it may become one."""
        if tag[3] == b"<":
            return self._take(tag.end() - 1)
        if not tag[3]:
            return b"" if len(self._held) < TAG_BYTES else self._take(TAG_BYTES)
        self._take(tag.end())
        name = tag[1].lower()
        self._until = b"</" + name if name in _TEXTS else b""
        return _rewritten(tag, self._proxy)

    def _text(self) -> bytes:
        """Return what stands inside a comment or script, with its end when that has come."""
        at = self._held.lower().find(self._until)
        if at < 0:
            return self._take(max(0, len(self._held) - len(self._until) + 1))
        taken = self._take(at + len(self._until))
        self._until = b""
        return taken


def _rewritten(tag: re.Match[bytes], proxy: Proxy) -> bytes:
    names = _ATTRIBUTES.get(tag[1].lower())
    if names is None:
        return tag[0]

    def attribute(found: re.Match[bytes]) -> bytes:
        if found[1].lower() not in names:
            return found[0]
        quote = found[3][:1] if found[3][:1] in {b'"', b"'"} else b""
        value = (found[3].strip(quote) if quote else found[3]).decode("latin-1").strip()
        led = location(value, proxy)
        return found[0] if led == value else found[1] + found[2] + quote + led.encode("latin-1") + quote

    return b"<" + tag[1] + _ATTRIBUTE.sub(attribute, tag[2]) + b">"
