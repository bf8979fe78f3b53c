"""Sockets at and to addresses of either family."""

from __future__ import annotations

import socket

SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # a watch sends nothing for minutes; an end that vanished without a word is noticed after a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of sockets that listen at a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listening(host: str, port: int, backlog: int = 128) -> socket.socket:
    """Return a socket that listens, and whose connections send what they are given at once. Raises OSError.

    asyncio has only those do so that name their protocol, and ``create_server`` names none. The first bytes of a server
    are TLS tickets; an answer behind them then waits for the client's delayed acknowledgement, which takes 40 ms.
    """
    made = socket.create_server((host, port), family=family_of(host), backlog=backlog)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted inherits it
    return made


def way_out(host: str, port: int) -> str:
    """Return this machine's own address on the way to another; nothing is sent. Raises OSError."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
