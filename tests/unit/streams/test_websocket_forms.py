"""The forms that WebSocket takes for exec and logs, from a client's bytes to the console and back."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request, TextMessage

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.streams import websocket
from minik8s_modules.streams.connections import adopt
from minik8s_modules.streams.consoles import Console, Stdin, open_console
from minik8s_modules.streams.frames import STDERR, STDOUT
from minik8s_modules.streams.requests import StreamRequest, parse

FAILURE = {"status": "Failure", "message": "command terminated with non-zero exit code: exit status 3"}
CLOSE = bytes([0x88, 0x82, 0, 0, 0, 0]) + (1000).to_bytes(2, "big")
PATH = "/nodes/n/pods/u/exec?namespace=default&pod=p&stdin=true&stdout=true"


class Peer:
    """A client that asks for ``protocols``; what it is told stands in ``said`` once the conversation is over."""

    def __init__(self, *protocols: str) -> None:
        self._made = WSConnection(ConnectionType.CLIENT)
        head = self._made.send(Request(host="gateway", target=PATH, subprotocols=list(protocols)))
        self.request: StreamRequest = parse(head.removesuffix(b"\r\n\r\n"))
        self.ours, self.theirs = socket.socketpair()
        self.said: list[bytes | str] = []
        self.subprotocol: str | None = None

    def write(self, data: bytes | str) -> None:
        """Say one message (RFC 6455, 5.2), masked with zeros."""
        sent = data.encode() if isinstance(data, str) else data
        kind = 1 if isinstance(data, str) else 2
        self.ours.sendall(bytes([0x80 | kind, 0x80 | len(sent)]) + bytes(4) + sent)

    def read(self) -> None:
        """Take all that has come."""
        self.theirs.close()
        while data := self.ours.recv(65536):
            self._made.receive_data(data)
        self.ours.close()
        for event in self._made.events():
            if isinstance(event, AcceptConnection):
                self.subprotocol = event.subprotocol
            elif isinstance(event, BytesMessage | TextMessage):
                self.said.append(event.data if isinstance(event.data, str) else bytes(event.data))


def talk(peer: Peer, status: dict[str, Any], said: bytes | str = b"") -> list[object]:
    """Open a console for ``peer``, which says something; send output and a status; return what the console was told."""
    heard: list[object] = []

    async def conversation() -> None:
        client = await adopt(peer.theirs)
        try:
            console: Console = await open_console(client, peer.request, ["stdout"])
            if said:
                peer.write(said)
                heard.append(await console.receive())
            await console.send(STDOUT, b"out")
            await console.send(STDERR, b"")
            peer.ours.sendall(CLOSE)
            await console.finish(status)
        finally:
            client.close()
            await client.closed()

    asyncio.run(conversation())
    peer.read()
    return heard


def text(channel: int, data: bytes) -> str:
    return f"{channel}{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("protocols", [(), ("channel.k8s.io",), ("unknown", "channel.k8s.io")])
def test_the_first_version(protocols: tuple[str, ...]) -> None:
    peer = Peer(*protocols)
    assert talk(peer, FAILURE, b"\x00typed") == [Stdin(b"typed")]
    assert peer.subprotocol == (protocols[-1] if protocols else None)
    assert peer.said == [b"\x01", b"\x01out", b"\x02", b"\x03" + FAILURE["message"].encode()]


def test_the_first_version_tells_no_success() -> None:
    peer = Peer("channel.k8s.io")
    talk(peer, {"status": "Success", "metadata": {}})
    assert peer.said == [b"\x01", b"\x01out", b"\x02"]


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_later_versions_tell_a_status(protocol: str) -> None:
    peer = Peer("channel.k8s.io", protocol)
    talk(peer, FAILURE)
    assert peer.subprotocol == protocol
    assert isinstance(peer.said[-1], bytes)
    assert (peer.said[-1][:1], json.loads(peer.said[-1][1:])) == (b"\x03", FAILURE)


@pytest.mark.parametrize("protocol", ["base64.channel.k8s.io", "v4.base64.channel.k8s.io"])
def test_base64(protocol: str) -> None:
    peer = Peer(protocol)
    assert talk(peer, FAILURE, text(0, b"typed\xff")) == [Stdin(b"typed\xff")]
    assert peer.said[:3] == [text(1, b""), text(1, b"out"), text(2, b"")]
    message = base64.b64decode(str(peer.said[3])[1:])
    assert message == (json.dumps(FAILURE).encode() if protocol.startswith("v4") else FAILURE["message"].encode())


@pytest.mark.parametrize("protocols", [("v3.channel.k8s.io",), ("chat", "v6.channel.k8s.io")])
def test_what_is_not_spoken_is_refused(protocols: tuple[str, ...]) -> None:
    """Also where the empty name would do: who offers something expects it."""
    peer = Peer(*protocols)
    with pytest.raises(BadRequest, match="supported WebSocket subprotocols are"):
        talk(peer, FAILURE)
    peer.ours.close()


@pytest.mark.parametrize(
    ("bad", "read"), [("x", b""), ("0%%", b""), ("", b""), ("0dGVzdA==", b"\x00test"), ("9", b"\x09")]
)
def test_messages_of_base64_that_cannot_be_read_are_empty(bad: str, read: bytes) -> None:
    async def received() -> bytes | None:
        peer = Peer("base64.channel.k8s.io")
        client = await adopt(peer.theirs)
        opened = await websocket.accept(client, peer.request, "base64.channel.k8s.io")
        peer.write(bad)
        try:
            return await opened.receive()
        finally:
            client.close()
            peer.ours.close()

    assert asyncio.run(received()) == read


def test_a_log_in_base64_has_no_channel() -> None:
    peer = Peer("base64.binary.k8s.io")

    async def reported() -> None:
        client = await adopt(peer.theirs)
        opened = await websocket.accept(client, peer.request, "base64.binary.k8s.io")
        await opened.write(b"a line\n")
        await opened.finish()
        client.close()
        await client.closed()

    asyncio.run(reported())
    peer.read()
    assert peer.said == [base64.b64encode(b"a line\n").decode()]
