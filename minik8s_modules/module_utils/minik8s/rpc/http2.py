"""gRPC over HTTP/2 (RFC 9113), one call at a time on a connection, in the thread that asks.

A call costs one ``send`` and, as a rule, one ``recv``: its headers are the same bytes each time, the answer's are only
looked at when they are not those of the last success, and nothing is handed to another thread. What the peer wants to
have acknowledged (settings, room to send) goes out with the next call, its pings with every ``PONG_CALLS``th: Go's
server measures by them how much is on its way, sends the next one at the first byte after an answer, and would so wake
the thread that waits for the call's answer a second time. grpcio has an event loop, a completion
queue and callbacks in threads of its own for this; that was most of what a write to etcd cost.

A ``Channel`` belongs to one thread at a time; only ``cut`` may be called from another one. After ``Broken`` it is of no
further use.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from . import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = struct.Struct(">HBBBL")  # length (16 and 8 bits), type, flags, stream
_MESSAGE = struct.Struct(">BL")  # gRPC's: compressed?, length
PREFIX_BYTES = _MESSAGE.size
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_HEADER_TABLE_SIZE, _ENABLE_PUSH, MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 1, 2, 3, 4
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
FRAME_BYTES = 16_384  # the most a frame may hold, where nobody says otherwise
_WINDOW = 65_535  # what may be sent at first
_ROOM = (1 << 31) - 1  # what may be sent to us
_LAST_STREAM = 1 << 30
_RECEIVE_BYTES = 65_536
PONG_CALLS = 128
UNKNOWN = 2  # gRPC's status of an answer that has none


class CallFailed(Exception):
    """The server answered with a status of gRPC other than OK."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(f"status {code}: {details}")
        self.code = code
        self.details = details


class Broken(Exception):
    """The connection failed. ``unseen``: the server cannot have acted on the call; ``late``: it took too long."""

    def __init__(self, reason: str, *, unseen: bool = False, late: bool = False) -> None:
        super().__init__(reason)
        self.unseen = unseen
        self.late = late


