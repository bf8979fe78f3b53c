"""The messages of rtnetlink about links, addresses, routes and neighbours (linux/rtnetlink.h), in words and in bytes.

A message is a head of fixed fields and a list of attributes. Both are told by name: ``ask("addr", "add", family=…,
index=…, local="10.0.0.1")``. Kinds, fields and words that nobody here needs are not known.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from .wire import ACK, CREATE, ERROR, EXCLUSIVE, NESTED, Wire, attribute, attributes, error_of, next_sequence
from .wire import message as in_bytes

PROTOCOL = 0  # NETLINK_ROUTE
REPLACE = 0x100
LENGTHS = {4: socket.AF_INET, 16: socket.AF_INET6}


def family_of(address: str) -> socket.AddressFamily:
    """Return the family of an address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def packed(address: str) -> bytes:
    """Return an address as it travels."""
    return socket.inet_pton(family_of(address), address)


def unpacked(address: bytes) -> str:
    """Return an address as people write it, "" for what is of no family of ours."""
    return socket.inet_ntop(LENGTHS[len(address)], address) if len(address) in LENGTHS else ""


class _Kind(NamedTuple):
    """A kind of message: its number (what deletes has the next one, what asks that after it), its head, its words."""

    number: int
    head: struct.Struct
    fields: tuple[str, ...]
    words: Mapping[str, tuple[int, str]]


_LINK = {
    "address": (1, "mac"), "ifname": (3, "text"), "mtu": (4, "number"), "peer": (5, "number"), "master": (10, "number"),
    "info": (18, "nested"), "ifalias": (20, "text"), "net_ns_fd": (28, "number"),
}  # fmt: skip
_ROUTE = {"dst": (1, "ip"), "oif": (4, "number"), "gateway": (5, "ip"), "prefsrc": (7, "ip")}
_KINDS = {
    "link": _Kind(16, struct.Struct("=BxHiII"), ("family", "type", "index", "flags", "change"), _LINK),
    "addr": _Kind(
        20,
        struct.Struct("=BBBBi"),
        ("family", "prefixlen", "flags", "scope", "index"),
        {"address": (1, "ip"), "local": (2, "ip")},
    ),
    "route": _Kind(
        24,
        struct.Struct("=BBBBBBBBI"),
        ("family", "dst_len", "src_len", "tos", "table", "proto", "scope", "type", "flags"),
        _ROUTE,
    ),
    "neigh": _Kind(
        28,
        struct.Struct("=B3xiHBB"),
        ("family", "ifindex", "state", "flags", "type"),
        {"dst": (1, "ip"), "lladdr": (2, "mac")},
    ),
}
_ASKED = {
    "add": (0, ACK | CREATE | EXCLUSIVE),
    "replace": (0, ACK | CREATE | REPLACE),
    "set": (0, ACK),
    "del": (1, ACK),
    "get": (2, 0),
}
_READ: dict[str, Callable[[bytes], Any]] = {
    "number": lambda raw: int.from_bytes(raw, sys.byteorder),
    "text": lambda raw: raw.rstrip(b"\0").decode("utf-8", "replace"),
    "ip": unpacked,
    "mac": lambda raw: raw.hex(":"),
    "nested": lambda raw: dict(attributes(raw)),
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "number": struct.Struct("=I").pack,
    "text": lambda value: str(value).encode() + b"\0",
    "ip": packed,
    "mac": lambda value: bytes.fromhex(value.replace(":", "")),
    "nested": lambda value: value,
}


class Message:
    """An answer: fields of its head as items, attributes by ``get``."""

    def __init__(self, what: str, body: bytes) -> None:
        kind = _KINDS[what]
        self._head = dict(zip(kind.fields, kind.head.unpack_from(body)))
        self._words, self._parts = kind.words, dict(attributes(body[kind.head.size :]))

    def __getitem__(self, field: str) -> int:
        """Return a field of the head."""
        found: int = self._head[field]
        return found

    def get(self, word: str) -> Any:
        """Return the value of an attribute, None where there is none."""
        number, form = self._words[word]
        return _READ[form](self._parts[number]) if number in self._parts else None


def body_of(what: str, **about: Any) -> bytes:
    """Return head and attributes of a message."""
    kind = _KINDS[what]
    head = kind.head.pack(*(about.get(field, 0) for field in kind.fields))
    words = ((about[word], *place) for word, place in kind.words.items() if word in about)
    return head + b"".join(
        attribute(number | NESTED if form == "nested" else number, _WRITE[form](value)) for value, number, form in words
    )


def ask(wire: Wire, what: str, command: str, **about: Any) -> list[Message]:
    """Send one request and return what it is answered with: something to ``get``, nothing to changes.

    Raises:
        OSError: the kernel refused.
    """
    (offset, flags), sequence = _ASKED[command], next_sequence()
    asked = in_bytes(_KINDS[what].number + offset, flags, body_of(what, **about), sequence)
    answer = wire.ask_each([asked], [sequence])[sequence]
    if answer.type != ERROR:
        return [Message(what, answer.body)]
    if code := error_of(answer):
        raise OSError(code, "")
    return []


def dump(wire: Wire, what: str, **about: Any) -> list[Message]:
    """Return all of a kind.

    Raises:
        OSError: the kernel refused; EAGAIN, where it changed during each reading.
    """
    found = wire.dump(_KINDS[what].number + 2, body_of(what, **about))
    return [Message(what, each.body) for each in found]
