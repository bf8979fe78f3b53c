"""The client's side of exec and attach: stdin, sizes and the end of stdin come in; output and the end's status go out.

Two wire forms, one interface. WebSocket (``v5.channel.k8s.io``, ``v4.channel.k8s.io``, its form in base64, and the
first version, ``channel.k8s.io`` or no name): the first byte of a message is the channel; 255 closes the channel named
after it (v5 only: with the others stdin never ends). The first version tells a failure in words. SPDY
(``v4.channel.k8s.io``): a stream each, named by its header ``streamtype``. Source: KEP-4006, k8s.io/apimachinery
``util/remotecommand``, kubelet ``pkg/kubelet/cri/streaming/remotecommand/websocket.go``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api.errors import BadRequest, StatusError
from minik8s_modules.streams import websocket
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.frames import ERROR, RESIZE, STDERR, STDIN, STDOUT
from minik8s_modules.streams.requests import StreamRequest
from minik8s_modules.streams.spdy import SpdyError, SpdySession, SpdyStream, goodbye
from minik8s_modules.streams.websocket import WebSocket

V5, V4, V4_TEXT = "v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"
_WITH_STATUS = (V5, V4, V4_TEXT)
_SUPPORTED = (*_WITH_STATUS, "channel.k8s.io", "base64.channel.k8s.io", "")
_CLOSE = 255
# the kubelet's streamCreationTimeout
STREAMS_S = 30.0
# the client closes when it has read the status; its last bytes are waited for that long
GOODBYE_S = 2.0
_FORBIDDEN = 403
_NAMES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
_UPGRADED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: %s\r\n\r\n"
)


class Stdin(NamedTuple):
    """Bytes for the process."""

    data: bytes


class StdinEnd(NamedTuple):
    """Nothing more comes on stdin."""


class Resize(NamedTuple):
    """The client's terminal has that size now."""

    height: int
    width: int


Input = Stdin | StdinEnd | Resize


class Console(Protocol):
    """See the module's docstring."""

    async def receive(self) -> Input | None:
        """Return what the client says next, None when it is gone."""

    async def send(self, channel: int, data: bytes) -> None:
        """Send output on STDOUT or STDERR; OSError when the client is gone."""

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended and say goodbye."""

    def close(self) -> None:
        """Give up what it runs; the connection is its owner's."""


async def open_console(client: Connection, request: StreamRequest, channels: Sequence[str]) -> Console:
    """Answer the upgrade and return the console; ``channels`` are the wanted ones of stdin, stdout, stderr.

    Raises:
        BadRequest: the client asks for an upgrade or protocol that is not supported.
    """
    upgrade = request.headers.get("upgrade", "").lower()
    if upgrade == "websocket":
        protocol = websocket.chosen(request, _SUPPORTED)
        if protocol is None:
            text = ", ".join(filter(None, _SUPPORTED))
            raise BadRequest(f"unable to upgrade: the supported WebSocket subprotocols are {text}")
        socket = await websocket.accept(client, request, protocol)
        # the client learns by an empty message that the stream is there
        await socket.write(bytes([STDOUT if "stdout" in channels else ERROR]))
        return WebSocketConsole(socket, with_status=protocol in _WITH_STATUS)
    if upgrade == "spdy/3.1":
        await accept_spdy(client, request, V4)
        return await SpdyConsole.make(SpdySession(client), {*channels, "error", *_resize(request)})
    raise BadRequest(f'unable to upgrade: "{upgrade}" is not supported; use WebSocket or SPDY/3.1')


def _resize(request: StreamRequest) -> list[str]:
    return ["resize"] if request.flag("tty") else []


async def accept_spdy(client: Connection, request: StreamRequest, protocol: str) -> None:
    """Answer an upgrade to SPDY. Raises StatusError when the client does not speak ``protocol``."""
    offered = [each.strip() for each in request.headers.get("x-stream-protocol-version", "").split(",")]
    if protocol not in offered:
        raise StatusError(_FORBIDDEN, "Forbidden", f"unable to upgrade: none of {offered} is supported; use {protocol}")
    await client.write(_UPGRADED % protocol.encode())


def size_of(data: bytes) -> Resize | None:
    """Return the size a resize message tells, None when it tells none."""
    try:
        size = json.loads(data)
        return Resize(int(size["Height"]), int(size["Width"]))
    except (ValueError, KeyError, TypeError):
        return None


