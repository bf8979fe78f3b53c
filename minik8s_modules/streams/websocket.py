"""WebSocket from the server's side, on a connection whose request head was read already (wsproto does the frames).

Protocols with ``base64`` in their names carry text: behind the channel's number, a digit, or from the beginning, comes
base64. Whoever reads and writes here has bytes all the same. Source: k8s.io/apiserver ``util/wsstream``.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.utilities import ProtocolError

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.requests import StreamRequest

MESSAGE_BYTES = 4 * 1024 * 1024


def offered(request: StreamRequest) -> list[str]:
    """Return the subprotocols the client offers."""
    return [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",") if each.strip()]


def chosen(request: StreamRequest, supported: Sequence[str]) -> str | None:
    """Return the first of the ``supported`` subprotocols that the client offers; "" is for one that offers none."""
    found = offered(request) or [""]
    return next((each for each in supported if each in found), None)


async def accept(client: Connection, request: StreamRequest, protocol: str) -> WebSocket:
    """Answer the upgrade with ``protocol`` ("" for none) and return the WebSocket.

    Raises:
        BadRequest: the request's headers are not those of a WebSocket.
    """
    made = WSConnection(ConnectionType.SERVER)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers.items()]
    try:
        made.initiate_upgrade_connection(headers, request.target)
        if not any(isinstance(event, Request) for event in made.events()):
            raise BadRequest("the request is not a WebSocket upgrade")
        answer = made.send(AcceptConnection(subprotocol=protocol or None))
    except ProtocolError as error:
        raise BadRequest(f"the request is not a WebSocket upgrade: {error}") from error
    await client.write(answer)
    if "base64.binary" in protocol:
        return TextSocket(client, made)
    return ChannelTextSocket(client, made) if "base64.channel" in protocol else WebSocket(client, made)


class WebSocket:
    """Whole messages in and out; ``read`` and ``write`` make it a byte stream whose pieces are messages."""

    def __init__(self, client: Connection, made: WSConnection) -> None:
        self._client = client
        self._made = made
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._messages: list[bytes] = []
        self._ended = False

    async def receive(self) -> bytes | None:
        """Return the next message, None at the end; text comes as its bytes."""
        while not self._messages and not self._ended:
            data = await self._client.read()
            if not data:
                self._ended = True
                break
            try:
                self._made.receive_data(data)
                for event in self._made.events():
                    await self._on_event(event)
            except ProtocolError:
                self._ended = True
        return self._messages.pop(0) if self._messages else None

    async def read(self) -> bytes:
        """Return the next message that is not empty, b"" at the end."""
        while (message := await self.receive()) is not None:
            if message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        """Send one message and wait while the client does not read; OSError when it is gone."""
        await self._send(BytesMessage(data=data))

    async def finish(self) -> None:
        """Say goodbye."""
        with contextlib.suppress(OSError):
            await self._send(CloseConnection(code=1000))

    async def write_text(self, text: str) -> None:
        """Send one message of text. Raises as ``write``."""
        await self._send(TextMessage(data=text))

    async def _send(self, event: Event) -> None:
        try:
            data = self._made.send(event)
        except ProtocolError as error:
            raise ConnectionResetError(f"the WebSocket is closed: {error}") from error
        await self._client.write(data)

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, BytesMessage | TextMessage):
            self._on_message(event)
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            self._ended = True
            with contextlib.suppress(OSError):
                await self._send(event.response())

    def _on_message(self, event: BytesMessage | TextMessage) -> None:
        data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        self._partial.append(data)
        self._partial_bytes += len(data)
        if self._partial_bytes > MESSAGE_BYTES:
            self._ended = True
        elif event.message_finished:
            self._messages.append(b"".join(self._partial))
            self._partial, self._partial_bytes = [], 0


class TextSocket(WebSocket):
    """Messages of base64; what the client says is left as it is."""

    async def write(self, data: bytes) -> None:
        """Send one message. Raises OSError when the client is gone."""
        await self.write_text(base64.b64encode(data).decode())


class ChannelTextSocket(WebSocket):
    """Messages of a channel's digit and base64, as bytes: the channel's number and what was said."""

    async def write(self, data: bytes) -> None:
        """Send one message. Raises OSError when the client is gone."""
        await self.write_text(f"{data[0]}{base64.b64encode(data[1:]).decode()}")

    async def receive(self) -> bytes | None:
        """Return the next message, None at the end; one that cannot be read is empty."""
        message = await super().receive()
        if message is None or not message[:1].isdigit():
            return None if message is None else b""
        try:
            return bytes([int(message[:1])]) + base64.b64decode(message[1:], validate=True)
        except ValueError:
            return b""
