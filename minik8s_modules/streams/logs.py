"""The log of a container as plain text, chunk by chunk, as fast as its reader reads."""

from __future__ import annotations

import asyncio

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
        await client.write(HEAD)
        whole = await _copy(source, client, frames, limit=int(request.text("limitBytes") or 0))
    finally:
        source.close()
    if whole and request.flag("follow") and (await talk.say({"do": "running"})).message["running"]:
        raise LogCut(f"docker ended the log of {request.container} in {request.pod}")
    await client.write(LAST_CHUNK)


def _frames(kind: str, request: StreamRequest) -> Demultiplexer | Plain:
    """Return what takes apart a log that comes plain, in frames, or in frames with a timestamp before each line."""
    if kind == "stamped":
        return Unrepeated(stamped=request.flag("timestamps"))
    return Plain() if kind == "plain" else Demultiplexer()


async def _copy(source: Connection, client: Connection, frames: Demultiplexer | Plain, *, limit: int) -> bool:
    """Copy until the end or ``limit`` bytes (0: all); return whether the end was reached."""
    left = limit
    while data := await source.read():
        text = b"".join(piece for _, piece in frames.feed(data))
        if limit:
            text, left = text[:left], left - len(text)
        if text:
            await client.write(b"%X\r\n%s\r\n" % (len(text), text))
        if limit and left <= 0:
            return False
        if len(data) < GATHER_BYTES:
            await asyncio.sleep(GATHER_S)
    return True
