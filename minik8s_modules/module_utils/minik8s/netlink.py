"""Links, addresses and routes over rtnetlink, with the standard library alone.

The boot oneshot must run without pyroute2, and importing pyroute2 costs 77 to 253 ms while a pod needs five messages
(1 ms). Another network namespace is reached by a socket that was opened inside: the calling thread enters
it, opens the socket and returns; the socket stays there. Message layouts: linux/rtnetlink.h, linux/if_link.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, DELROUTE, GETROUTE = 24, 25, 26
REQUEST, ACK, DUMP, REPLACE, EXCLUSIVE, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
ERROR, DONE = 2, 3
IFLA_IFNAME, IFLA_MTU, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_FD, IFLA_IFALIAS = 3, 4, 10, 18, 28, 20
INFO_KIND, INFO_DATA, VETH_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
IFF_UP = 1
MAIN_TABLE, STATIC_PROTOCOL, UNIVERSE, UNICAST = 254, 4, 0, 1
CLONE_NEWNET = 0x40000000
ATTRIBUTE_HEADER = 4
HEADER, LINK_HEADER, ADDRESS_HEADER, ROUTE_HEADER = "=IHHII", "=BxHiII", "=BBBBI", "=BBBBBBBBI"


class Link(NamedTuple):
    """A network device."""

    ifindex: int
    name: str
    kind: str
    master: int
    up: bool
    mtu: int
    alias: str


class Address(NamedTuple):
    """An IPv4 address of a device."""

    ifindex: int
    ip: str
    prefix_length: int


class Route(NamedTuple):
    """An IPv4 route of the main table; ``destination`` is "default" or CIDR, ``gateway`` "" when on the link."""

    destination: str
    gateway: str
    ifindex: int


def _attribute(kind: int, value: bytes) -> bytes:
    size = len(value) + 4
    return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _attributes(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < ATTRIBUTE_HEADER:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + size]
        at += (size + 3) & ~3
    return found


def _string(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _uint(value: bytes | None) -> int:
    return int(struct.unpack("=I", value)[0]) if value else 0


def _enter(descriptor: int) -> None:
    import ctypes  # noqa: PLC0415  (6 ms; only where a namespace is entered. os.setns came with Python 3.12)

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot enter network namespace: {os.strerror(code)}")


def _socket_in(netns_path: str) -> socket.socket:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        finally:
            _enter(home)
    finally:
        os.close(home)


def netns_of(pid: int) -> str:
    """Return the path of a process's network namespace."""
    return f"/proc/{pid}/ns/net"


