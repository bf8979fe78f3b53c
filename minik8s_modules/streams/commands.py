"""exec and attach: a console on one side, a connection that Docker has given over to the container on the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.streams.asking import Conversation
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.consoles import Console, Resize, Stdin, StdinEnd, open_console
from minik8s_modules.streams.frames import STDERR, STDOUT, demultiplexer
from minik8s_modules.streams.passing import Packet
from minik8s_modules.streams.requests import StreamRequest

log = logging.getLogger(__name__)

SUCCESS: JsonObject = {"metadata": {}, "status": "Success"}


async def serve_exec(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
    """Run the command that the gateway has ready. Raises StatusError before the upgrade was answered."""
    console = await open_console(client, request, request.channels())

    async def ended() -> JsonObject:
        return exit_status(int((await talk.say({"do": "exit"})).message["code"]))

    await _converse(console, talk, ended, tty=bool(first.message["tty"]))


async def serve_attach(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
    """Join a running container's own streams. Raises StatusError before the upgrade was answered."""
    console = await open_console(client, request, request.channels())

    async def ended() -> JsonObject:
        return SUCCESS

    # where stdin stays open for the next one who attaches, Docker takes its end for the end of the whole conversation
    ends = not first.message["stays_open"]
    await _converse(console, talk, ended, tty=bool(first.message["tty"]), ends=ends)


def exit_status(code: int) -> JsonObject:
    """Return the Status a client reads an exit code from (apimachinery ``remotecommand.NonZeroExitCodeReason``)."""
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure(error: Exception) -> JsonObject:
    text = f"Internal error occurred: {error}"
    return {"metadata": {}, "status": "Failure", "message": text, "reason": "InternalError", "code": 500}


async def _converse(
    console: Console,
    talk: Conversation,
    ended: Callable[[], Awaitable[JsonObject]],
    *,
    tty: bool,
    ends: bool = True,
) -> None:
    try:
        process = await talk.connection({"do": "start"})
    except StatusError as error:
        await console.finish(_failure(error))
        return
    feeding = asyncio.create_task(_feed(console, process, talk, ends=ends))
    output = asyncio.create_task(_copy_output(process, console, tty=tty))
    try:
        done, _ = await asyncio.wait({feeding, output}, return_when=asyncio.FIRST_COMPLETED)
        if output in done and output.exception() is None:
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
            await console.finish(await _status(ended))
    finally:
        feeding.cancel()
        output.cancel()
        process.close()
        console.close()
        await asyncio.gather(feeding, output, return_exceptions=True)


async def _status(ended: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    try:
        return await ended()
    except StatusError as error:
        return _failure(error)


async def _feed(console: Console, process: Connection, talk: Conversation, *, ends: bool) -> None:
    """Give the process what the client says, the end of it too if it ``ends``; return when the client is gone."""
    while (said := await console.receive()) is not None:
        if isinstance(said, Stdin):
            with contextlib.suppress(OSError):  # the process reads no more; its output tells the end
                await process.write(said.data)
        elif isinstance(said, StdinEnd):
            if ends:
                process.end_writing()
        else:
            await _resize(talk, said)


async def _copy_output(process: Connection, console: Console, *, tty: bool) -> None:
    frames = demultiplexer(tty=tty)
    while data := await process.read():
        for channel, piece in frames.feed(data):
            if channel in (STDOUT, STDERR):
                await console.send(channel, piece)


async def _resize(talk: Conversation, size: Resize) -> None:
    try:
        await talk.say({"do": "resize", "height": size.height, "width": size.width})
    except StatusError as error:
        log.debug("resize: %s", error)  # the process has ended, or has no terminal
