"""port-forward: each connection the client opens becomes one to the pod's address, from its node.

kubectl opens two SPDY streams a connection (``streamtype`` data and error, paired by ``requestid``), on SPDY itself or
inside the messages of a WebSocket (``SPDY/3.1+portforward.k8s.io``). Python's clients name their ports in the request
and use two channels of a WebSocket a port (``v4.channel.k8s.io``, its form in base64, or no subprotocol, as kr8s), each
beginning with the port's number.
Source: kubelet ``pkg/kubelet/cri/streaming/portforward``, KEP-4006.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.streams import websocket
from minik8s_modules.streams.asking import Conversation
from minik8s_modules.streams.connections import Bytes, Connection, adopt
from minik8s_modules.streams.consoles import V4, V4_TEXT, accept_spdy
from minik8s_modules.streams.inbox import Inbox
from minik8s_modules.streams.passing import Packet
from minik8s_modules.streams.requests import StreamRequest
from minik8s_modules.streams.spdy import SpdyError, SpdySession, SpdyStream
from minik8s_modules.streams.websocket import WebSocket

PROTOCOL = "portforward.k8s.io"
# what the client still sends once the pod has ended its side (containerd waits as long)
LAST_WORDS_S = 1.0
TUNNELLED = f"SPDY/3.1+{PROTOCOL}"


class Pipe(Protocol):
    """One of the client's streams."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the client is gone."""

    async def finish(self) -> None:
        """Say that nothing more will be written."""


class Reaching(Protocol):
    """A connection to a port of the pod."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the pod is gone."""

    def end_writing(self) -> None:
        """Say that nothing more will be written."""

    async def failure(self) -> str:
        """Return why the connection was never made; asked once what came from it has ended."""

    async def close(self) -> None:
        """End it."""


class Pod(NamedTuple):
    """Where connections go, and how they are made; a ``StatusError`` says why there is none."""

    name: str
    reach: Callable[[int], Awaitable[Reaching]]


class Reached:
    """A connection to a port of the pod: one socket, or through ssh one for each direction."""

    def __init__(self, reads: Connection, writes: Connection, talk: Conversation) -> None:
        self._reads, self._writes, self._talk = reads, writes, talk
        self.read = reads.read
        self.write = writes.write
        self.end_writing = writes.end_writing

    async def failure(self) -> str:
        """Return why the connection was never made; asked once what came from it has ended."""
        return str((await self._talk.say({"do": "failure"})).message["words"])

    async def close(self) -> None:
        """End it."""
        self._reads.abort()
        self._writes.abort()
        await self._talk.close()


async def reach(asking: Conversation, port: int) -> Reached:
    """Return a connection to the pod's ``port``, made by the gateway, which knows the pod's address.

    Raises:
        StatusError: there is none; its message says why.
    """
    packet = await asking.say({"do": "connect", "port": port})
    talk = Conversation(packet.descriptors[0].socket())
    try:
        found = [await adopt(each.socket()) for each in (await talk.answer()).descriptors]
    except BaseException:
        await talk.close()
        raise
    return Reached(found[0], found[-1], talk)


async def serve(client: Connection, request: StreamRequest, talk: Conversation, _: Packet) -> None:
    """Forward until the client is gone. Raises StatusError before the upgrade was answered."""
    await serve_to(client, request, Pod(request.pod, partial(reach, talk)))


async def serve_to(client: Connection, request: StreamRequest, pod: Pod) -> None:
    """Forward to ``pod`` until the client is gone. Raises StatusError before the upgrade was answered."""
    upgrade = request.headers.get("upgrade", "").lower()
    protocol = websocket.chosen(request, (TUNNELLED, V4, V4_TEXT, ""))
    if upgrade == "spdy/3.1":
        await accept_spdy(client, request, PROTOCOL)
        await _serve_spdy(client, pod)
    elif upgrade == "websocket" and protocol == TUNNELLED:
        await _serve_spdy(await websocket.accept(client, request, TUNNELLED), pod)
    elif upgrade == "websocket" and protocol is not None:
        ports = [int(port) for port in request.options.get("ports", [])]
        if not ports:
            raise BadRequest("query parameter 'ports' must name the ports to forward")
        await _serve_channels(await websocket.accept(client, request, protocol), pod, ports)
    else:
        raise BadRequest(f"unable to upgrade: use WebSocket with {TUNNELLED} or {V4}, or SPDY/3.1")


