"""A conversation with the process that parses streams: its end, at any moment, ends what is being done for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minik8s_modules.api.errors import BadRequest, InternalError, ServiceUnavailable, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError, TemporaryError
from minik8s_modules.gateway.streams.opening import Given, Opening
from minik8s_modules.streams.passing import BadPacket, Channel

log = logging.getLogger(__name__)

# who asks for more before the first answer does not listen
_MOST_WAITING = 100
Open = Callable[[], Awaitable[Opening]]


async def converse(channel: Channel, opening: Open) -> None:
    """Answer with what ``opening`` finds, then each question, until the other end is gone or is refused."""
    asked: asyncio.Queue[JsonObject] = asyncio.Queue(_MOST_WAITING)
    ways = {asyncio.ensure_future(_listen(channel, asked)), asyncio.ensure_future(_answer(channel, opening, asked))}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
    except (OSError, BadPacket, asyncio.QueueFull) as error:
        log.debug("a connection for a stream ended: %s", error)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        channel.close()


async def _listen(channel: Channel, asked: asyncio.Queue[JsonObject]) -> None:
    while packet := await channel.receive():
        asked.put_nowait(packet.message)


async def _answer(channel: Channel, opening: Open, asked: asyncio.Queue[JsonObject]) -> None:
    try:
        found = await opening()
    except (Minik8sError, ValueError) as error:
        await channel.send(refusal(error))
        return
    try:
        await _give(channel, found.first)
        while True:
            await _give(channel, await _acted(found, await asked.get()))
    finally:
        await asyncio.shield(found.close())


async def _acted(found: Opening, message: JsonObject) -> Given:
    act = found.actions.get(str(message.get("do")))
    try:
        if act is None:
            raise BadRequest(f"this stream does not {message.get('do')}; it may {', '.join(found.actions) or 'end'}")
        return await act(message)
    except Minik8sError as error:
        return Given(refusal(error))


async def _give(channel: Channel, given: Given) -> None:
    try:
        await channel.send(given.message, [file.fileno() for file in given.files])
    finally:
        for file in given.files:
            file.close()


def refusal(error: Exception) -> JsonObject:
    """Return the packet that tells an error."""
    if isinstance(error, StatusError):
        return {"error": error.status()}
    if isinstance(error, TemporaryError):
        return {"error": ServiceUnavailable(str(error)).status()}
    if isinstance(error, ValueError):
        return {"error": BadRequest(str(error)).status()}
    return {"error": InternalError(str(error)).status()}