class Channel:
    """One connection.

    Args:
        sock: connected, with its timeout set: how long to wait for some bytes.
        authority: the server's name as HTTP has it.
        metadata: further headers of each call.
    """

    def __init__(self, sock: socket.socket, authority: str, metadata: Mapping[str, str] | None = None) -> None:
        self._sock = sock
        scheme = "https" if isinstance(sock, ssl.SSLSocket) else "http"
        self._first = ((":method", "POST"), (":scheme", scheme), (":authority", authority))
        self._rest = (("te", "trailers"), ("content-type", "application/grpc"), *(metadata or {}).items())
        self._heads: dict[str, bytes] = {}
        settings = struct.pack(">HLHLHL", _HEADER_TABLE_SIZE, 0, _ENABLE_PUSH, 0, _INITIAL_WINDOW_SIZE, _ROOM)
        self._out = PREFACE + frame(SETTINGS, 0, 0, settings) + room(0, _ROOM - _WINDOW)
        self._pongs = b""
        self._unread = b""
        self._stream = -1
        self._sendable, self._initial, self._stream_sendable = _WINDOW, _WINDOW, _WINDOW
        self._received = 0
        self._pieces: list[bytes] = []
        self._headers = b""
        self._ending = 0
        self._trailers: bytes | None = None
        self._leaving = False

    @property
    def usable(self) -> bool:
        """Whether another call may be made."""
        return not self._leaving and self._stream < _LAST_STREAM

    def call(self, method: str, message: bytes, timeout_s: float) -> bytes:
        """Return the answer to ``message``.

        Raises:
            CallFailed: the server says no.
            Broken: no answer came within ``timeout_s``, or will.
        """
        deadline_s = time.monotonic() + timeout_s
        self._ask(method, message, END_STREAM)
        while not self._ended():
            if time.monotonic() > deadline_s:
                raise Broken("the answer took too long", late=True)
            self._receive()
        return answer(self._trailers or b"", b"".join(self._pieces))

    def stream(self, method: str, message: bytes) -> Iterator[bytes]:
        """Send ``message``, leave our side open, and yield the messages that come; an empty one: no more has for now.

        When nothing comes for the socket's timeout, the server is asked for a sign of life, and has as long again.

        Raises:
            CallFailed: the server ended the stream.
            Broken: the connection ended.
        """
        self._ask(method, message, 0)
        is_told = True
        left = bytearray()  # grows in place: a message may be of megabytes, and comes in pieces of kilobytes
        while True:
            if not (is_told or left or self._has_come()):
                yield b""
            is_told = True
            self._receive_or_ping()
            for piece in self._pieces:
                left += piece
            self._pieces.clear()
            at = 0
            while len(left) - at >= _MESSAGE.size:
                compressed, size = _MESSAGE.unpack_from(left, at)
                end = at + _MESSAGE.size + size
                if compressed:
                    raise Broken(f"{method} answers with compressed messages")
                if end > len(left):
                    break
                yield bytes(memoryview(left)[at + _MESSAGE.size : end])
                at, is_told = end, False
            del left[:at]
            if self._ended():
                self._check()
                raise Broken("the server ended the stream")
            self._flush()

    def alive(self) -> bool:
        """Take in what has come since the last call; return whether another one may be made."""
        timeout_s = self._sock.gettimeout()
        self._sock.settimeout(0)
        try:
            while True:
                self._receive()
        except Broken as error:
            return error.late and self.usable
        finally:
            self._sock.settimeout(timeout_s)

    def cut(self) -> None:
        """End what runs, from any thread."""
        with contextlib.suppress(OSError):
            # not SSLSocket's own: it would take the session from under the thread that reads
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _ask(self, method: str, message: bytes, flags: int) -> None:
        self._stream += 2
        self._pieces.clear()
        self._headers, self._trailers, self._stream_sendable = b"", None, self._initial
        body = prefixed(message)
        out = self._out + frame(HEADERS, END_HEADERS, self._stream, self._heads.get(method) or self._head(method))
        self._out = b""
        if self._pongs and self._stream % (2 * PONG_CALLS) == 1:
            out, self._pongs = self._pongs + out, b""
        size = len(body)
        if size <= FRAME_BYTES and size <= self._sendable and size <= self._stream_sendable:
            self._spend(size)
            self._send(out + frame(DATA, flags, self._stream, body))
            return
        self._send(out)
        self._send_pieces(body, flags)

    def _send_pieces(self, body: bytes, flags: int) -> None:
        at = 0
        while at < len(body):
            size = min(FRAME_BYTES, self._sendable, self._stream_sendable, len(body) - at)
            if size <= 0:
                self._receive(unseen=True)
                if self._ended():  # refused before it was told
                    self._leaving = True
                    return
                continue
            self._spend(size)
            last = flags if at + size == len(body) else 0
            self._send(frame(DATA, last, self._stream, body[at : at + size]))
            at += size

    def _ended(self) -> bool:
        return self._trailers is not None

    def _check(self) -> None:
        """Raise CallFailed unless the trailers say OK."""
        _check(self._trailers or b"")

    def _spend(self, size: int) -> None:
        self._sendable -= size
        self._stream_sendable -= size

    def _head(self, method: str) -> bytes:
        made = self._heads[method] = hpack.literals((*self._first, (":path", method), *self._rest))
        return made

    def _flush(self) -> None:
        if self._out or self._pongs:
            out, self._out, self._pongs = self._out + self._pongs, b"", b""
            self._send(out)

    def _send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:  # the end of the call never left: the server cannot act on it
            raise Broken(f"sending failed: {error}", unseen=True, late=is_timeout(error)) from error

    def _receive_or_ping(self) -> None:
        try:
            self._receive()
        except Broken as error:
            if not error.late:
                raise
            self._out += frame(PING, 0, 0, bytes(8))
            self._flush()
            self._receive()

    def _has_come(self) -> bool:
        """Return whether bytes can be received without waiting."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        ready = select.poll()
        ready.register(self._sock, select.POLLIN)
        return bool(ready.poll(0))

    def _receive(self, *, unseen: bool = False) -> None:
        """Wait for bytes, and take in every whole frame."""
        try:
            chunk = self._sock.recv(_RECEIVE_BYTES)
        except OSError as error:
            late = is_timeout(error)
            text = "nothing came in time" if late else f"receiving failed: {error}"
            raise Broken(text, unseen=unseen, late=late) from error
        if not chunk:
            raise Broken("the server closed the connection", unseen=unseen)
        data = self._unread + chunk if self._unread else chunk
        at, size = 0, len(data)
        while size - at >= _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + (high << 8 | low)
            if end > size:
                break
            self._take(kind, flags, stream & 0x7FFFFFFF, data[at + _FRAME.size : end])
            at = end
        self._unread = data[at:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            self._take_data(flags, stream, payload)
        elif kind in {HEADERS, CONTINUATION}:
            self._take_headers(kind, flags, stream, payload)
        elif kind == WINDOW_UPDATE:
            self._take_room(stream, int.from_bytes(payload, "big"))
        elif kind == PING and not flags & ACK:
            self._pongs += frame(PING, ACK, 0, payload)
        elif kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == RST_STREAM and stream == self._stream and self._trailers is None:
            code = int.from_bytes(payload, "big")
            raise Broken(f"the server reset the call: error {code} of HTTP/2", unseen=code == REFUSED_STREAM)
        elif kind == GOAWAY:
            self._leaving = True
            last, code = struct.unpack_from(">LL", payload)
            if last & 0x7FFFFFFF < self._stream:
                raise Broken(f"the server accepts no more calls: error {code} of HTTP/2", unseen=True)

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & PADDED:
            raise Broken("the server pads its frames")
        if size := self._to_give(len(payload)):
            self._out += room(0, size) + room(self._stream, size)
        if stream == self._stream:
            self._pieces.append(payload)
            if flags & END_STREAM:
                raise Broken("the answer has no status")

    def _to_give(self, size: int) -> int:
        """Return of how many bytes the peer is to be told that they have been received, now and then."""
        self._received += size
        if self._received <= _ROOM // 2:
            return 0
        size, self._received = self._received, 0
        return size

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS and flags & (PADDED | PRIORITY):
            raise Broken("the server pads its frames, or orders them")
        if stream != self._stream:
            return
        if kind == HEADERS:
            self._headers, self._ending = payload, flags & END_STREAM
        else:
            self._headers += payload
        if flags & END_HEADERS and self._ending:
            self._trailers = self._headers

    def _take_room(self, stream: int, size: int) -> None:
        if stream == 0:
            self._sendable += size
        elif stream == self._stream:
            self._stream_sendable += size

    def _take_settings(self, payload: bytes) -> None:
        for setting, value in struct.iter_unpack(">HL", payload):
            if setting == _INITIAL_WINDOW_SIZE:
                self._stream_sendable += value - self._initial
                self._initial = value
        self._out += frame(SETTINGS, ACK, 0, b"")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def room(stream: int, size: int) -> bytes:
    """Return the frame that gives the peer room."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def prefixed(message: bytes) -> bytes:
    """Return a message as gRPC sends it."""
    return _MESSAGE.pack(0, len(message)) + message


def answer(trailers: bytes, body: bytes) -> bytes:
    """Return the one message of an answer. Raises CallFailed, Broken."""
    _check(trailers)
    if len(body) < _MESSAGE.size or _MESSAGE.unpack_from(body) != (0, len(body) - _MESSAGE.size):
        raise Broken("the answer is not a single message")
    return body[_MESSAGE.size :]


def _check(trailers: bytes) -> None:
    code, details = _status(trailers)
    if code:
        raise CallFailed(code, details)


def is_timeout(error: OSError) -> bool:
    """Return whether an error says only that there was nothing to do in time."""
    return isinstance(error, (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError))


@functools.lru_cache(maxsize=32)
def _status(trailers: bytes) -> tuple[int, str]:
    """Return the status and its words; successes have the same bytes each time."""
    try:
        found = hpack.fields(trailers)
    except hpack.BadHeaders as error:
        raise Broken(str(error)) from error
    code = found.get("grpc-status", "")
    if not code.isdecimal():
        return UNKNOWN, "the answer has no gRPC status"
    return int(code), unquote(found.get("grpc-message", ""))
