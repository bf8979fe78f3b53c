"""One request to the server: its head, who asks, and what of the API group it is about. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.streams.requests import StreamRequest
from minik8s_virtual_machines.api.kinds import SUBRESOURCES, VERSION

ROOT = f"/apis/{SUBRESOURCES}/{VERSION}"
_TARGET = re.compile(
    rf"^{re.escape(ROOT)}/namespaces/(?P<namespace>[^/]+)/(?P<resource>virtualmachines|virtualmachineinstances)"
    r"/(?P<name>[^/]+)/(?P<subresource>.+)$"
)
_EXPAND = re.compile(rf"^{re.escape(ROOT)}/namespaces/(?P<namespace>[^/]+)/expand-vm-spec$")
VERBS = {"GET": "get", "PUT": "update", "POST": "create"}


class Caller(NamedTuple):
    """Who asks, as the front proxy says."""

    name: str
    groups: tuple[str, ...]
    extra: Mapping[str, list[str]]


class Asked(NamedTuple):
    """One request; header names are in lower case, those that come more than once have all their values."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, list[str]]
    body: bytes = b""
    line: str = ""

    def header(self, name: str) -> str:
        """Return the first value of a header, "" without one."""
        return next(iter(self.headers.get(name, [])), "")

    @property
    def upgrades(self) -> bool:
        """Whether it asks for a WebSocket."""
        return self.header("upgrade").lower() == "websocket"

    def as_stream(self) -> StreamRequest:
        """Return the request as what answers WebSockets reads it."""
        return StreamRequest(
            "", "", "", {}, {name: ", ".join(found) for name, found in self.headers.items()}, self.line
        )

    def json(self) -> dict[str, Any]:
        """Return the body as an object, an empty one where there is none. Raises BadRequest."""
        if not self.body.strip():
            return {}
        try:
            found = json.loads(self.body)
        except ValueError as error:
            raise BadRequest(f"the body is no JSON: {error}") from error
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise BadRequest("the body must be a JSON object")
        return found


class Target(NamedTuple):
    """What of the API group is asked for; the name is "" for a whole namespace."""

    namespace: str
    resource: str
    name: str
    subresource: str
    rest: tuple[str, ...] = ()

    @property
    def right(self) -> str:
        """Return the subresource as roles name it."""
        return f"{self.subresource}/screenshot" if self.rest == ("screenshot",) else self.subresource


def target_of(path: str) -> Target | None:
    """Return what a path names, None where it names nothing of a namespace."""
    found = _TARGET.match(path)
    if found is None:
        whole = _EXPAND.match(path)
        return Target(unquote(whole["namespace"]), "expand-vm-spec", "", "") if whole else None
    subresource, *rest = found["subresource"].split("/")
    return Target(unquote(found["namespace"]), found["resource"], unquote(found["name"]), subresource, tuple(rest))


def parse(head: bytes) -> Asked:
    """Return the request in a head. Raises ValueError where it is none."""
    line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1" or not (line.isascii() and line.isprintable()):  # noqa: PLR2004
        raise ValueError("no request line of HTTP/1.1")
    headers: dict[str, list[str]] = {}
    for each in lines:
        name, colon, value = each.partition(":")
        if not colon or not name or name != name.strip():
            raise ValueError(f"no header: {each[:80]!r}")
        headers.setdefault(name.lower(), []).append(value.strip())
    if "transfer-encoding" in headers:
        raise ValueError("a body in chunks is not read: send its Content-Length")
    path, _, query = words[1].partition("?")
    return Asked(words[0], path, parse_qs(query, keep_blank_values=True), headers, b"", line)


def length_of(asked: Asked) -> int:
    """Return the length of the body. Raises ValueError."""
    given = asked.headers.get("content-length", [])
    if not given:
        return 0
    if len(set(given)) != 1 or not given[0].isdecimal():
        raise ValueError("Content-Length must be one number")
    return int(given[0])


def caller_of(asked: Asked) -> Caller:
    """Return who asks; only to be believed of the front proxy. Raises BadRequest."""
    names = asked.headers.get("x-remote-user", [])
    if len(names) != 1 or not names[0]:
        raise BadRequest("X-Remote-User must name one user")
    prefix = "x-remote-extra-"
    extra = {unquote(key.removeprefix(prefix)): found for key, found in asked.headers.items() if key.startswith(prefix)}
    return Caller(names[0], tuple(asked.headers.get("x-remote-group", [])), extra)


class Answer(NamedTuple):
    """What is answered: JSON, or ``body`` of another type."""

    code: HTTPStatus
    body: bytes = b""
    media: str = "application/json"


def as_json(found: Any, code: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Return an answer of JSON."""
    return Answer(code, json.dumps(found).encode())
