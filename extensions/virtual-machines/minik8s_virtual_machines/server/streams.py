"""console, vnc and portforward: a WebSocket of plain bytes on the client's side, a stream into the pod on the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.streams import websocket
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.websocket import WebSocket
from minik8s_virtual_machines.server.asked import Asked
from minik8s_virtual_machines.server.podstreams import DATA, STDIN, STDOUT, PodStream

PROTOCOL = "plain.kubevirt.io"
_PORT_BYTES = 2


class Plain(Protocol):
    """One direction's two ends."""

    async def read(self) -> bytes:
        """Return what comes next, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the other side is gone."""


class _Channel:
    """One channel of a stream into a pod as plain bytes; the first ``skipped`` bytes are the protocol's own."""

    def __init__(self, stream: PodStream, reads: int, writes: int, skipped: int = 0) -> None:
        self._stream, self._reads, self._writes, self._skip = stream, reads, writes, skipped

    async def read(self) -> bytes:
        while (message := await self._stream.read()) is not None:
            channel, data = message
            if channel != self._reads:
                continue
            skipped, self._skip = min(self._skip, len(data)), max(0, self._skip - len(data))
            if data[skipped:]:
                return data[skipped:]
        return b""

    async def write(self, data: bytes) -> None:
        await self._stream.write(self._writes, data)


def of_exec(stream: PodStream) -> Plain:
    """Return stdin and stdout of a program."""
    return _Channel(stream, STDOUT, STDIN)


def of_forward(stream: PodStream) -> Plain:
    """Return the bytes of a forwarded port."""
    return _Channel(stream, DATA, DATA, _PORT_BYTES)


async def serve(client: Connection, asked: Asked, stream: PodStream, plain: Callable[[PodStream], Plain]) -> None:
    """Carry bytes between the client and the pod until one of them ends.

    Raises:
        BadRequest: the client asks for no WebSocket of plain bytes.
        StatusError: the API server refuses the stream into the pod; the client gets that as its answer.
    """
    request = asked.as_stream()
    protocol = websocket.chosen(request, (PROTOCOL, ""))
    if protocol is None:
        raise BadRequest(f"unable to upgrade: the supported WebSocket subprotocol is {PROTOCOL}")
    async with stream:
        socket = await websocket.accept(client, request, protocol)
        await _carry(socket, plain(stream))
        await socket.finish()


async def _carry(socket: WebSocket, other: Plain) -> None:
    tasks = {
        asyncio.ensure_future(_copy(socket.read, other.write)),
        asyncio.ensure_future(_copy(other.read, socket.write)),
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]]) -> None:
    with contextlib.suppress(OSError):
        while data := await read():
            await write(data)
