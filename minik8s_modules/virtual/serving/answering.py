"""Logs, exec, attach, port-forward and figures, answered by a provider in a thread; the client's side is ``streams``'.

What a provider raises before anything was answered is the answer: ``NotFound`` 404, ``InvalidInput`` 400,
``Unsupported`` 501, everything else 500.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.streams.commands import SUCCESS, exit_status
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.consoles import Console, Resize, Stdin, StdinEnd, open_console
from minik8s_modules.streams.forwarding import Pod, Reaching, serve_to
from minik8s_modules.streams.frames import STDERR, STDOUT
from minik8s_modules.streams.logs import HEAD, Chunks
from minik8s_modules.virtual.errors import is_invalid_input, is_not_found, is_unsupported
from minik8s_modules.virtual.provider import AttachIO, Provider, TermSize
from minik8s_modules.virtual.serving.bridging import End, Threads, bridge
from minik8s_modules.virtual.serving.requests import KubeletRequest, log_options


class RoutedRequest(NamedTuple):
    """A request with who answers it."""

    request: KubeletRequest
    provider: Provider
    threads: Threads


def status_of(error: BaseException) -> StatusError:
    """Return what a provider's error is to a client."""
    if isinstance(error, StatusError):
        return error
    code, reason = HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError"
    for holds, found, called in (
        (is_not_found, HTTPStatus.NOT_FOUND, "NotFound"),
        (is_invalid_input, HTTPStatus.BAD_REQUEST, "BadRequest"),
        (is_unsupported, HTTPStatus.NOT_IMPLEMENTED, "NotImplemented"),
    ):
        if holds(error):
            code, reason = found, called
    return StatusError(code, reason, str(error) or type(error).__name__)


# --- logs -------------------------------------------------------------------------------------------


async def serve_log(client: Connection, asked: RoutedRequest) -> None:
    """Send a container's log. Raises StatusError before anything was written."""
    request = asked.request
    ours, end = await bridge()
    try:
        options = log_options(request)
        chunks = await asked.threads.run(
            lambda: _begun(
                asked.provider.get_container_logs(request.namespace, request.pod, request.container, options)
            )
        )
    except Exception as error:
        end.close()
        ours.close()
        raise status_of(error) from error
    work = asyncio.ensure_future(asked.threads.run(lambda: _pour(chunks, end, options.limit_bytes)))
    try:
        await client.write(HEAD)
        reader = Chunks(client)
        while data := await ours.read():
            await reader.write(data)
        await work  # what failed in the middle cuts the answer short, without its last chunk
        await reader.finish()
    finally:
        ours.abort()
        work.cancel()


