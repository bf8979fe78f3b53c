"""CoreDNS as the role builds it, and questions to it as a resolver asks them; no library of ours in between."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BUILD = Path(__file__).resolve().parents[3] / "roles" / "coredns" / "files" / "build.py"
TYPES = {"A": 1, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33}
CODES = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}
NAMES = {number: name for name, number in TYPES.items()}


def coredns() -> str:
    """Return the program; builds it the first time (a minute)."""
    done = subprocess.run([sys.executable, str(BUILD)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def running(corefile: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run CoreDNS; like a service manager, it starts it again while it cannot start yet."""
    program = coredns()
    with log.open("ab") as out:
        script = (
            f'while ! [ -e {corefile} ]; do sleep 0.1; done; while :; do "{program}" -conf {corefile}; sleep 0.3; done'
        )
        process = subprocess.Popen(["sh", "-c", script], stdout=out, stderr=out, start_new_session=True)
        try:
            yield process
        finally:
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
            process.wait()


def ask(server: tuple[str, int], name: str, kind: str = "A", timeout_s: float = 10) -> tuple[str, list[str]]:
    """Return the code and the answers, each as text; ("TIMEOUT", []) for silence."""
    number = secrets.randbelow(1 << 16)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split("."))
    question = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", TYPES[kind], 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout_s)
        try:
            client.sendto(question, server)
            answer = client.recv(4096)
        except OSError:
            return "TIMEOUT", []
    return _read(answer)


def timed(server: tuple[str, int], name: str) -> float:
    """Return how long an answer took, in seconds."""
    begun = time.perf_counter()
    ask(server, name)
    return time.perf_counter() - begun


def _read(data: bytes) -> tuple[str, list[str]]:
    _, flags, questions, answers, _, _ = struct.unpack_from(">HHHHHH", data)
    at = 12
    for _ in range(questions):
        _, at = _name(data, at)
        at += 4
    found = []
    for _ in range(answers):
        _, at = _name(data, at)
        kind, _, _, length = struct.unpack_from(">HHIH", data, at)
        at += 10
        found.append(_value(data, at, NAMES.get(kind, str(kind)), length))
        at += length
    return CODES.get(flags & 15, str(flags & 15)), sorted(found)


def _value(data: bytes, at: int, kind: str, length: int) -> str:
    if kind == "A":
        return socket.inet_ntoa(data[at : at + length])
    if kind == "AAAA":
        return socket.inet_ntop(socket.AF_INET6, data[at : at + length])
    if kind == "SRV":
        port = struct.unpack_from(">HHH", data, at)[2]
        return f"{port} {_name(data, at + 6)[0]}"
    return _name(data, at)[0]


def _name(data: bytes, at: int) -> tuple[str, int]:
    parts: list[str] = []
    end = 0
    while data[at]:
        if data[at] & 0xC0:
            end = end or at + 2
            at = struct.unpack_from(">H", data, at)[0] & 0x3FFF
            continue
        parts.append(data[at + 1 : at + 1 + data[at]].decode())
        at += data[at] + 1
    return ".".join(parts), end or at + 1
