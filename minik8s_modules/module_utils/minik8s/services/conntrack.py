"""Connections that the kernel remembers: those of UDP endpoints that are gone are forgotten.

UDP has no end: as long as a client goes on sending, its entry lives, and its packets go to an endpoint that is no more.
The kernel is asked for the entries of one service address and port (CTA_FILTER, Linux 5.8), so that a long table costs
little; the rest is told apart here. Words: linux/netfilter/nfnetlink_conntrack.h.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ..network.wire import ACK, NESTED, NETFILTER, Wire, attribute, attributes, message, nested, next_sequence

SUBSYSTEM = 1 << 8
GET, DELETE = SUBSYSTEM | 1, SUBSYSTEM | 2
ORIGINAL, REPLY, FILTER, IDENTITY = 1, 2, 25, 12
TUPLE_IP, TUPLE_PROTOCOL, SOURCE, TARGET, NUMBER, SOURCE_PORT, TARGET_PORT = 1, 2, 1, 2, 1, 2, 3
FILTER_ORIGINAL, BY_TARGET, BY_PROTOCOL, BY_TARGET_PORT = 1, 1 << 1, 1 << 3, 1 << 5
SOURCE_IPV6, TARGET_IPV6 = 3, 4


class _Family(NamedTuple):
    """What messages of a family begin with, and how they call its addresses."""

    number: int
    source: int
    target: int

    @property
    def head(self) -> bytes:
        return struct.pack(">BBH", self.number, 0, 0)


_IPV4 = _Family(socket.AF_INET, SOURCE, TARGET)
_IPV6 = _Family(socket.AF_INET6, SOURCE_IPV6, TARGET_IPV6)


class Lost(NamedTuple):
    """What clients sent to (address "" is any: a node port), and the endpoint they were sent on to ("": none)."""

    address: str
    port: int
    endpoint: str
    ipv6: bool = False


class _Flow(NamedTuple):
    """One entry: its original tuple as bytes, and what is read of it."""

    original: bytes
    identity: bytes
    address: str
    port: int
    endpoint: str


def forget_udp(lost: Iterable[Lost]) -> int:
    """Delete the UDP entries of vanished endpoints; return how many. An entry that is gone meanwhile is fine."""
    places: dict[tuple[str, int, bool], set[str]] = {}
    for each in lost:
        places.setdefault((each.address, each.port, each.ipv6), set()).add(each.endpoint)
    count = 0
    if not places:
        return count
    with Wire(NETFILTER) as wire:
        for (address, port, ipv6), endpoints in places.items():
            family = _IPV6 if ipv6 else _IPV4
            for flow in _flows(wire, address, port, family):
                if (flow.endpoint if flow.endpoint != flow.address else "") in endpoints:
                    count += _delete(wire, flow, family)
    return count


def _flows(wire: Wire, address: str, port: int, family: _Family) -> list[_Flow]:
    try:
        answers = wire.dump(GET, family.head + _filter(address, port, family))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        answers = wire.dump(GET, family.head)  # an older kernel lists them all
    flows = [flow for answer in answers if (flow := _flow(answer.body[4:], family)) is not None]
    return [flow for flow in flows if flow.port == port and address in ("", flow.address)]


def _filter(address: str, port: int, family: _Family) -> bytes:
    flags = BY_PROTOCOL | BY_TARGET_PORT | (BY_TARGET if address else 0)
    packed = socket.inet_pton(family.number, address) if address else b""
    ip = nested(TUPLE_IP, attribute(family.target, packed)) if address else b""
    number = attribute(NUMBER, bytes([socket.IPPROTO_UDP]))
    ports = nested(TUPLE_PROTOCOL, number, attribute(TARGET_PORT, struct.pack(">H", port)))
    return nested(ORIGINAL, ip, ports) + nested(FILTER, attribute(FILTER_ORIGINAL, struct.pack("=I", flags)))


def _flow(body: bytes, family: _Family) -> _Flow | None:
    parts = dict(attributes(body))
    original, reply = (dict(attributes(parts.get(side, b""))) for side in (ORIGINAL, REPLY))
    if TUPLE_IP not in original or TUPLE_IP not in reply:
        return None
    ports = dict(attributes(original[TUPLE_PROTOCOL]))
    if ports.get(NUMBER) != bytes([socket.IPPROTO_UDP]):
        return None
    targets, sources = (dict(attributes(side[TUPLE_IP])) for side in (original, reply))
    if family.target not in targets or family.source not in sources:
        return None
    target, source = (
        socket.inet_ntop(family.number, each) for each in (targets[family.target], sources[family.source])
    )
    port = struct.unpack(">H", ports[TARGET_PORT])[0]
    return _Flow(parts[ORIGINAL], parts.get(IDENTITY, b""), target, port, source)


def _delete(wire: Wire, flow: _Flow, family: _Family) -> int:
    sequence = next_sequence()
    identity = attribute(IDENTITY, flow.identity) if flow.identity else b""
    body = family.head + attribute(ORIGINAL | NESTED, flow.original) + identity
    try:
        wire.do("forget a connection", message(DELETE, ACK, body, sequence), sequence)
    except FileNotFoundError:
        return 0
    return 1