class Netlink:
    """One rtnetlink socket, in this namespace or in the one at ``netns_path``; not to be shared by threads."""

    def __init__(self, netns_path: str = "") -> None:
        opened = _socket_in(netns_path) if netns_path else socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket, self._sequence = opened, 0
        self._socket.settimeout(5)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def __enter__(self) -> Netlink:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """Send one message and yield the bodies of the answer; the kernel's refusal is an OSError."""
        self._sequence += 1
        head = struct.pack(HEADER, len(body) + 16, kind, REQUEST | flags, self._sequence, 0)
        self._socket.send(head + body)
        while True:
            data, at = self._socket.recv(1 << 18), 0
            while at + 16 <= len(data):
                size, answer, _, sequence, _ = struct.unpack_from(HEADER, data, at)
                part = data[at + 16 : at + size]
                at += (size + 3) & ~3
                if sequence != self._sequence:
                    continue
                if answer == ERROR:
                    code = -struct.unpack_from("=i", part)[0]
                    if code:
                        raise OSError(code, f"netlink request {kind}: {os.strerror(code)}")
                    return
                if answer == DONE:
                    return
                yield part

    def _do(self, kind: int, flags: int, body: bytes) -> None:
        for _ in self._ask(kind, flags | ACK, body):
            pass

    def links(self) -> dict[str, Link]:
        """Return the devices of the namespace by name."""
        found = {}
        for part in self._ask(GETLINK, DUMP, struct.pack(LINK_HEADER, 0, 0, 0, 0, 0)):
            _, _, index, flags, _ = struct.unpack_from(LINK_HEADER, part)
            about = _attributes(part[16:])
            kind = _string(_attributes(about.get(IFLA_LINKINFO, b"")).get(INFO_KIND, b""))
            name, alias = _string(about[IFLA_IFNAME]), _string(about.get(IFLA_IFALIAS, b""))
            master, mtu = _uint(about.get(IFLA_MASTER)), _uint(about.get(IFLA_MTU))
            found[name] = Link(index, name, kind, master, bool(flags & IFF_UP), mtu, alias)
        return found

    def addresses(self) -> list[Address]:
        """Return the IPv4 addresses of the namespace."""
        found = []
        for part in self._ask(GETADDR, DUMP, struct.pack(ADDRESS_HEADER, socket.AF_INET, 0, 0, 0, 0)):
            _, prefix_length, _, _, index = struct.unpack_from(ADDRESS_HEADER, part)
            about = _attributes(part[8:])
            ip = about.get(IFA_LOCAL) or about.get(IFA_ADDRESS)
            if ip:
                found.append(Address(index, socket.inet_ntoa(ip), prefix_length))
        return found

    def routes(self) -> list[Route]:
        """Return the IPv4 unicast routes of the main table."""
        found = []
        for part in self._ask(GETROUTE, DUMP, struct.pack(ROUTE_HEADER, socket.AF_INET, *(0,) * 8)):
            head = struct.unpack_from(ROUTE_HEADER, part)
            about = _attributes(part[12:])
            if head[4] != MAIN_TABLE or head[7] != UNICAST:
                continue
            to = f"{socket.inet_ntoa(about[RTA_DST])}/{head[1]}" if RTA_DST in about else "default"
            via = socket.inet_ntoa(about[RTA_GATEWAY]) if RTA_GATEWAY in about else ""
            found.append(Route(to, via, _uint(about.get(RTA_OIF))))
        return found

    def add_bridge(self, name: str, mtu: int) -> None:
        """Create a bridge, up."""
        body = struct.pack(LINK_HEADER, 0, 0, 0, IFF_UP, IFF_UP) + _text(IFLA_IFNAME, name)
        body += _number(IFLA_MTU, mtu) + _attribute(IFLA_LINKINFO, _text(INFO_KIND, "bridge"))
        self._do(NEWLINK, CREATE | EXCLUSIVE, body)

    def add_veth(self, name: str, master: int, mtu: int, peer: str, netns_path: str) -> None:
        """Create a veth pair in one message: ``name`` here, up, in bridge ``master``; ``peer`` over there, down.

        There is no moment at which half of it exists. The peer cannot be up yet: a veth opens with a partner only.
        """
        up = struct.pack(LINK_HEADER, 0, 0, 0, IFF_UP, IFF_UP)
        there = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            other = (
                struct.pack(LINK_HEADER, 0, 0, 0, 0, 0)
                + _text(IFLA_IFNAME, peer)
                + _number(IFLA_MTU, mtu)
                + _number(IFLA_NET_NS_FD, there)
            )
            info = _text(INFO_KIND, "veth") + _attribute(INFO_DATA, _attribute(VETH_PEER, other))
            body = up + _text(IFLA_IFNAME, name) + _number(IFLA_MTU, mtu) + _number(IFLA_MASTER, master)
            self._do(NEWLINK, CREATE | EXCLUSIVE, body + _attribute(IFLA_LINKINFO, info))
        finally:
            os.close(there)

    def set_link(
        self, index: int, *, up: bool = False, mtu: int = 0, master: int | None = None, alias: str = ""
    ) -> None:
        """Change a device; what is left out stays as it is."""
        flag = IFF_UP if up else 0
        body = struct.pack(LINK_HEADER, 0, 0, index, flag, flag)
        body += _number(IFLA_MTU, mtu) if mtu else b""
        body += _number(IFLA_MASTER, master) if master is not None else b""
        body += _attribute(IFLA_IFALIAS, alias.encode()) if alias else b""
        self._do(NEWLINK, 0, body)

    def delete_link(self, index: int) -> None:
        """Delete a device (of a veth pair both ends go)."""
        self._do(DELLINK, 0, struct.pack(LINK_HEADER, 0, 0, index, 0, 0))

    def add_address(self, address: Address) -> None:
        """Give a device an address; one it has already is fine."""
        self._do(NEWADDR, CREATE | REPLACE, _address_body(address))

    def delete_address(self, address: Address) -> None:
        """Take an address from a device."""
        self._do(DELADDR, 0, _address_body(address))

    def set_default_route(self, gateway: str, index: int) -> None:
        """Make ``gateway`` the only default route."""
        head = struct.pack(ROUTE_HEADER, socket.AF_INET, 0, 0, 0, MAIN_TABLE, STATIC_PROTOCOL, UNIVERSE, UNICAST, 0)
        body = head + _attribute(RTA_GATEWAY, socket.inet_aton(gateway)) + _number(RTA_OIF, index)
        self._do(NEWROUTE, CREATE | REPLACE, body)


def _address_body(address: Address) -> bytes:
    ip = socket.inet_aton(address.ip)
    head = struct.pack(ADDRESS_HEADER, socket.AF_INET, address.prefix_length, 0, 0, address.ifindex)
    return head + _attribute(IFA_LOCAL, ip) + _attribute(IFA_ADDRESS, ip)
