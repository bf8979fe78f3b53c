"""Netlink messages in bytes: devices and routes (rtnetlink.py), nf_tables, conntrack and IPVS.

A library builds and parses a message in 100 to 300 µs; a node has 10,000 services and 250,000 endpoints, so they are
made by struct (1 to 2 µs an element; figures: BENCHMARKS.md). Attributes are ``length u16, type u16, payload`` padded
to 4 bytes (linux/netlink.h). The words of each table: nftables_wire.py, conntrack.py, ipvs.py.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETFILTER, GENERIC = 12, 16  # protocols of linux/netlink.h
REQUEST, MULTI, ACK, DUMP_INTERRUPTED, DUMP, CREATE, EXCLUSIVE = 1, 2, 4, 0x10, 0x300, 0x400, 0x200
NESTED = 0x8000
TYPE_MASK = 0x3FFF
ERROR, DONE = 2, 3
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
RECEIVE_BYTES = 1 << 20
TIMEOUT_S = 20
DUMP_TRIES = 20
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_sequence = itertools.count(1)


class Message(NamedTuple):
    """One message from the kernel; ``body`` begins after the netlink header."""

    type: int
    flags: int
    sequence: int
    body: bytes


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute, padded."""
    return _ATTRIBUTE.pack(4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    """Return an attribute that holds attributes."""
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    """Return a string attribute, with its NUL."""
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, payload) of a list of attributes, with repeated ones."""
    at, end = 0, len(data)
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & TYPE_MASK, data[at + 4 : at + length]
        at += (length + 3) & ~3


def message(kind: int, flags: int, body: bytes, sequence: int = 0) -> bytes:
    """Return one message; ``sequence`` 0 takes the next one."""
    return _HEADER.pack(16 + len(body), kind, flags | REQUEST, sequence or next(_sequence), 0) + body


def next_sequence() -> int:
    """Return a sequence number that was not used yet."""
    return next(_sequence)


def messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of one datagram."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
        yield Message(kind, flags, sequence, data[at + 16 : at + length])
        at += (length + 3) & ~3


def error_of(found: Message) -> int:
    """Return the errno an ERROR (or DONE) message tells, 0 for an acknowledgement."""
    return -int.from_bytes(found.body[:4], "little" if struct.pack("=H", 1)[0] else "big", signed=True)


class Wire:
    """One netlink socket of this network namespace; not to be shared by threads. Refusals are OSErrors."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        self._socket.settimeout(TIMEOUT_S)
        self._force(SO_RCVBUFFORCE, 64 << 20)

    def __enter__(self) -> Wire:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    def _force(self, option: int, size: int) -> None:
        """Set a buffer beyond the limit of ordinary users; without the right to, a large transaction is refused."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise

    def send(self, data: bytes) -> None:
        """Send messages as one datagram: one transaction may be megabytes long."""
        self._force(SO_SNDBUFFORCE, max(1 << 20, 2 * len(data)))
        self._socket.sendto(data, (0, 0))

    def receive(self) -> list[Message]:
        """Return the messages of the next datagram."""
        return list(messages(self._socket.recv(RECEIVE_BYTES)))

    def dump(self, kind: int, body: bytes, flags: int = 0) -> list[Message]:
        """Return all answers to a dump; it is asked again while the kernel says that it changed meanwhile.

        Raises:
            OSError: the kernel refused, or it never stayed the same (EAGAIN).
        """
        for _ in range(DUMP_TRIES):
            found = self._dump_once(message(kind, DUMP | flags, body))
            if found is not None:
                return found
        raise OSError(errno.EAGAIN, "what is listed changed during every reading")

    def _dump_once(self, asked: bytes) -> list[Message] | None:
        self.send(asked)
        sequence = next(messages(asked)).sequence
        found: list[Message] = []
        interrupted = False
        while True:
            for each in (one for one in self.receive() if one.sequence == sequence):
                interrupted = interrupted or bool(each.flags & DUMP_INTERRUPTED)
                # a dump that ends early tells why in its last message
                if each.type == ERROR or (each.type == DONE and error_of(each)):
                    raise _refused("list", error_of(each))
                if each.type == DONE:
                    return None if interrupted else found
                found.append(each)

    def ask_each(self, asked: list[bytes], sequences: list[int]) -> dict[int, Message]:
        """Send requests that have one answer each; return the answers by sequence, refusals among them."""
        self.send(b"".join(asked))
        waiting, answers = set(sequences), dict[int, Message]()
        while waiting:
            for each in self.receive():
                waiting.discard(each.sequence)
                answers.setdefault(each.sequence, each)
        return answers

    def do(self, what: str, asked: bytes, sequence: int) -> None:
        """Send one request that is acknowledged.

        Raises:
            OSError: the kernel refused; the text says ``what``.
        """
        self.send(asked)
        while True:
            for each in self.receive():
                if each.sequence == sequence and each.type == ERROR:
                    if code := error_of(each):
                        raise _refused(what, code)
                    return


def _refused(what: str, code: int) -> OSError:
    return OSError(code, f"{what}: {os.strerror(code)}")
