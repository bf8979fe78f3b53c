"""Addresses that this node answers for: on the device that has its own address, with a label that says they are ours.

The kernel then answers ARP requests by itself, and nothing of ours stays. When an address comes here, everybody in the
segment is told at once (gratuitous ARP, RFC 5227 and 826: a request and an answer with ourselves in it), since their
caches still lead to the node that had it before. Only what carries our label is ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from .services_host import ADDRESS, DELETE_ADDRESS, GET_ADDRESS, NEW_ADDRESS
from .services_plan import Rule
from .services_wire import ACK, CREATE, EXCLUSIVE, Wire, attribute, attributes, error_of, message, next_sequence, text

UPLINK = "uplink"
"""The table of rules that are such addresses: the key is the address, the value its device."""
ANNOUNCED = "announced"
"""The set of our table that has them: what comes there for no service is refused."""
LABEL = "mk8s-announced"
_IFA_ADDRESS, _IFA_LOCAL, _IFA_LABEL, _WORLD = 1, 2, 3, 0
_ARP, _REQUEST, _ANSWER = 0x0806, 1, 2
_HARDWARE_BYTES = 6
_TOLD = 2
"""How often the segment is told: one frame may be lost."""


class Changes(NamedTuple):
    """What one write does to the device."""

    delete: dict[str, str]
    add: list[str]


def changes_of(delete: Iterable[Rule], add: Iterable[Rule]) -> Changes:
    """Return the part of a write that is about the device."""
    gone = {str(rule.key): str(rule.value) for rule in delete if rule.table == UPLINK}
    return Changes(gone, [str(rule.key) for rule in add if rule.table == UPLINK])


class Uplink:
    """The device with the node's own address; one pass, one thread."""

    def __init__(self, wire: Wire, node_ip: str) -> None:
        self._wire, self._node_ip = wire, node_ip
        self._devices: dict[int, str] = {}
        self._own: str | None = None

    def addresses(self) -> dict[str, str]:
        """Return the addresses with our label, each with its device."""
        return {address: self._name(number) for number, address, label in self._all() if label == LABEL}

    def device(self) -> str:
        """Return the device that has the node's own address, "" for none."""
        if self._own is None:
            found = (self._name(number) for number, address, _ in self._all() if address == self._node_ip)
            self._own = next(found, "")
        return self._own

    def leave(self, changes: Changes) -> None:
        """Take addresses away from the devices they are on.

        Raises:
            OSError: the kernel refused.
        """
        for address, device in changes.delete.items():
            self._do(DELETE_ADDRESS, address, device, (0, errno.EADDRNOTAVAIL, errno.ENODEV))

    def take(self, changes: Changes) -> None:
        """Bring addresses here, and tell everybody.

        Raises:
            KeyFault: no device has the node's own address, or somebody else's address is in the way.
            OSError: the kernel refused.
        """
        device = self.device() if changes.add else ""
        if changes.add and not device:
            raise KeyFault("NetworkNotReady", f"no device has the node's address {self._node_ip or '(unknown)'}")
        for address in changes.add:
            code = self._do(NEW_ADDRESS, address, device, (0, errno.EEXIST))
            if code == errno.EEXIST and self.addresses().get(address) != device:
                raise KeyFault("NetworkNotReady", f"{address} is on {device} already, and not ours; remove it")
            tell(device, address)

    def _all(self) -> list[tuple[int, str, str]]:
        found = []
        for answer in self._wire.dump(GET_ADDRESS, ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0)):
            parts = dict(attributes(answer.body[ADDRESS.size :]))
            if _IFA_LOCAL in parts:
                label = parts.get(_IFA_LABEL, b"").rstrip(b"\0").decode("utf-8", "replace")
                found.append((ADDRESS.unpack_from(answer.body)[4], socket.inet_ntoa(parts[_IFA_LOCAL]), label))
        return found

    def _name(self, number: int) -> str:
        if number not in self._devices:
            try:
                self._devices[number] = socket.if_indextoname(number)
            except OSError:
                return f"device {number}"
        return self._devices[number]

    def _do(self, kind: int, address: str, device: str, fine: tuple[int, ...]) -> int:
        try:
            number = socket.if_nametoindex(device)
        except OSError:
            return errno.ENODEV
        sequence, local = next_sequence(), socket.inet_aton(address)
        body = ADDRESS.pack(socket.AF_INET, 32, 0, _WORLD, number)
        body += attribute(_IFA_LOCAL, local) + attribute(_IFA_ADDRESS, local) + text(_IFA_LABEL, LABEL)
        flags = ACK | (CREATE | EXCLUSIVE if kind == NEW_ADDRESS else 0)
        code = error_of(self._wire.ask_each([message(kind, flags, body, sequence)], [sequence])[sequence])
        if code not in fine:
            raise OSError(code, f"address {address} on {device}: {os.strerror(code)}")
        return code


def tell(device: str, address: str) -> None:
    """Tell the segment that an address is here; a device without hardware addresses has nobody to tell."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((device, 0))
        hardware = sender.getsockname()[4]
        if len(hardware) != _HARDWARE_BYTES:
            return
        for _ in range(_TOLD):
            for operation in (_REQUEST, _ANSWER):
                sender.send(frame(hardware, address, operation))


def frame(hardware: bytes, address: str, operation: int) -> bytes:
    """Return an Ethernet frame to everybody in which a device says that an address is its own."""
    everybody, ip = b"\xff" * 6, socket.inet_aton(address)
    head = everybody + hardware + struct.pack(">H", _ARP)
    target = everybody if operation == _ANSWER else bytes(6)
    return head + struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation) + hardware + ip + target + ip


def here(entry: Mapping[str, Any], node: str) -> list[str]:
    """Return the addresses of an entry that a node answers for."""
    return [address for address, name in (entry.get("announced") or {}).items() if name == node]


def rules_here(entry: Mapping[str, Any], node: str, uplink: Uplink) -> list[Rule]:
    """Return what makes a node answer for its addresses of an entry."""
    return [
        rule
        for address in here(entry, node)
        for rule in (Rule(ANNOUNCED, socket.inet_aton(address), b""), Rule(UPLINK, address, uplink.device()))
    ]


def shown(rule: Rule) -> tuple[str, str]:
    """Return one of these rules as (what, text) for people."""
    if rule.table == UPLINK:
        return str(rule.key), f"on {rule.value}"
    return socket.inet_ntoa(rule.key), "refuses what no service takes"


def rejecting_here() -> list[str]:
    """Return the rules for what comes to an announced address and was not led to a service."""
    return [
        f"ip daddr @{ANNOUNCED} ct state new meta l4proto tcp reject with tcp reset",
        f"ip daddr @{ANNOUNCED} ct state new meta l4proto != icmp reject with icmp type port-unreachable",
    ]
