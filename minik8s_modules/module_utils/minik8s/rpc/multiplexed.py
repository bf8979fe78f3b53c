"""Many calls of gRPC at once on a connection that never blocks, all of one thread: an event loop's.

Calls are queued (``begin``), sent together (``flush``) and taken in as they come (``take_in``), so a dozen of them cost
one ``send`` and one ``recv``. Frames and windows are http2.py's; here each call has a stream while it runs. What does
not fit into a window, the server's or the socket's, or is one call more than the server takes at once, waits its turn.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping

from . import http2
from .http2 import Broken, Channel


class Call:
    """A call; ``told`` is called once when it has ended."""

    def __init__(self, head: bytes, body: bytes, told: Callable[[], object]) -> None:
        self.head, self.body, self.told = head, body, told
        self.headers = b""
        self.ending = 0
        self.pieces: list[bytes] = []
        self.trailers: bytes | None = None
        self.error: Broken | None = None

    @property
    def ended(self) -> bool:
        """Whether the answer has come, or none will."""
        return self.error is not None or self.trailers is not None

    def answer(self) -> bytes:
        """Return the answer. Raises CallFailed, Broken."""
        if self.error is not None:
            raise self.error
        return http2.answer(self.trailers or b"", b"".join(self.pieces))


class Multiplexed(Channel):
    """See the module's docstring; what ``Channel`` has for one call at a time is not for it."""

    def __init__(self, sock: socket.socket, authority: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(sock, authority, metadata)
        sock.settimeout(0)
        self._calls: dict[int, Call] = {}
        self._queued: deque[Call] = deque()
        self._unsent = b""
        self._most: float = float("inf")

    @property
    def blocked(self) -> bool:
        """Whether something waits until the socket can be written."""
        return bool(self._unsent)

    @property
    def running(self) -> int:
        """How many calls have not ended."""
        return len(self._calls) + len(self._queued)

    def descriptor(self) -> int:
        """Return the socket's number."""
        return self._sock.fileno()

    def takes(self, message: bytes) -> bool:
        """Return whether a call with ``message`` can be made, which has to fit into one frame."""
        return self.usable and len(message) <= min(http2.FRAME_BYTES, self._initial) - http2.PREFIX_BYTES

    def begin(self, method: str, message: bytes, told: Callable[[], object]) -> Call:
        """Queue a call."""
        made = Call(self._heads.get(method) or self._head(method), http2.prefixed(message), told)
        self._queued.append(made)
        return made

    def flush(self) -> None:
        """Send what is queued, as far as there is room. Raises Broken."""
        parts = [self._unsent, self._out]
        self._unsent = self._out = b""
        while self._queued and self._has_room(len(self._queued[0].body)):
            call = self._queued.popleft()
            self._stream += 2
            self._calls[self._stream] = call
            self._sendable -= len(call.body)
            if self._pongs and self._stream % (2 * http2.PONG_CALLS) == 1:
                parts.append(self._pongs)
                self._pongs = b""
            parts.append(http2.frame(http2.HEADERS, http2.END_HEADERS, self._stream, call.head))
            parts.append(http2.frame(http2.DATA, http2.END_STREAM, self._stream, call.body))
        data = b"".join(parts)
        if data:
            self._send_some(data)

    def _has_room(self, size: int) -> bool:
        return len(self._calls) < self._most and size <= min(self._sendable, self._initial)

    def take_in(self) -> None:
        """Take in what has come. Raises Broken."""
        try:
            self._receive()
        except Broken as error:
            if not error.late:  # nothing has come after all
                raise

    def cancel(self, call: Call, error: Broken) -> None:
        """End one call; the server is told, at the next ``flush``, if it was asked."""
        stream = next((number for number, each in self._calls.items() if each is call), 0)
        if stream:
            del self._calls[stream]
            self._out += http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL.to_bytes(4, "big"))
        else:
            self._queued.remove(call)
        _end(call, Broken(str(error), unseen=not stream, late=error.late))

    def end_all(self, error: Broken) -> None:
        """End all calls; those that were never sent are unseen."""
        running, queued = list(self._calls.values()), list(self._queued)
        self._calls.clear()
        self._queued.clear()
        for call in running:
            _end(call, Broken(str(error), late=error.late))
        for call in queued:
            _end(call, Broken(str(error), unseen=True, late=error.late))

    def _send_some(self, data: bytes) -> None:
        try:
            sent = self._sock.send(data)
        except OSError as error:
            if not http2.is_timeout(error):
                raise Broken(f"sending failed: {error}") from error
            sent = 0
        self._unsent = data[sent:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == http2.RST_STREAM:
            code = int.from_bytes(payload, "big")
            unseen = code == http2.REFUSED_STREAM
            self._fail(stream, f"the server reset the call: error {code} of HTTP/2", unseen=unseen)
        elif kind == http2.GOAWAY:
            self._leaving = True
            last = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
            for each in [number for number in self._calls if number > last]:
                self._fail(each, "the server accepts no more calls", unseen=True)
            for call in self._queued:
                _end(call, Broken("the server accepts no more calls", unseen=True))
            self._queued.clear()
        else:
            super()._take(kind, flags, stream, payload)

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & http2.PADDED:
            raise Broken("the server pads its frames")
        if size := self._to_give(len(payload)):
            self._out += http2.room(0, size)
        call = self._calls.get(stream)
        if call is not None:
            call.pieces.append(payload)
            if flags & http2.END_STREAM:
                self._fail(stream, "the answer has no status")

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == http2.HEADERS and flags & (http2.PADDED | http2.PRIORITY):
            raise Broken("the server pads its frames, or orders them")
        call = self._calls.get(stream)
        if call is None:
            return
        if kind == http2.HEADERS:
            call.headers, call.ending = payload, flags & http2.END_STREAM
        else:
            call.headers += payload
        if flags & http2.END_HEADERS and call.ending:
            call.trailers = call.headers
            del self._calls[stream]
            call.told()

    def _take_settings(self, payload: bytes) -> None:
        for setting, value in struct.iter_unpack(">HL", payload):
            if setting == http2.MAX_CONCURRENT_STREAMS:
                self._most = value
        super()._take_settings(payload)

    def _take_room(self, stream: int, size: int) -> None:
        if stream == 0:
            self._sendable += size

    def _fail(self, stream: int, text: str, *, unseen: bool = False) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            _end(call, Broken(text, unseen=unseen))


def _end(call: Call, error: Broken) -> None:
    call.error = error
    call.told()
