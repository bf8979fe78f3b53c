"""Gives the guest its address: a DHCP server for one client, on the guest's bridge alone (RFC 2131).

It needs no rights: the pod lets everyone bind low ports (``net.ipv4.ip_unprivileged_port_start``), and the answers are
broadcast, so nothing has to know the guest's hardware address before it has one. A client of another address than the
declared one gets none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from minik8s_virtual_machines.launcher.network import ADDRESS, BRIDGE, GATEWAY, LENGTH

_COOKIE = b"\x63\x82\x53\x63"
_DISCOVER, _OFFER, _REQUEST, _ACK, _NAK, _INFORM = 1, 2, 3, 5, 6, 8
_TYPE, _REQUESTED, _SERVER = 53, 50, 54
_FOREVER = 0xFFFFFFFF
_OPTIONS_AT = 240


class Lease(NamedTuple):
    """What the guest is told."""

    mac: str
    hostname: str
    mtu: int
    servers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()


def lease_of(mac: str, hostname: str, mtu: int, resolv_conf: str) -> Lease:
    """Return the lease, with the names' servers of the pod."""
    lines = [line.split() for line in resolv_conf.splitlines() if line.strip()]
    servers = tuple(line[1] for line in lines if line[0] == "nameserver" and len(line) > 1 and ":" not in line[1])
    search = tuple(word for line in lines if line[0] == "search" for word in line[1:])
    return Lease(mac, hostname, mtu, servers, search)


def answer(request: bytes, lease: Lease) -> bytes | None:
    """Return the answer to a client's datagram, None where it gets none. Pure."""
    if len(request) < _OPTIONS_AT or request[0] != 1 or request[236:240] != _COOKIE:
        return None
    if request[28:34] != bytes.fromhex(lease.mac.replace(":", "")):
        return None
    options = _options(request[_OPTIONS_AT:])
    kind = {_DISCOVER: _OFFER, _REQUEST: _ACK, _INFORM: _ACK}.get(options.get(_TYPE, b"\0")[0])
    if kind is None or options.get(_SERVER, _packed(GATEWAY)) != _packed(GATEWAY):
        return None
    wants = options.get(_REQUESTED, request[12:16])
    if kind == _ACK and wants not in {_packed(ADDRESS), bytes(4)}:
        kind = _NAK
    yours = bytes(4) if kind == _NAK else _packed(ADDRESS)
    head = struct.pack(
        "!BBBB4sHH4s4s4s4s", 2, 1, 6, 0, request[4:8], 0, 0x8000, request[12:16], yours, bytes(4), bytes(4)
    )
    given = {_TYPE: bytes((kind,)), _SERVER: _packed(GATEWAY)} | ({} if kind == _NAK else _given(lease))
    return head + request[28:44] + bytes(192) + _COOKIE + b"".join(_option(*each) for each in given.items()) + b"\xff"


def _given(lease: Lease) -> dict[int, bytes]:
    found = {
        51: struct.pack("!I", _FOREVER),
        1: struct.pack("!I", _FOREVER << (32 - LENGTH) & _FOREVER),
        3: _packed(GATEWAY),
        6: b"".join(_packed(server) for server in lease.servers[:3]),
        12: lease.hostname.encode()[:63],
        15: (lease.search[0] if lease.search else "").encode()[:255],
        26: struct.pack("!H", lease.mtu),
        119: _search(lease.search),
    }
    return {number: value for number, value in found.items() if value}


def _search(names: tuple[str, ...]) -> bytes:
    """Return RFC 3397's list of search domains, as many as one option holds."""
    found = b""
    for name in names:
        labels = [label.encode() for label in name.strip(".").split(".")]
        encoded = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
        if len(found) + len(encoded) <= 255:  # noqa: PLR2004 - an option's length is a byte
            found += encoded
    return found


def _packed(address: str) -> bytes:
    return socket.inet_aton(address)


def _option(number: int, value: bytes) -> bytes:
    return bytes((number, len(value))) + value


def _options(data: bytes) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 1 < len(data) and data[at] != 255:  # noqa: PLR2004 - the end
        if data[at] == 0:
            at += 1
            continue
        value = data[at + 2 : at + 2 + data[at + 1]]
        if value:
            found[data[at]] = value
        at += 2 + data[at + 1]
    return found


class _Server(asyncio.DatagramProtocol):
    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport)  # noqa: S101 - it serves datagrams
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        del addr
        found = answer(data, self._lease)
        if found is not None and self._transport is not None:
            self._transport.sendto(found, ("255.255.255.255", 68))


async def serve(lease: Lease) -> None:
    """Answer for ever, from a socket on the guest's bridge."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, BRIDGE.encode())
        made.bind(("", 67))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: _Server(lease), sock=made)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def resolver() -> str:
    """Return the pod's resolv.conf."""
    path = Path("/etc/resolv.conf")
    return path.read_text(encoding="utf-8") if path.exists() else ""
