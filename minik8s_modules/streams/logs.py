"""The log of a container as plain text, chunk by chunk, as fast as its reader reads."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Protocol

from minik8s_modules.api.errors import BadRequest, StatusError
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
# what is left out is mostly a line or two; Docker reads the last ones without reading the whole log
LAST_LINES = 1000
_OUT_OF_STEP_S = 2


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
        copying = _Copying(reader, int(request.text("limitBytes") or 0))
        await copying.run(source, frames)
    finally:
        source.close()
    if request.flag("follow") and not copying.full:
        await _end(request, talk, frames, copying)
    await reader.finish()


async def _end(request: StreamRequest, talk: Conversation, frames: Demultiplexer | Plain, copying: _Copying) -> None:
    """Write what Docker may have left out of a followed log whose container ended right after it had written.

    Its follower looks at its file once more or at the end of the container, whichever it finds first (20.10). Raises
    LogCut.
    """
    try:
        if (await talk.say({"do": "running"})).message["running"]:
            raise LogCut(f"docker ended the log of {request.container} in {request.pod}")
        if not isinstance(frames, Unrepeated):
            return
        none_told: tuple[int, ...] = () if request.text("tailLines") == "0" else (0,)
        for lines in (LAST_LINES, 0) if frames.last else none_told:
            rest = frames.rest(whole=not lines)
            answer = await talk.say({"do": "rest", "lines": lines, "since": _seconds(frames.last)})
            if not answer.descriptors:  # the container is gone, and its log with it
                return
            source = await connection_of(answer)
            try:
                await copying.run(source, rest)
            finally:
                source.close()
            if not rest.gap:
                return
    except StatusError as error:
        raise LogCut(f"the end of the log of {request.container} in {request.pod} is unknown: {error}") from error


def _seconds(stamp: bytes) -> int:
    """Return a time shortly before a timestamp, as seconds since 1970: streams are out of step by less; 0 for none."""
    return int(datetime.fromisoformat(stamp.decode()).timestamp()) - _OUT_OF_STEP_S if stamp else 0


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


class _Copying:
    """Copies to a reader: all, or ``limit`` bytes.

    Attributes:
        full: whether the reader has as many as it asked for.
    """

    def __init__(self, reader: Reader, limit: int) -> None:
        self._reader, self._limited, self._left = reader, limit > 0, limit
        self.full = False

    async def run(self, source: Connection, frames: Demultiplexer | Plain) -> None:
        """Copy until the end or the limit."""
        while data := await source.read():
            text = b"".join(piece for _, piece in frames.feed(data))
            if self._limited:
                text, self._left = text[: self._left], self._left - len(text)
            if text:
                await self._reader.write(text)
            if self._limited and self._left <= 0:
                self.full = True
                return
            if len(data) < GATHER_BYTES:
                await asyncio.sleep(GATHER_S)
