"""The log of a container as plain text, chunk by chunk, as fast as its reader reads."""

from __future__ import annotations

import asyncio
from typing import Protocol

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.streams import websocket
from minik8s_modules.streams.asking import Conversation, connection_of
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.frames import Demultiplexer, Plain, Unrepeated
from minik8s_modules.streams.passing import Packet
from minik8s_modules.streams.requests import StreamRequest

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-cache, private\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
_SUPPORTED = ("binary.k8s.io", "base64.binary.k8s.io", "")
# Docker sends a followed log line by line; two milliseconds put lines that come fast into one piece.
# They gather in the reader's buffer: a few hundred short lines fill the socket's, which would stop Docker
GATHER_S = 0.002
GATHER_BYTES = 64 * 1024


class LogCut(Exception):
    """Docker ended a log that was followed though its container runs: the reader must not take it for the end."""


async def serve(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
    """Write the log to ``client``; ``first`` brings Docker's connection and says what is on it.

    Raises:
        StatusError: there is no such log; nothing was written yet.
        LogCut: see there; part of the log was written.
    """
    frames = _frames(first.message["frames"], request)
    source = await connection_of(first)
    try:
        reader = await _begun(client, request)
        whole = await _copy(source, reader, frames, limit=int(request.text("limitBytes") or 0))
    finally:
        source.close()
    if whole and request.flag("follow") and (await talk.say({"do": "running"})).message["running"]:
        raise LogCut(f"docker ended the log of {request.container} in {request.pod}")
    await reader.finish()


class Reader(Protocol):
    """Who is told the log."""

    async def write(self, data: bytes) -> None:
        """Tell some of it, and wait until it is taken; OSError when the reader is gone."""

    async def finish(self) -> None:
        """Say that it is all."""


class Chunks:
    """A reader of plain HTTP."""

    def __init__(self, client: Connection) -> None:
        self._client = client

    async def write(self, data: bytes) -> None:
        """Send a chunk."""
        await self._client.write(b"%X\r\n%s\r\n" % (len(data), data))

    async def finish(self) -> None:
        """Send the last one."""
        await self._client.write(LAST_CHUNK)


async def _begun(client: Connection, request: StreamRequest) -> Reader:
    """Answer the head: of a WebSocket when one is asked for. Raises BadRequest for one that is not supported."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        await client.write(HEAD)
        return Chunks(client)
    protocol = websocket.chosen(request, _SUPPORTED)
    if protocol is None:
        text = " and ".join(filter(None, _SUPPORTED))
        raise BadRequest(f"unable to upgrade: of a log the supported WebSocket subprotocols are {text}")
    return await websocket.accept(client, request, protocol)


def _frames(kind: str, request: StreamRequest) -> Demultiplexer | Plain:
    """Return what takes apart a log that comes plain, in frames, or in frames with a timestamp before each line."""
    if kind == "stamped":
        return Unrepeated(stamped=request.flag("timestamps"))
    return Plain() if kind == "plain" else Demultiplexer()


async def _copy(source: Connection, reader: Reader, frames: Demultiplexer | Plain, *, limit: int) -> bool:
    """Copy until the end or ``limit`` bytes (0: all); return whether the end was reached."""
    left = limit
    while data := await source.read():
        text = b"".join(piece for _, piece in frames.feed(data))
        if limit:
            text, left = text[:left], left - len(text)
        if text:
            await reader.write(text)
        if limit and left <= 0:
            return False
        if len(data) < GATHER_BYTES:
            await asyncio.sleep(GATHER_S)
    return True
