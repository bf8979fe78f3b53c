"""Virtual servers and destinations of IPVS over generic netlink (linux/ip_vs.h), in bytes as wire.py has them.

A server is known by (protocol, address, port), its value is (scheduler, seconds of persistence); a destination by the
server's place with its own address and port, its value is the weight. Everything is masqueraded (forwarding method 0).
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Any

from ..core.faults import KeyFault
from ..network.wire import (
    ACK,
    ERROR,
    GENERIC,
    Wire,
    attribute,
    attributes,
    error_of,
    message,
    nested,
    next_sequence,
    text,
)
from .families import IPV4, IPV6, family_of
from .services_plan import Rule

SERVERS, DESTINATIONS = "servers", "destinations"
SCHEDULER = "rr"
PERSISTENT = 1
CONTROL_FAMILY, GET_FAMILY = 16, 3
NEW_SERVER, SET_SERVER, DELETE_SERVER, GET_SERVER, NEW_DEST, SET_DEST, DELETE_DEST, GET_DEST = range(1, 9)
SERVER, DESTINATION = 1, 2
AT_ONCE = 128
_HEAD = struct.Struct("=BBH")
Place = tuple[int, str, int]
Target = tuple[int, str, int, str, int]
Value = tuple[str, int]


class IpvsWire:
    """The generic netlink socket of IPVS; one thread."""

    def __init__(self) -> None:
        self._wire = Wire(GENERIC)
        self._family_id = 0

    def close(self) -> None:
        """Close the socket."""
        self._wire.__exit__()

    def _family(self) -> int:
        """Return the number of generic netlink's family IPVS.

        Raises:
            KeyFault: the kernel has none.
        """
        if not self._family_id:
            sequence = next_sequence()
            body = _HEAD.pack(GET_FAMILY, 1, 0) + text(2, "IPVS")
            answer = self._wire.ask_each([message(CONTROL_FAMILY, 0, body, sequence)], [sequence])[sequence]
            if answer.type == ERROR:
                raise KeyFault("NetworkNotReady", "this kernel has no IPVS (module ip_vs); set proxy_mode: nftables")
            parts = dict(attributes(answer.body[_HEAD.size :]))
            self._family_id = struct.unpack("=H", parts[1])[0]
        return self._family_id

    def each(self, command: int, rules: list[Rule], missing: int = 0) -> list[Rule]:
        """Carry out one command for each rule; of a deletion, what is ``missing`` already is fine.

        Returns what was to be made and is there already, whatever its value.

        Raises:
            OSError: the kernel refused one; the others of its batch are done.
        """
        there = list[Rule]()
        for start in range(0, len(rules), AT_ONCE):
            asked, known = list[bytes](), dict[int, Rule]()
            for rule in rules[start : start + AT_ONCE]:
                sequence = next_sequence()
                known[sequence] = rule
                asked.append(message(self._family(), ACK, _HEAD.pack(command, 1, 0) + body_of(rule), sequence))
            answers = self._wire.ask_each(asked, [*known])
            for sequence, rule in known.items():
                code = error_of(answers[sequence]) if answers[sequence].type == ERROR else 0
                if code == errno.EEXIST:
                    there.append(rule)
                elif code and code != missing:
                    raise OSError(code, f"ipvs command {command}: {os.strerror(code)}")
        return there

    def make_destinations(self, rules: list[Rule]) -> None:
        """Make destinations with their weights; one that is there already may have 0, as it was about to go.

        Raises:
            OSError: as ``each`` does.
        """
        self.each(SET_DEST, self.each(NEW_DEST, rules))

    def servers(self) -> dict[Place, Value]:
        """Return all virtual servers, of both families."""
        answers = self._wire.dump(self._family(), _HEAD.pack(GET_SERVER, 1, 0))
        return dict(found for answer in answers if (found := read_server(answer.body)) is not None)

    def server_at(self, place: Place) -> Value | None:
        """Return one virtual server, None when there is none."""
        sequence = next_sequence()
        body = _HEAD.pack(GET_SERVER, 1, 0) + body_of(Rule(SERVERS, place, None))
        answer = self._wire.ask_each([message(self._family(), 0, body, sequence)], [sequence])[sequence]
        found = None if answer.type == ERROR else read_server(answer.body)
        return found[1] if found else None

    def destinations(self, place: Place) -> dict[Target, tuple[int, int]]:
        """Return (weight, open connections) of a server's destinations."""
        body = _HEAD.pack(GET_DEST, 1, 0) + body_of(Rule(SERVERS, place, None))
        found = {}
        for answer in self._wire.dump(self._family(), body):
            parts = dict(attributes(dict(attributes(answer.body[_HEAD.size :]))[DESTINATION]))
            family = family_of(place[1])
            target = (*place, family.text(parts[1][: family.width]), struct.unpack(">H", parts[2])[0])
            found[target] = (struct.unpack("=I", parts[4])[0], struct.unpack("=I", parts[7])[0])
        return found


def body_of(rule: Rule) -> bytes:
    """Return the attributes of a virtual server, or of a destination and its server."""
    if rule.table == DESTINATIONS:
        return nested(SERVER, *_place(rule.key)) + _destination(rule.key, rule.value)
    scheduler, sticky_s = rule.value or (SCHEDULER, 0)
    how = (
        text(6, scheduler),
        attribute(7, struct.pack("=II", PERSISTENT if sticky_s else 0, 0xFFFFFFFF)),
        attribute(8, struct.pack("=I", sticky_s)),
        # who is one client, of persistence: a mask, or the length of a prefix
        attribute(9, struct.pack("=I", 128) if ":" in rule.key[1] else b"\xff\xff\xff\xff"),
    )
    return nested(SERVER, *_place(rule.key), *how)


def _place(key: Any) -> tuple[bytes, ...]:
    return (
        attribute(1, struct.pack("=H", family_of(key[1]).number)),
        attribute(2, struct.pack("=H", key[0])),
        attribute(3, _sixteen(key[1])),
        attribute(4, struct.pack(">H", key[2])),
    )


def _sixteen(address: str) -> bytes:
    return family_of(address).packed(address).ljust(IPV6.width, b"\0")


def _destination(key: Target, weight: int) -> bytes:
    return nested(
        DESTINATION,
        attribute(1, _sixteen(key[3])),
        attribute(2, struct.pack(">H", key[4])),
        attribute(3, bytes(4)),
        attribute(4, struct.pack("=I", weight)),
        attribute(5, bytes(4)),
        attribute(6, bytes(4)),
        attribute(11, struct.pack("=H", family_of(key[3]).number)),
    )


def read_server(body: bytes) -> tuple[Place, Value] | None:
    """Return place and value of a virtual server; None for one that is not of an address (but of a mark)."""
    parts = dict(attributes(dict(attributes(body[_HEAD.size :]))[SERVER]))
    family = {each.number: each for each in (IPV4, IPV6)}.get(struct.unpack("=H", parts[1])[0])
    if family is None or not {2, 3, 4} <= parts.keys():
        return None
    address = family.text(parts[3][: family.width])
    place = (struct.unpack("=H", parts[2])[0], address, struct.unpack(">H", parts[4])[0])
    flags = struct.unpack_from("=I", parts[7])[0]
    sticky_s = struct.unpack("=I", parts[8])[0] if flags & PERSISTENT else 0
    return place, (parts[6].rstrip(b"\0").decode(), sticky_s)
