"""Both ends of a byte stream: read some, write all and wait until it is taken."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol

READ_BYTES = 256 * 1024
# what a stream may hold in each direction before its source is left alone
BUFFER_BYTES = 256 * 1024


class LogCut(Exception):
    """Docker ended a log that was followed though its container runs: the reader must not take it for the end."""


class Bytes(Protocol):
    """A byte stream."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all and wait while the other side does not read; OSError when it is gone."""


class Connection:
    """A byte stream over an asyncio reader and writer; ``started`` once anything was written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.started = False
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def read(self) -> bytes:
        """Return what has come, b"" at the end or when the connection broke."""
        try:
            return await self.reader.read(READ_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write all and wait while the other side does not read; OSError when it is gone."""
        self.started = True
        self.writer.write(data)
        await self.writer.drain()

    def end_writing(self) -> None:
        """Say that nothing more will be written; the other direction stays open."""
        with contextlib.suppress(OSError, RuntimeError):  # gone meanwhile
            self.writer.write_eof()

    async def closed(self) -> None:
        """Return when the connection is no more."""
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def close(self) -> None:
        """Close it; what was written still goes out."""
        self.writer.close()

    def abort(self) -> None:
        """Cut it at once."""
        self.writer.transport.abort()


async def adopt(connected: socket.socket, came: bytes = b"") -> Connection:
    """Return a connection over a socket that is connected, of whose bytes ``came`` was read already."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=BUFFER_BYTES, loop=loop)
    reader.feed_data(came)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        connected.setblocking(False)  # noqa: FBT003 - the standard library's signature
        transport, _ = await loop.create_connection(lambda: protocol, sock=connected)
    except BaseException:
        connected.close()
        raise
    return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
