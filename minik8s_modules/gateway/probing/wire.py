"""What a network probe sends, and what its outcome is called. Pure.

The program of the pause container (roles/images/files/pause.c) only moves bytes: requests are made here, and its causes
become kubelet's messages here. Sources: pkg/probe/http/request.go, pkg/probe/grpc/grpc.go, RFC 9113 (frames), RFC 7541
(a header as a literal that is not indexed), grpc/health/v1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from minik8s_modules.base.places import place
from minik8s_modules.gateway.probing.checks import Check, Result, State

_AGENT, _ACCEPT = "kube-probe/1.36", "*/*"
_STATES: dict[str, State] = {"u": "unknown", "s": "success", "f": "failure"}
_SERVING = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_HEALTH = "/grpc.health.v1.Health/Check"
_FIELDS = 5
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_HEADERS, _END_STREAM = 4, 1
_HTTP_OK, _HTTP_BAD = 200, 400


class Cause(NamedTuple):
    """How one run of a network probe ended: the word and the number of pause.c."""

    word: str
    number: int = 0

    def good(self) -> bool:
        """Return whether the probe succeeded."""
        if self.word == "http":
            return _HTTP_OK <= self.number < _HTTP_BAD
        return self.word == "ok" or (self.word == "grpc" and self.number == 1)


_WORDS = frozenset({"ok", "http", "grpc", "closed", "malformed", "errno", "timeout"})
_LEAST, _MOST = -1, 4095
_LONGEST_STREAK = 0x7FFFFFFF  # an int of C


def cause_of(word: Any, number: Any) -> Cause:
    """Return the cause that another program tells; ``malformed`` where it is none."""
    known = word in _WORDS and type(number) is int and _LEAST <= number <= _MOST
    return Cause(word, number) if known else Cause("malformed")


def request_of(check: Check) -> bytes:
    """Return the bytes a network check sends after connecting."""
    if check.kind == "http":
        return http_request(check.action)
    return grpc_request(check.action) if check.kind == "grpc" else b""


def http_request(action: Any) -> bytes:
    """Return a GET as kubelet sends it; headers given replace the usual ones, an empty Accept sends none."""
    given = [(name, value) for name, value in action["headers"] if not {"\r", "\n"} & set(name + value)]
    names = {name.lower() for name, _ in given}
    usual = [("Host", place(action["host"], action["port"])), ("User-Agent", _AGENT), ("Accept", _ACCEPT)]
    headers = [(name, value) for name, value in usual if name.lower() not in names]
    headers += [(name, value) for name, value in given if (name.lower(), value) != ("accept", "")]
    path = action["path"] if action["path"].startswith("/") else "/" + action["path"]
    target = "".join(char if "!" <= char <= "~" else _escaped(char) for char in path)
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def grpc_request(action: Any) -> bytes:
    """Return a whole HTTP/2 conversation's client side: preface, settings, one call of the health service."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _HEALTH,
        ":authority": place(action["host"], action["port"]),
        "content-type": "application/grpc",
        "user-agent": _AGENT,
        "te": "trailers",
    }
    service = action["service"].encode()
    message = b"\x0a" + _varint(len(service)) + service if service else b""
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return b"".join(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, 1, b"".join(_literal(*header) for header in headers.items())),
            _frame(_DATA, _END_STREAM, 1, body),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: str, value: str) -> bytes:
    return b"\0" + b"".join(_prefixed(text.encode()) for text in (name, value))


def _prefixed(text: bytes) -> bytes:
    """Return a string behind its length, an integer with a prefix of 7 bits."""
    limit = 127
    if len(text) < limit:
        return bytes((len(text),)) + text
    return bytes((limit,)) + _varint(len(text) - limit) + text


def _varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def message_of(check: Check, cause: Cause) -> str:
    """Return kubelet's words for how a network probe failed, "" when it did not."""
    if cause.good():
        return ""
    where = place(check.action["host"], check.action["port"])
    if cause.word == "http":
        return f"HTTP probe failed with statuscode: {cause.number}"
    if check.kind == "http":
        return f'Get "{check.action["scheme"]}://{where}{check.action["path"]}": {_message(check, cause, where)}'
    if check.kind == "grpc":
        return _grpc_message(check, cause, where)
    return _message(check, cause, where)


def _message(check: Check, cause: Cause, where: str) -> str:
    match cause.word:
        case "errno":
            return f"dial tcp {where}: connect: {os.strerror(cause.number).lower()}"
        case "timeout" if check.kind == "http":
            return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        case "timeout":
            return f"dial tcp {where}: i/o timeout"
        case "closed":
            return "EOF"
        case _:
            return "malformed HTTP response"


def _grpc_message(check: Check, cause: Cause, where: str) -> str:
    if cause.word == "grpc" and cause.number in _SERVING:
        return f'service unhealthy (responded with "{_SERVING[cause.number]}")'
    if cause.word == "grpc":
        return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
    if cause.word in {"timeout", "errno"}:
        why = "context deadline exceeded" if cause.word == "timeout" else _message(check, cause, where)
        return f'timeout: failed to connect service "{where}" within {check.timeout_s:g}s: {why}'
    return f"error: health rpc failed: {_message(check, cause, where)}"


def table_of(checks: Iterable[tuple[Check, float]], generation: str) -> bytes:
    """Return the lines that give the pause program its table; each check comes with its delay in seconds."""
    lines = [_line(check, delay_s) for check, delay_s in checks]
    return ("\n".join([*lines, f"= {generation}"]) + "\n").encode()


def _line(check: Check, delay_s: float) -> str:
    times = " ".join(str(round(1000 * value)) for value in (delay_s, check.period_s, check.timeout_s))
    where = f"{check.action['host']} {check.action['port']}"
    payload = request_of(check).hex() or "-"
    return f"+ {check.id} {check.kind} {where} {times} {check.success} {check.failure} {payload}"


def read_states(line: str, checks: dict[str, Check]) -> tuple[str, dict[str, Result]]:
    """Return the generation and the results that a line of the pause program tells, of known checks only.

    Raises:
        ValueError: it is no such line.
    """
    mark, generation, *words = line.split()
    if mark != "!":
        raise ValueError(f"no state: {line[:80]!r}")
    found = {}
    for word in words:
        name, state, streak, cause, number = word.rsplit(":", _FIELDS - 1)
        if name in checks:
            ended = cause_of(cause, int(number))
            ran = int(streak)
            if not 0 <= ran <= _LONGEST_STREAK:
                raise ValueError(f"no streak: {streak[:80]}")
            good = ended.good()
            message = message_of(checks[name], ended) if ran and not good else ""
            found[name] = Result(_STATES[state], ran if good else -ran, message)
    return generation, found
