"""What ``trace`` is given: a URL, a part of one, or an object as TYPE/NAME."""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import KINDS, POD, SERVICE

_PORTS = {"http": "80", "https": "443"}


class Place(NamedTuple):
    """Where a request goes, as it was written.

    Attributes:
        kind: the type, where it may be TYPE/NAME.
        authority: host and port, with the brackets of IPv6; of a Service or Pod, its name and the port.
        path: without the query.
        scheme: "" where none was written.
    """

    kind: Kind | None
    authority: str
    path: str
    scheme: str = ""

    @property
    def host(self) -> str:
        """Return the host, or the name."""
        return _host_and_port(self.authority)[0]

    @property
    def port(self) -> str:
        """Return the port that a client takes, a number or a name; "" where it may be any."""
        return _host_and_port(self.authority)[1] or _PORTS.get(self.scheme, "")


def place_of(text: str) -> Place:
    """Return what a URL, a part of one, or TYPE/NAME says."""
    before, separator, behind_it = text.partition("?")[0].partition("://")
    scheme, rest = (before.lower(), behind_it) if separator else ("", before)
    authority, _, path = rest.partition("/")
    kind = KINDS.by_name(authority) if path and not scheme else None
    if kind in (SERVICE, POD):
        authority, _, path = path.partition("/")
    return Place(kind, authority, f"/{path}", scheme)


def _host_and_port(authority: str) -> tuple[str, str]:
    """Return what a URL names as host and port, without the brackets of IPv6; people leave these out, too."""
    if authority.startswith("["):
        host, _, behind_it = authority[1:].partition("]")
        return host, behind_it.removeprefix(":")
    host, _, port = authority.partition(":")
    return (authority, "") if ":" in port else (host, port)
