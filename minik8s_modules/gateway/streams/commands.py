"""exec and attach: a console on one side, a connection that Docker has handed over on the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.streams import finding
from minik8s_modules.gateway.streams.connections import Connection
from minik8s_modules.gateway.streams.consoles import Console, Resize, Stdin, StdinEnd, open_console
from minik8s_modules.gateway.streams.dockerd import Dockerd, DockerRefused
from minik8s_modules.gateway.streams.frames import STDERR, STDOUT, demultiplexer
from minik8s_modules.gateway.streams.requests import StreamRequest

log = logging.getLogger(__name__)

JsonObject = dict[str, Any]
Sized = Callable[[Resize], Awaitable[None]]
# Docker takes ctrl-p ctrl-q out of what is typed into a terminal, and holds a lone ctrl-p back; nobody types this
DETACH_KEYS = ",".join(["ctrl-@"] * 16)
# between the end of an exec's output and Docker's knowing the exit code lie some milliseconds
_EXIT_TRIES, _EXIT_PAUSE_S = 100, 0.02
SUCCESS: JsonObject = {"metadata": {}, "status": "Success"}


async def serve_exec(client: Connection, docker: Dockerd, request: StreamRequest) -> None:
    """Run a command in a running container. Raises StatusError before the upgrade was answered."""
    container = await finding.running(docker, request)
    tty, channels = request.flag("tty"), _channels(request)
    body = {
        "AttachStdin": "stdin" in channels,
        "AttachStdout": "stdout" in channels,
        "AttachStderr": "stderr" in channels,
        "Tty": tty,
        "Cmd": request.options.get("command", []),
        "DetachKeys": DETACH_KEYS,
    }
    made = await docker.call("POST", f"/containers/{container.id}/exec", body=body)
    path = f"/exec/{made['Id']}"
    console = await open_console(client, request, channels)

    async def start() -> Connection:
        return await docker.hijack(f"{path}/start", body={"Detach": False, "Tty": tty})

    async def ended() -> JsonObject:
        return await _exit_status(docker, path)

    await _converse(console, start, ended, _resizer(docker, path), tty=tty)


async def serve_attach(client: Connection, docker: Dockerd, request: StreamRequest) -> None:
    """Join a running container's own streams. Raises StatusError before the upgrade was answered."""
    container = await finding.running(docker, request)
    channels = _channels(request)
    path = f"/containers/{container.id}"
    query = {"stream": "1", "detachKeys": DETACH_KEYS, **dict.fromkeys(channels, "1")}
    console = await open_console(client, request, channels)

    async def start() -> Connection:
        return await docker.hijack(f"{path}/attach", query)

    async def ended() -> JsonObject:
        return SUCCESS

    # where stdin stays open for the next one who attaches, Docker takes its end for the end of the whole conversation
    open_end = container.stdin and not container.stdin_once
    await _converse(console, start, ended, _resizer(docker, path), tty=container.tty, ends=not open_end)


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
    told = f"Internal error occurred: {error}"
    return {"metadata": {}, "status": "Failure", "message": told, "reason": "InternalError", "code": 500}


def _channels(request: StreamRequest) -> list[str]:
    """Return the channels wanted; a terminal has no stderr of its own."""
    wanted = [each for each in ("stdin", "stdout", "stderr") if request.flag(each)]
    return [each for each in wanted if each != "stderr" or not request.flag("tty")]


async def _converse(
    console: Console,
    start: Callable[[], Awaitable[Connection]],
    ended: Callable[[], Awaitable[JsonObject]],
    resize: Sized,
    *,
    tty: bool,
    ends: bool = True,
) -> None:
    try:
        process = await start()
    except Minik8sError as error:
        await console.finish(_failure(error))
        return
    told = asyncio.create_task(_feed(console, process, resize, ends=ends))
    output = asyncio.create_task(_copy_output(process, console, tty=tty))
    try:
        done, _ = await asyncio.wait({told, output}, return_when=asyncio.FIRST_COMPLETED)
        if output in done and output.exception() is None:
            told.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await told
            await console.finish(await _status(ended))
    finally:
        told.cancel()
        output.cancel()
        process.close()
        console.close()
        await asyncio.gather(told, output, return_exceptions=True)


async def _status(ended: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
    try:
        return await ended()
    except Minik8sError as error:
        return _failure(error)


async def _feed(console: Console, process: Connection, resize: Sized, *, ends: bool) -> None:
    """Give the process what the client says, the end of it too if it ``ends``; return when the client is gone."""
    while (said := await console.receive()) is not None:
        if isinstance(said, Stdin):
            with contextlib.suppress(OSError):  # the process reads no more; its output tells the end
                await process.write(said.data)
        elif isinstance(said, StdinEnd):
            if ends:
                process.end_writing()
        else:
            await resize(said)


async def _copy_output(process: Connection, console: Console, *, tty: bool) -> None:
    frames = demultiplexer(tty=tty)
    while data := await process.read():
        for channel, piece in frames.feed(data):
            if channel in (STDOUT, STDERR):
                await console.send(channel, piece)


def _resizer(docker: Dockerd, path: str) -> Sized:
    async def resize(size: Resize) -> None:
        try:
            await docker.call("POST", f"{path}/resize", {"h": str(size.height), "w": str(size.width)})
        except Minik8sError as error:
            log.debug("resize: %s", error)  # the process has ended, or has no terminal

    return resize


async def _exit_status(docker: Dockerd, path: str) -> JsonObject:
    for _ in range(_EXIT_TRIES):
        try:
            seen = await docker.call("GET", f"{path}/json")
        except DockerRefused:
            break
        if not seen["Running"] and seen["ExitCode"] is not None:
            return exit_status(int(seen["ExitCode"]))
        await asyncio.sleep(_EXIT_PAUSE_S)
    return _failure(Minik8sError("the command's output ended, but Docker does not tell how the command did"))
