"""SPDY/3.1 from the server's side, as much as kubectl's client (moby/spdystream) speaks.

Frames in, streams out: ``run`` reads the session and puts what comes into each stream's inbox. There is no flow control
by WINDOW_UPDATE: spdystream has none, so TCP's holds for the session as a whole. A stream whose reader is slower than
the session therefore stops the session once its inbox is full; other sessions are not concerned.
Source: SPDY protocol draft 3.1, sections 2.2 (frames), 2.6 (control frames).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from collections.abc import AsyncIterator

from minik8s_modules.streams.connections import Bytes
from minik8s_modules.streams.inbox import Inbox
from minik8s_modules.streams.spdy_dictionary import DICTIONARY

_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 0x01
_DATA_BYTES = 32 * 1024
_HEADER_BYTES = 64 * 1024
_FRAME_BYTES = 4 * 1024 * 1024
_MOST_STREAMS = 1000
_HEAD = 8


class SpdyError(ValueError):
    """The peer sent what SPDY does not allow, or more than is taken."""


class SpdyStream:
    """One stream: ``read`` what comes, ``write`` and ``finish``."""

    def __init__(self, session: SpdySession, number: int, headers: dict[str, str]) -> None:
        self._session = session
        self.number = number
        self.headers = headers
        self.inbox = Inbox()
        self.reset = False
        self._finished = False

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""
        return await self.inbox.take()

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the peer has reset the stream."""
        if self.reset:
            raise ConnectionResetError(f"SPDY stream {self.number} was reset")
        for at in range(0, len(data), _DATA_BYTES):
            await self._session.data(self.number, data[at : at + _DATA_BYTES])

    async def finish(self) -> None:
        """Say that nothing more will be written."""
        if not self._finished and not self.reset:
            self._finished = True
            await self._session.data(self.number, b"", _FIN)


class SpdySession:
    """All streams over one connection; ``run`` in one task, iterate ``streams`` in another."""

    def __init__(self, peer: Bytes) -> None:
        self._peer = peer
        self._buffer = bytearray()
        self._streams: dict[int, SpdyStream] = {}
        self._new: asyncio.Queue[SpdyStream | None] = asyncio.Queue()
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS, DICTIONARY)

    async def run(self) -> None:
        """Read the session to its end.

        Raises:
            SpdyError: the peer broke the protocol; the session is over.
        """
        try:
            while data := await self._peer.read():
                self._buffer += data
                await self._take_frames()
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a frame of SPDY cannot be read: {error}") from error
        finally:
            for stream in self._streams.values():
                stream.inbox.end()
            self._new.put_nowait(None)

    async def streams(self) -> AsyncIterator[SpdyStream]:
        """Yield each stream that the peer opens, until the session ends."""
        while (stream := await self._new.get()) is not None:
            yield stream

    def forget(self, stream: SpdyStream) -> None:
        """Drop a stream that both sides are done with."""
        self._streams.pop(stream.number, None)
        stream.inbox.end()

    async def data(self, number: int, data: bytes, flags: int = 0) -> None:
        """Send a data frame."""
        await self._peer.write(struct.pack(">II", number, flags << 24 | len(data)) + data)

    async def _control(self, kind: int, payload: bytes) -> None:
        await self._peer.write(struct.pack(">HHI", _VERSION, kind, len(payload)) + payload)

    async def _take_frames(self) -> None:
        while len(self._buffer) >= _HEAD:
            first, second = struct.unpack_from(">II", self._buffer)
            flags, size = second >> 24, second & 0xFFFFFF
            if size > _FRAME_BYTES:
                raise SpdyError(f"a frame of {size} bytes; {_FRAME_BYTES} are the most")
            if len(self._buffer) < _HEAD + size:
                return
            payload = bytes(self._buffer[_HEAD : _HEAD + size])
            del self._buffer[: _HEAD + size]
            if first >> 31:
                await self._on_control(first, flags, payload)
            else:
                await self._on_data(first, flags, payload)

    async def _on_data(self, number: int, flags: int, data: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if data:
            await stream.inbox.put(data)
        if flags & _FIN:
            stream.inbox.end()

    async def _on_control(self, first: int, flags: int, payload: bytes) -> None:
        if first >> 16 != _VERSION:
            raise SpdyError(f"a control frame of version {(first >> 16) & 0x7FFF}; 3 is supported")
        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            await self._open(flags, payload)
        elif kind == _PING:
            await self._control(_PING, payload)
        elif kind == _HEADERS:
            self._read_headers(payload[4:])  # not needed, but the compression's state goes on with it
        elif kind == _RST_STREAM:
            (number,) = struct.unpack_from(">I", payload)
            if stream := self._streams.pop(number, None):
                stream.reset = True
                stream.inbox.end()

    async def _open(self, flags: int, payload: bytes) -> None:
        number = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
        headers = self._read_headers(payload[10:])
        if len(self._streams) >= _MOST_STREAMS:
            raise SpdyError(f"more than {_MOST_STREAMS} streams at once")
        stream = self._streams[number] = SpdyStream(self, number, headers)
        await self._control(_SYN_REPLY, struct.pack(">I", number) + self._no_headers())
        if flags & _FIN:
            stream.inbox.end()
        self._new.put_nowait(stream)

    def _read_headers(self, block: bytes) -> dict[str, str]:
        raw = self._inflate.decompress(block, _HEADER_BYTES)
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"headers of more than {_HEADER_BYTES} bytes")
        (count,) = struct.unpack_from(">I", raw)
        texts, at = [], 4
        for _ in range(2 * count):
            (size,) = struct.unpack_from(">I", raw, at)
            texts.append(raw[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}

    def _no_headers(self) -> bytes:
        return self._deflate.compress(b"\0\0\0\0") + self._deflate.flush(zlib.Z_SYNC_FLUSH)


async def goodbye(running: asyncio.Task[None], seconds: float) -> None:
    """Let the peer close the session, which it does when it has read all; for ``seconds`` at most."""
    with contextlib.suppress(TimeoutError, SpdyError, OSError):
        await asyncio.wait_for(asyncio.shield(running), seconds)
