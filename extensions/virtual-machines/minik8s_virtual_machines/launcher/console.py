"""The serial console: what the guest writes goes to each client, to the container's log, and its end is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

KEPT = 64 << 10
_MOST_BEHIND = 1 << 20
"""A client that has not read so much is let go: it must not hold up the guest or grow without end."""


class Console:
    """``log`` is a file that is written to without ever waiting, or None."""

    def __init__(self, log: int | None = None) -> None:
        self._log = log
        self._clients: set[asyncio.StreamWriter] = set()
        self._writer: asyncio.StreamWriter | None = None
        self.tail = bytearray()
        if log is not None:
            os.set_blocking(log, False)

    async def attach(self, guest: socket.socket) -> None:
        """Read from the guest until it closes its side; clients stay for the next one."""
        reader, writer = await asyncio.open_connection(sock=guest)
        self._writer = writer
        try:
            while data := await reader.read(8192):
                self._spread(data)
        except ConnectionError:
            pass
        finally:
            self._writer = None
            writer.close()

    def _spread(self, data: bytes) -> None:
        self.tail += data
        del self.tail[:-KEPT]
        if self._log is not None:
            with contextlib.suppress(OSError):
                os.write(self._log, data)
        for client in [*self._clients]:
            transport = client.transport
            if transport.get_write_buffer_size() > _MOST_BEHIND:
                self._clients.discard(client)
                transport.abort()
            else:
                client.write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client until it goes."""
        self._clients.add(writer)
        try:
            while data := await reader.read(4096):
                if self._writer is not None:
                    self._writer.write(data)
                    await self._writer.drain()
        except ConnectionError:
            pass
        finally:
            self._clients.discard(writer)