class WebSocketConsole:
    """A console over channels of a WebSocket; without a status only words tell how it ended, and nothing a success."""

    def __init__(self, socket: WebSocket, *, with_status: bool) -> None:
        self._socket = socket
        self._with_status = with_status

    async def receive(self) -> Input | None:
        """Return what the client says next, None when it is gone."""
        while (message := await self._socket.receive()) is not None:
            channel, data = message[:1], message[1:]
            if channel == bytes([STDIN]) and data:
                return Stdin(data)
            if channel == bytes([_CLOSE]) and data == bytes([STDIN]):
                return StdinEnd()
            if channel == bytes([RESIZE]) and (size := size_of(data)):
                return size
        return None

    async def send(self, channel: int, data: bytes) -> None:
        """Send output; OSError when the client is gone."""
        await self._socket.write(bytes([channel]) + data)

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended and say goodbye."""
        if message := json.dumps(status) if self._with_status else status.get("message", ""):
            await self._socket.write(bytes([ERROR]) + message.encode())
        await self._socket.finish()
        try:
            async with asyncio.timeout(GOODBYE_S):
                while await self._socket.receive() is not None:
                    pass
        except TimeoutError:
            return

    def close(self) -> None:
        """Do nothing: nothing runs."""


class SpdyConsole:
    """A console over streams of a SPDY session."""

    def __init__(self, running: asyncio.Task[None], streams: dict[str, SpdyStream]) -> None:
        self._running = running
        self._streams = {_NAMES[name]: stream for name, stream in streams.items()}
        self._inputs: asyncio.Queue[Input | None] = asyncio.Queue(maxsize=1)
        self._tasks = [asyncio.create_task(self._follow())]
        if STDIN in self._streams:
            self._tasks.append(asyncio.create_task(self._read_stdin(self._streams[STDIN])))
        if RESIZE in self._streams:
            self._tasks.append(asyncio.create_task(self._read_sizes(self._streams[RESIZE])))

    @classmethod
    async def make(cls, session: SpdySession, wanted: set[str]) -> SpdyConsole:
        """Wait until the client has opened the ``wanted`` streams.

        Raises:
            OSError: it did not within 30 s, or is gone.
        """
        running = asyncio.create_task(session.run())
        found: dict[str, SpdyStream] = {}
        try:
            async with asyncio.timeout(STREAMS_S):
                async for stream in session.streams():
                    found[stream.headers.get("streamtype", "")] = stream
                    if wanted <= set(found):
                        return cls(running, {name: found[name] for name in wanted})
        except TimeoutError as error:
            running.cancel()
            raise ConnectionAbortedError("the client did not open its streams within 30 s") from error
        except BaseException:
            running.cancel()
            raise
        raise ConnectionResetError("the client ended the session before it had opened its streams")

    async def receive(self) -> Input | None:
        """Return what the client says next, None when it is gone."""
        return await self._inputs.get()

    async def send(self, channel: int, data: bytes) -> None:
        """Send output; OSError when the client is gone."""
        stream = self._streams.get(channel) or self._streams[STDOUT]
        await stream.write(data)

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended and say goodbye."""
        for channel in (STDOUT, STDERR):
            if stream := self._streams.get(channel):
                await stream.finish()
        await self._streams[ERROR].write(json.dumps(status).encode())
        await self._streams[ERROR].finish()
        await goodbye(self._running, GOODBYE_S)
        self.close()

    def close(self) -> None:
        """End the tasks."""
        for task in (*self._tasks, self._running):
            task.cancel()

    async def _follow(self) -> None:
        with contextlib.suppress(SpdyError, OSError):
            await asyncio.shield(self._running)
        await self._inputs.put(None)

    async def _read_stdin(self, stream: SpdyStream) -> None:
        while data := await stream.read():
            await self._inputs.put(Stdin(data))
        await self._inputs.put(StdinEnd())

    async def _read_sizes(self, stream: SpdyStream) -> None:
        decoder = json.JSONDecoder()
        text = ""
        while data := await stream.read():
            text += data.decode("utf-8", "replace")
            while text := text.lstrip():
                try:
                    _, end = decoder.raw_decode(text)
                except ValueError:
                    break  # the rest is still to come
                if size := size_of(text[:end].encode()):
                    await self._inputs.put(size)
                text = text[end:]
