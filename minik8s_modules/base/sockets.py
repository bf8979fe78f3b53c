"""Sockets at and to addresses of either family."""

from __future__ import annotations

import socket


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of sockets that listen at a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def way_out(host: str, port: int) -> str:
    """Return this machine's own address on the way to another; nothing is sent. Raises OSError."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
