"""Addresses that this node answers for: on the device that has its own address, with a mark that says they are ours.

The kernel then answers ARP requests and neighbour solicitations by itself, and nothing of ours stays. When an address
comes here, everybody in the segment is told at once, since their caches still lead to the node that had it before: by
gratuitous ARP (RFC 5227 and 826: a request and an answer with ourselves in it), by an unsolicited neighbour
advertisement that overrides (RFC 4861, 7.2.6). The mark of IPv4 is a label; addresses of IPv6 have none, but, since
Linux 5.18, the number of a protocol. These are deprecated at once, so that the node itself never sends from one, and
nobody asks whether another has them: the node that had one may be there still. Only what carries our mark is removed.
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
from ..network.wire import ACK, CREATE, EXCLUSIVE, Wire, attribute, attributes, error_of, message, next_sequence, text
from .families import IPV4, IPV6, Family, as_the_kernel_says, family_of
from .services_host import ADDRESS, DELETE_ADDRESS, GET_ADDRESS, NEW_ADDRESS
from .services_plan import Rule

UPLINK = "uplink"
"""The table of rules that are such addresses: the key is the address, the value its device."""
ANNOUNCED = "announced"
"""The set of our table that has them: what comes there for no service is refused."""
LABEL = "mk8s-announced"
PROTOCOL = 77
"""What marks addresses of IPv6, as routes of ours."""
_IFA_ADDRESS, _IFA_LOCAL, _IFA_LABEL, _WORLD = 1, 2, 3, 0
_IFA_CACHEINFO, _IFA_FLAGS, _IFA_PROTO = 6, 8, 11
_TEMPORARY = 0x01
_NO_DETECTION, _NO_PREFIX_ROUTE, _FOREVER = 0x02, 0x200, 0xFFFFFFFF
_ARP, _REQUEST, _ANSWER = 0x0806, 1, 2
_IPV6, _ICMPV6, _ADVERTISEMENT, _HOPS = 0x86DD, 58, 136, 255
_ROUTER_OVERRIDES = 0xA0000000  # nodes forward, and say so in what they answer
_ALL_NODES = "ff02::1"
_HARDWARE_BYTES = 6
_WORD = 0xFFFF
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
    """The device with the node's own address, as one family sees it; one pass, one thread."""

    def __init__(self, wire: Wire, node_ip: str, family: Family = IPV4) -> None:
        self._wire, self._node_ip, self._family = wire, as_the_kernel_says(node_ip), family
        self._devices: dict[int, str] = {}
        self._own: str | None = None

    def addresses(self) -> dict[str, str]:
        """Return the addresses with our mark, each with its device."""
        return {address: self._name(number) for number, address, ours in self._all(self._family) if ours}

    def own(self) -> list[str]:
        """Return the addresses that the device has itself, which others reach it by; of IPv6 none that is temporary."""
        name, found = self.device(), []
        for answer in self._wire.dump(GET_ADDRESS, ADDRESS.pack(self._family.number, 0, 0, 0, 0)) if name else []:
            kind, _, flags, scope, number = ADDRESS.unpack_from(answer.body)
            parts = dict(attributes(answer.body[ADDRESS.size :]))
            local = kind == self._family.number and scope == _WORLD and not flags & _TEMPORARY
            if local and self._name(number) == name and parts.get(_IFA_PROTO) != bytes([PROTOCOL]):
                found.append(self._family.text(parts.get(_IFA_LOCAL) or parts[_IFA_ADDRESS]))
        return sorted(found)

    def device(self) -> str:
        """Return the device that has the node's own address, "" for none."""
        if self._own is None:
            every = self._all(family_of(self._node_ip))
            found = (self._name(number) for number, address, _ in every if address == self._node_ip)
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
            if (code or self._family is IPV6) and self.addresses().get(address) != device:
                if not code:  # of which nobody would know that it is ours
                    self._do(DELETE_ADDRESS, address, device, (0,))
                    raise KeyFault("NetworkNotReady", "this kernel marks no addresses of IPv6 (Linux 5.18 does)")
                raise KeyFault("NetworkNotReady", f"{address} is on {device} already, and not ours; remove it")
            tell(device, address)

    def _all(self, family: Family) -> list[tuple[int, str, bool]]:
        """Return (device, address, whether it is ours) of a family."""
        found = []
        for answer in self._wire.dump(GET_ADDRESS, ADDRESS.pack(family.number, 0, 0, 0, 0)):
            parts = dict(attributes(answer.body[ADDRESS.size :]))
            packed = parts.get(_IFA_LOCAL) or parts.get(_IFA_ADDRESS)
            if ADDRESS.unpack_from(answer.body)[0] == family.number and packed:
                label, mark = parts.get(_IFA_LABEL, b"").rstrip(b"\0"), parts.get(_IFA_PROTO, b"")
                ours = label == LABEL.encode() if family is IPV4 else mark == bytes([PROTOCOL])
                found.append((ADDRESS.unpack_from(answer.body)[4], family.text(packed), ours))
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
        sequence, family = next_sequence(), self._family
        local = family.packed(address)
        body = ADDRESS.pack(family.number, 8 * family.width, 0, _WORLD, number)
        body += attribute(_IFA_LOCAL, local) + attribute(_IFA_ADDRESS, local)
        body += text(_IFA_LABEL, LABEL) if family is IPV4 else _MARKS
        flags = ACK | (CREATE | EXCLUSIVE if kind == NEW_ADDRESS else 0)
        code = error_of(self._wire.ask_each([message(kind, flags, body, sequence)], [sequence])[sequence])
        if code not in fine:
            raise OSError(code, f"address {address} on {device}: {os.strerror(code)}")
        return code