async def _serve_spdy(peer: Bytes, pod: Pod) -> None:
    session = SpdySession(peer)
    waiting: dict[str, SpdyStream] = {}
    running: set[asyncio.Task[None]] = set()
    reading = asyncio.create_task(session.run())
    try:
        async for stream in session.streams():
            other = waiting.pop(stream.headers.get("requestid", ""), None)
            if other is None:
                waiting[stream.headers.get("requestid", "")] = stream
                continue
            pair = {each.headers.get("streamtype", ""): each for each in (stream, other)}
            task = asyncio.create_task(_forward_pair(session, pair, pod))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        for task in (reading, *running):
            task.cancel()
        ended = await asyncio.gather(reading, *running, return_exceptions=True)
    if isinstance(ended[0], SpdyError):
        raise ConnectionAbortedError(str(ended[0])) from ended[0]


async def _forward_pair(session: SpdySession, pair: dict[str, SpdyStream], pod: Pod) -> None:
    data, errors = pair.get("data"), pair.get("error")
    try:
        if data is not None and errors is not None:
            await _forward(data, errors, pod, int(data.headers.get("port", "0")))
    except (OSError, ValueError):
        return  # the client is gone, or has reset the stream
    finally:
        for stream in pair.values():
            session.forget(stream)


async def _serve_channels(socket: WebSocket, pod: Pod, ports: list[int]) -> None:
    data = [_Channel(socket, 2 * index, port) for index, port in enumerate(ports)]
    errors = [_Channel(socket, 2 * index + 1, port) for index, port in enumerate(ports)]
    for channel in (*data, *errors):
        await channel.begin()
    forwards = [
        asyncio.create_task(_forward(out, error, pod, port))
        for out, error, port in zip(data, errors, ports, strict=True)
    ]
    reading = asyncio.create_task(_distribute(socket, data))
    try:
        await asyncio.wait(forwards)
        await socket.finish()
    finally:
        for task in (reading, *forwards):
            task.cancel()
        await asyncio.gather(reading, *forwards, return_exceptions=True)


async def _distribute(socket: WebSocket, channels: list[_Channel]) -> None:
    while (message := await socket.receive()) is not None:
        number = message[0] if message else 1
        if number % 2 == 0 and number // 2 < len(channels):
            await channels[number // 2].inbox.put(message[1:])
    for channel in channels:
        channel.inbox.end()


class _Channel:
    """One channel of a WebSocket as a pipe; it cannot say its end."""

    def __init__(self, socket: WebSocket, number: int, port: int) -> None:
        self._socket = socket
        self._mark = bytes([number])
        self._port = port
        self.inbox = Inbox()

    async def begin(self) -> None:
        await self._socket.write(self._mark + struct.pack("<H", self._port))

    async def read(self) -> bytes:
        return await self.inbox.take()

    async def write(self, data: bytes) -> None:
        await self._socket.write(self._mark + data)

    async def finish(self) -> None:
        return


async def _forward(data: Pipe, errors: Pipe, pod: Pod, port: int) -> None:
    """Carry one connection to its end; what goes wrong at the pod is told on ``errors``."""
    try:
        reached = await pod.reach(port)
    except StatusError as error:
        await _tell(data, errors, pod, port, str(error))
        return
    up = asyncio.create_task(_copy_up(data, reached))
    down = asyncio.create_task(_copy_down(reached, data))
    try:
        await down
        if failure := await _failure(reached):
            await _tell(data, errors, pod, port, failure)
            return
        await errors.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await up
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        await reached.close()


async def _failure(reached: Reaching) -> str:
    with contextlib.suppress(TimeoutError, StatusError):
        async with asyncio.timeout(1.0):
            return await reached.failure()
    return ""


async def _tell(data: Pipe, errors: Pipe, pod: Pod, port: int, why: str) -> None:
    text = f"error forwarding port {port} to pod {pod.name}: {why}"
    await errors.write(text.encode())
    await errors.finish()
    await data.finish()


async def _copy_up(data: Pipe, reached: Reaching) -> None:
    try:
        while piece := await data.read():
            await reached.write(piece)
        reached.end_writing()
    except OSError:
        return  # the pod reads no more; what it still says goes on


async def _copy_down(reached: Reaching, data: Pipe) -> None:
    while piece := await reached.read():
        await data.write(piece)
    await data.finish()
