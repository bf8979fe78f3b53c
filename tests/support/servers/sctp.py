"""One exchange of SCTP by raw sockets, where the kernel has none of its own: INIT, and INIT ACK with a name (RFC 9260).

``serve NAME PORT ADDRESS`` answers at an address; ``ask ADDRESS PORT SECONDS`` prints who answered and whom it saw, or
``silent -``. The checksum is CRC32c: a packet with a wrong one is nothing that a NAT would follow.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

INIT, INIT_ACK, COOKIE = 1, 2, 7
HEADER = struct.Struct(">HHI4s")
CHUNK = struct.Struct(">BBHIIHHI")
POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes) -> bytes:
    """Return the checksum as it stands in a packet."""
    value = 0xFFFFFFFF
    for each in data:
        value ^= each
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def packet(ports: tuple[int, int], tag: int, kind: int, own_tag: int, told: bytes = b"") -> bytes:
    """Return a packet with one chunk, which has ``told`` as its cookie."""
    cookie = struct.pack(">HH", COOKIE, 4 + len(told)) + told + bytes(-len(told) % 4) if told else b""
    body = CHUNK.pack(kind, 0, CHUNK.size + len(cookie), own_tag, 65536, 1, 1, 1) + cookie
    return HEADER.pack(*ports, tag, crc32c(HEADER.pack(*ports, tag, bytes(4)) + body)) + body


def read(data: bytes, family: int) -> tuple[int, int, int, int, bytes]:
    """Return ports, kind, tag and cookie of a packet; raw sockets of IPv4 begin with the header of IP."""
    data = data[(data[0] & 15) * 4 :] if family == socket.AF_INET else data
    source, target, _, _ = HEADER.unpack_from(data)
    kind, _, _, tag, *_ = CHUNK.unpack_from(data, HEADER.size)
    return source, target, kind, tag, data[HEADER.size + CHUNK.size + 4 :].rstrip(b"\0")


def opened(address: str) -> tuple[socket.socket, int]:
    """Return a raw socket of the family of an address, and that."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP), family


def serve(name: str, port: int, address: str) -> None:
    """Answer each INIT at an address and a port."""
    raw, family = opened(address)
    raw.bind((address, 0))
    print("ready", flush=True)
    while True:
        data, client = raw.recvfrom(2048)
        source, target, kind, tag, _ = read(data, family)
        if (kind, target) == (INIT, port):
            raw.sendto(packet((port, source), tag, INIT_ACK, 7, f"{name} {client[0]}".encode()), (client[0], 0))


def ask(address: str, port: int, seconds: float) -> str:
    """Return who answered, and whom it saw."""
    raw, family = opened(address)
    own = int.from_bytes(os.urandom(2), "big") | 0x8000
    raw.settimeout(seconds)
    raw.sendto(packet((own, port), 0, INIT, int.from_bytes(os.urandom(4), "big") | 1), (address, 0))
    try:
        while True:
            data, server = raw.recvfrom(2048)
            source, target, kind, _, told = read(data, family)
            if (kind, source, target) == (INIT_ACK, port, own) and server[0] == address:
                return told.decode()
    except TimeoutError:
        return "silent -"


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    print(ask(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
