"""The log of a container as plain text, chunk by chunk, as fast as its reader reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.streams import websocket
from minik8s_modules.streams.asking import Conversation, connection_of
from minik8s_modules.streams.connections import Connection, LogCut
from minik8s_modules.streams.frames import (
    STDERR,
    STDOUT,
    Again,
    Demultiplexer,
    Follower,
    Plain,
    Progress,
    seconds_of,
)
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
# of what was left out, mostly a line or two, Docker reads the last lines without reading the whole log
_NEAR = (20, 600, 10_000)
_OUT_OF_STEP_S = 2
# a follower is late when so much was caught up beside it
MUCH_BYTES = 1 << 20
# a follower that says nothing may be waiting for a file that is no longer written
IDLE_S, LONGEST_IDLE_S = 5.0, 60.0
# so long may a follower give nothing but lines that count as passed on, or so many bytes of them
LOST_S = 1.0
# followers that give nothing new are made ever more slowly, and some may end though the container runs
ROUND_S, LONGEST_S, MOST_ENDS = 0.05, 2.0, 3


async def serve(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
    """Write the log to ``client``; ``first`` brings Docker's connection and says what is on it.

    Raises:
        StatusError: there is no such log; nothing was written yet.
        LogCut: see there; part of the log was written.
    """
    kind = first.message["frames"]
    source = await connection_of(first)
    try:
        reader = await _begun(client, request)
        copying = _Copying(reader, int(request.text("limitBytes") or 0))
        if kind == "stamped":
            await _Following(request, talk, copying).run(source)
        else:
            await copying.run(source, Plain() if kind == "plain" else Demultiplexer())
            if request.flag("follow") and not copying.full and await _is_running(talk):
                raise LogCut(_cut(request))
    except StatusError as error:
        if not client.started:
            raise
        raise LogCut(f"{_cut(request)}: {error}") from error
    finally:
        source.close()
    await reader.finish()


async def _is_running(talk: Conversation) -> bool:
    return bool((await talk.say({"do": "running"})).message["running"])


def _cut(request: StreamRequest) -> str:
    return f"docker ended the log of {request.container} in {request.pod}"


class _Following:
    """Follows a log with one follower of Docker's after the other, and asks for what they leave out.

    Each is given up as soon as it has left something out, and where catching up took so long that it may be late.
    """

    def __init__(self, request: StreamRequest, talk: Conversation, copying: _Copying) -> None:
        self._request, self._talk, self._copying = request, talk, copying
        self._progress = self._none()

    def _none(self) -> Progress:
        streams = {"Stdout": {STDOUT}, "Stderr": {STDERR}}.get(self._request.text("stream"), {STDOUT, STDERR})
        return Progress(stamped=self._request.flag("timestamps"), streams=streams)

    async def run(self, mark: Connection) -> None:
        """Copy all of it; ``mark`` has the last line there is, behind which to go on if nothing else is asked for."""
        last = Again(self._progress, whole=True)
        while data := await mark.read():
            last.feed(data)
        if self._request.text("tailLines") != "0":
            asked = self._none()
            await self._copy({"do": "log"}, Again(asked, whole=True))
            self._progress = asked if asked.places else self._progress
        rounds = ended = 0
        while not self._copying.full:
            before = self._progress.last
            outcome = await self._live()
            ended = ended + 1 if outcome is _Outcome.ENDED else 0
            if outcome is _Outcome.GONE or self._copying.full:
                return
            if ended and not await _is_running(self._talk):
                await self._catch_up()
                return
            if ended > MOST_ENDS:
                raise LogCut(_cut(self._request))
            rounds = rounds + 1 if self._progress.last == before else 0
            await asyncio.sleep(min(LONGEST_S, rounds * ROUND_S))

    async def _live(self) -> _Outcome:
        """Copy what a new follower gives, as long as that can be trusted."""
        answer = await self._talk.say({"do": "follow", "lines": _NEAR[0] if self._progress.places else 0})
        if not answer.descriptors:
            return _Outcome.GONE
        source = await connection_of(answer)
        try:
            return await self._heed(source, Follower(self._progress))
        finally:
            source.close()

    async def _heed(self, source: Connection, follower: Follower) -> _Outcome:
        patience, found = IDLE_S, time.monotonic()
        while not self._copying.full:
            began = time.monotonic()
            data = await _read(source, LOST_S if follower.lost else patience)
            if data:
                patience = IDLE_S
                if await self._pass_on(follower, data, time.monotonic() - began):
                    return _Outcome.DOUBTED
                if len(data) < GATHER_BYTES:
                    await asyncio.sleep(GATHER_S)
            elif data is None:  # nothing came; is there really nothing?
                patience = min(2 * patience, LONGEST_IDLE_S)
            found = found if follower.lost else time.monotonic()
            if data is None or (follower.lost and (not data or time.monotonic() - found >= LOST_S)):
                found = time.monotonic()
                outcome = await self._check(follower)
                if outcome and data != b"":
                    return outcome
            if data == b"":
                return _Outcome.ENDED
        return _Outcome.DOUBTED

    async def _pass_on(self, follower: Follower, data: bytes, waited: float) -> bool:
        """Write what is new of ``data``, and before it what the follower left out; True: it is to be given up."""
        await self._copying.write(follower.feed(data, waited))
        while follower.doubted and not self._copying.full:
            again = await self._catch_up()
            if again is None:
                follower.let_go()
            elif not follower.resume(again) or again.size > MUCH_BYTES:
                return True
            await self._copying.write(follower.feed(b""))
        return False

    async def _check(self, follower: Follower) -> _Outcome | None:
        """Write what the log has and the follower does not give; an outcome: it is to be given up."""
        again = await self._catch_up()
        if again is None and follower.gone:
            return _Outcome.GONE
        if again is None:  # what it still gives is told
            follower.let_go()
        elif again.size:
            return _Outcome.DOUBTED
        elif follower.lost:
            follower.restart(trusted=again.blind)
        await self._copying.write(follower.feed(b""))
        return None

    async def _catch_up(self) -> Again | None:
        """Write what the log has more by now; None: the container is gone, and its log with it.

        Docker reads the last lines without reading the whole log; mostly a few are enough.
        """
        since = int(seconds_of(self._progress.last[1])) - _OUT_OF_STEP_S if self._progress.places else 0
        for lines in _NEAR if self._progress.places else ():
            again = Again(self._progress, whole=False)
            if not await self._copy({"do": "rest", "lines": lines, "since": 0}, again):
                return None
            if not again.gap:
                return again
            if not again.later:  # the clock was set back: new lines may be older than the last one
                since = 0
        again = Again(self._progress, whole=True)
        return again if await self._copy({"do": "rest", "lines": 0, "since": max(0, since)}, again) else None

    async def _copy(self, question: JsonObject, again: Again) -> bool:
        """Write what is new in the log that the answer brings; return whether there is one."""
        answer = await self._talk.say(question)
        if not answer.descriptors:
            return False
        source = await connection_of(answer)
        try:
            await self._copying.run(source, again)
            again.end()
        finally:
            source.close()
        return True


class _Outcome(Enum):
    """How a follower ends: Docker ended it, it is not trusted any more, or the container is gone."""

    ENDED, DOUBTED, GONE = "ended", "doubted", "gone"


async def _read(source: Connection, patience: float) -> bytes | None:
    """Return what has come, b"" at the end, None when nothing comes for so many seconds."""
    try:
        async with asyncio.timeout(patience):
            return await source.read()
    except TimeoutError:
        return None


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


class _Copying:
    """Copies to a reader: all, or ``limit`` bytes.

    Attributes:
        full: whether the reader has as many as it asked for.
    """

    def __init__(self, reader: Reader, limit: int) -> None:
        self._reader, self._limited, self._left = reader, limit > 0, limit
        self.full = False

    async def run(self, source: Connection, frames: Demultiplexer | Plain) -> None:
        """Copy until the end or the limit, or up to a gap."""
        while not self.full and (data := await source.read()):
            await self.write(frames.feed(data))
            if isinstance(frames, Again) and frames.gap:
                return
            if len(data) < GATHER_BYTES:
                await asyncio.sleep(GATHER_S)

    async def write(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write up to the limit."""
        text = b"".join(piece for _, piece in pieces)
        if self._limited:
            text, self._left = text[: self._left], self._left - len(text)
            self.full = self._left <= 0
        if text:
            await self._reader.write(text)