def _begun(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Return ``chunks`` once the first one is there: it tells whether there is such a log."""
    try:
        first = next(chunks)
    except StopIteration:
        return iter(())
    return _joined(first, chunks)


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield first
        yield from rest
    finally:
        _close(rest)


def _pour(chunks: Iterator[bytes], end: End, limit: int) -> None:
    left = limit
    try:
        for chunk in chunks:
            data = chunk[:left] if limit else chunk
            left -= len(data)
            if (data and not _written(end, data)) or (not data and end.is_gone()) or (limit and left <= 0):
                return
    finally:
        _close(chunks)
        end.close()


def _written(end: End, data: bytes) -> bool:
    try:
        end.write(data)
    except BrokenPipeError:
        return False
    return True


def _close(chunks: Iterator[bytes]) -> None:
    close: Callable[[], None] | None = getattr(chunks, "close", None)
    if close is not None:
        close()


# --- exec and attach --------------------------------------------------------------------------------


async def serve_exec(client: Connection, asked: RoutedRequest) -> None:
    """Run a command. Raises StatusError before the upgrade was answered."""
    command = asked.request.stream.options.get("command", [])
    if not command:
        raise StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", "no command is given")
    request, provider = asked.request, asked.provider

    def run(streams: AttachIO) -> int:
        return provider.run_in_container(request.namespace, request.pod, request.container, list(command), streams)

    await _converse(client, asked, run)


async def serve_attach(client: Connection, asked: RoutedRequest) -> None:
    """Join a container's own streams. Raises StatusError before the upgrade was answered."""
    request, provider = asked.request, asked.provider

    def run(streams: AttachIO) -> int:
        provider.attach_to_container(request.namespace, request.pod, request.container, streams)
        return 0

    await _converse(client, asked, run)


class _Pipes(NamedTuple):
    """The loop's sides and the thread's, by the name of the stream."""

    ours: dict[str, Connection]
    ends: dict[str, End]
    streams: AttachIO


async def _converse(client: Connection, asked: RoutedRequest, run: Callable[[AttachIO], int]) -> None:
    channels = asked.request.stream.channels()
    console = await open_console(client, asked.request.stream, channels)
    pipes = await _pipes(channels, tty=asked.request.stream.flag("tty"))

    def work() -> int:
        try:
            return run(pipes.streams)
        finally:
            for end in pipes.ends.values():
                end.close()

    running = asyncio.ensure_future(asked.threads.run(work))
    feeding = asyncio.create_task(_feed(console, pipes))
    outputs = [
        asyncio.create_task(_copy(pipes.ours[name], console, channel))
        for name, channel in (("stdout", STDOUT), ("stderr", STDERR))
        if name in pipes.ours
    ]
    try:
        await asyncio.wait({running, feeding}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            return  # the client has gone
        await asyncio.gather(*outputs)
        await console.finish(_ended(running))
    finally:
        for task in (feeding, *outputs):
            task.cancel()
        for each in pipes.ours.values():
            each.abort()
        console.close()
        await asyncio.gather(feeding, *outputs, return_exceptions=True)


async def _pipes(channels: list[str], *, tty: bool) -> _Pipes:
    made = {name: await bridge() for name in channels}
    ends = {name: end for name, (_, end) in made.items()}
    streams = AttachIO(ends.get("stdin"), ends.get("stdout"), ends.get("stderr"), tty)
    return _Pipes({name: ours for name, (ours, _) in made.items()}, ends, streams)


async def _feed(console: Console, pipes: _Pipes) -> None:
    """Give the provider what the client says; return when the client is gone."""
    while (said := await console.receive()) is not None:
        if isinstance(said, Resize):
            pipes.streams.resize.put(TermSize(said.width, said.height))
        elif "stdin" in pipes.ours:
            await _say(pipes.ours["stdin"], said)


async def _say(stdin: Connection, said: Stdin | StdinEnd) -> None:
    with contextlib.suppress(OSError):  # the provider reads no more; its end tells why
        if isinstance(said, Stdin):
            await stdin.write(said.data)
        else:
            stdin.end_writing()


async def _copy(output: Connection, console: Console, channel: int) -> None:
    while data := await output.read():
        await console.send(channel, data)


def _ended(running: asyncio.Future[int]) -> dict[str, object]:
    error = running.exception()
    if error is None:
        return exit_status(running.result()) if running.result() else dict(SUCCESS)
    status = status_of(error)
    return {"metadata": {}, "status": "Failure", "message": str(status), "reason": status.reason, "code": status.code}


# --- port-forward -----------------------------------------------------------------------------------


async def serve_forward(client: Connection, asked: RoutedRequest) -> None:
    """Forward connections until the client is gone. Raises StatusError before the upgrade was answered."""
    request = asked.request

    async def reach(port: int) -> Reaching:
        ours, end = await bridge()

        def work() -> None:
            try:
                asked.provider.port_forward(request.namespace, request.pod, port, end)
            finally:
                end.close()

        return _Forwarded(ours, asyncio.ensure_future(asked.threads.run(work)))

    await serve_to(client, request.stream, Pod(request.pod, reach))


class _Forwarded:
    """One forwarded connection, which the provider serves in its thread."""

    def __init__(self, ours: Connection, work: asyncio.Future[None]) -> None:
        self._ours, self._work = ours, work
        self.read, self.write, self.end_writing = ours.read, ours.write, ours.end_writing

    async def failure(self) -> str:
        """Return what the provider raised, "" for nothing."""
        try:
            await asyncio.shield(self._work)
        except Exception as error:  # noqa: BLE001 - told to the client, whatever it is
            return str(error) or type(error).__name__
        return ""

    async def close(self) -> None:
        """End it; the provider notices."""
        self._ours.abort()
        self._work.add_done_callback(lambda done: done.cancelled() or done.exception())