QUIET = attribute(_IFA_CACHEINFO, struct.pack("=IIII", 0, _FOREVER, 0, 0)) + attribute(
    _IFA_FLAGS, struct.pack("=I", _NO_DETECTION | _NO_PREFIX_ROUTE)
)
"""What keeps an address of IPv6 from being sent from, and from being asked about."""
_MARKS = QUIET + attribute(_IFA_PROTO, bytes([PROTOCOL]))


def marked() -> list[tuple[str, str]]:
    """Return all addresses with our mark on this machine, each with its length and its device."""
    with Wire(0) as wire:
        found = [(family, Uplink(wire, "", family).addresses()) for family in (IPV4, IPV6)]
    return [(f"{address}/{8 * family.width}", device) for family, known in found for address, device in known.items()]


def tell(device: str, address: str) -> None:
    """Tell the segment that an address is here; a device without hardware addresses has nobody to tell."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((device, 0))
        hardware = sender.getsockname()[4]
        if len(hardware) != _HARDWARE_BYTES:
            return
        for _ in range(_TOLD):
            if ":" in address:
                sender.send(advertisement(hardware, address))
                continue
            for operation in (_REQUEST, _ANSWER):
                sender.send(frame(hardware, address, operation))


def frame(hardware: bytes, address: str, operation: int) -> bytes:
    """Return an Ethernet frame to everybody in which a device says that an address is its own."""
    everybody, ip = b"\xff" * 6, socket.inet_aton(address)
    head = everybody + hardware + struct.pack(">H", _ARP)
    target = everybody if operation == _ANSWER else bytes(6)
    return head + struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation) + hardware + ip + target + ip


def advertisement(hardware: bytes, address: str) -> bytes:
    """Return an Ethernet frame in which a device tells all nodes that an address of IPv6 is its own."""
    own, all_nodes = IPV6.packed(address), IPV6.packed(_ALL_NODES)
    body = struct.pack(">BBHI", _ADVERTISEMENT, 0, 0, _ROUTER_OVERRIDES) + own + b"\2\1" + hardware
    checked = own + all_nodes + struct.pack(">II", len(body), _ICMPV6) + body
    body = body[:2] + struct.pack(">H", _checksum(checked)) + body[4:]
    head = struct.pack(">IHBB", 6 << 28, len(body), _ICMPV6, _HOPS) + own + all_nodes
    return b"\x33\x33" + all_nodes[12:] + hardware + struct.pack(">H", _IPV6) + head + body


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > _WORD:
        total = (total >> 16) + (total & _WORD)
    return ~total & _WORD


def here(entry: Mapping[str, Any], node: str) -> list[str]:
    """Return the addresses of an entry that a node answers for."""
    return [address for address, name in (entry.get("announced") or {}).items() if name == node]


def rules_here(entry: Mapping[str, Any], node: str, uplink: Uplink) -> list[Rule]:
    """Return what makes a node answer for its addresses of an entry."""
    return [
        rule
        for address in here(entry, node)
        for rule in (
            Rule(ANNOUNCED, family_of(address).packed(address), b""),
            Rule(UPLINK, as_the_kernel_says(address), uplink.device()),
        )
    ]


def shown(rule: Rule) -> tuple[str, str]:
    """Return one of these rules as (what, text) for people."""
    if rule.table == UPLINK:
        return str(rule.key), f"on {rule.value}"
    family = IPV6 if len(rule.key) == IPV6.width else IPV4
    return family.text(rule.key), "refuses what no service takes"


def kept(family: Family = IPV4) -> str:
    """Return the rule by which later ones (host ports) lead nothing of an announced address elsewhere."""
    return f"{family.word} daddr @{ANNOUNCED} dnat to {family.word} daddr"


def rejecting_here(family: Family = IPV4) -> list[str]:
    """Return the rules for what comes to an announced address and was not led to a service."""
    there, icmp = f"{family.word} daddr @{ANNOUNCED} ct state new meta l4proto", family.icmp
    return [
        f"{there} tcp reject with tcp reset",
        # its own questions for neighbours are answered
        f"{there} != {'ipv6-icmp' if family is IPV6 else icmp} reject with {icmp} type port-unreachable",
    ]
