"""The gateway as the process that parses streams knows it: a named socket, a conversation for each stream.

A conversation begins with what an API server has signed, and is about that one stream from then on: nothing that is
said later names a pod or a container. When it ends, on either side, so does the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.errors import ServiceUnavailable, from_status
from minik8s_modules.streams import passing
from minik8s_modules.streams.connections import Connection, adopt
from minik8s_modules.streams.passing import BadPacket, Channel, Packet
from minik8s_modules.streams.requests import CERTIFICATE, SIGNED, StreamRequest

# the two of a connection through ssh: one to read, one to write
MOST_DESCRIPTORS = 2
_GONE = "the gateway has gone away; try again"


class Conversation:
    """Questions and their answers, in order; ``gone`` is set when the gateway has ended it."""

    def __init__(self, connected: socket.socket) -> None:
        self._channel = Channel(connected, MOST_DESCRIPTORS)
        self._waiting: deque[asyncio.Future[Packet]] = deque()
        self._early: deque[Packet] = deque()
        self.gone = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def say(self, message: Mapping[str, Any]) -> Packet:
        """Return the answer to ``message``. Raises as ``answer``."""
        try:
            await self._channel.send(message)
        except OSError as error:
            raise ServiceUnavailable(_GONE) from error
        return await self.answer()

    async def answer(self) -> Packet:
        """Return the next answer.

        Raises:
            StatusError: it is an error; ServiceUnavailable: the gateway is gone.
        """
        if self._early:
            packet = self._early.popleft()
        elif self.gone.is_set():
            raise ServiceUnavailable(_GONE)
        else:
            self._waiting.append(asyncio.get_running_loop().create_future())
            packet = await self._waiting[-1]
        if "error" in packet.message:
            raise from_status(packet.message["error"])
        return packet

    async def connection(self, message: Mapping[str, Any]) -> Connection:
        """Return the connection that the answer to ``message`` brings. Raises as ``answer``."""
        return await connection_of(await self.say(message))

    async def close(self) -> None:
        """End it."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._channel.close()

    async def _read(self) -> None:
        with contextlib.suppress(BadPacket):
            while packet := await self._channel.receive():
                self._take(packet)
        self.gone.set()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ServiceUnavailable(_GONE))

    def _take(self, packet: Packet) -> None:
        """Hand an answer to whoever asked first; who has given up waiting still has it counted as his."""
        if not self._waiting:
            self._early.append(packet)
            return
        waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(packet)


class Gateway:
    """The gateway behind the named socket ``path``."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def converse(self) -> Conversation:
        """Return a new conversation.

        Raises:
            ServiceUnavailable: nobody answers there.
        """
        try:
            return Conversation(await passing.connected(self._path))
        except OSError as error:
            raise ServiceUnavailable(f"the gateway does not answer at {self._path}: {error.strerror}") from error

    async def ask(self, request: StreamRequest) -> tuple[Conversation, Packet]:
        """Return the conversation about ``request`` and what the gateway said first. Raises as ``answer``."""
        conversation = await self.converse()
        try:
            return conversation, await conversation.say(
                {
                    "line": request.line,
                    "signed": request.headers.get(SIGNED.lower(), ""),
                    "certificate": request.headers.get(CERTIFICATE.lower(), ""),
                }
            )
        except BaseException:
            await conversation.close()
            raise


async def connection_of(packet: Packet) -> Connection:
    """Return the connection whose descriptor came with ``packet``, placed behind what the gateway had read of it."""
    return await adopt(packet.descriptors[0].socket(), bytes.fromhex(packet.message.get("came", "")))
