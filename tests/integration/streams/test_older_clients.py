"""What Python's Kubernetes client speaks: WebSocket ``v4.channel.k8s.io``, also for port-forward."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request

from tests.integration.streams.conftest import Streaming
from tests.integration.streams.test_forwarding import servers


class Client:
    """A WebSocket to the API server; ``messages`` yields (channel, data) to the end."""

    def __init__(self, streaming: Streaming, path: str, *protocols: str) -> None:
        plain = socket.create_connection(("127.0.0.1", streaming.server.port), timeout=15)
        context: ssl.SSLContext = streaming.server.context(streaming.server.admin)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._made = WSConnection(ConnectionType.CLIENT)
        self._socket.sendall(self._made.send(Request(host="x", target=path, subprotocols=list(protocols))))
        self._events: list[object] = []
        first = self._next()
        self.accepted = isinstance(first, AcceptConnection)
        self.status = 101 if self.accepted else getattr(first, "status_code", 0)
        self.pongs = 0

    def _next(self) -> object:
        while not self._events:
            data = self._socket.recv(65536)
            self._made.receive_data(data or None)
            self._events += list(self._made.events())
        return self._events.pop(0)

    def send(self, channel: int, data: bytes) -> None:
        """Send one message."""
        self._socket.sendall(self._made.send(BytesMessage(data=bytes([channel]) + data)))

    def ping(self) -> None:
        """Send a ping."""
        self._socket.sendall(self._made.send(Ping(payload=b"there?")))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield what comes."""
        part = b""
        while True:
            event = self._next()
            if isinstance(event, CloseConnection):
                self._socket.close()
                return
            if isinstance(event, Pong):
                self.pongs += 1
            if isinstance(event, BytesMessage):
                part += event.data
                if event.message_finished:
                    yield part[0], part[1:]
                    part = b""


def test_exec_tells_the_exit_code_on_channel_3(streaming: Streaming) -> None:
    streaming.pod("old", "sleep 3600")
    path = "/api/v1/namespaces/default/pods/old/exec?stdin=true&stdout=true&stderr=true&command=sh"
    client = Client(streaming, path, "v4.channel.k8s.io")
    assert client.accepted
    client.ping()
    client.send(0, b"echo out; sleep 0.1; echo err >&2; exit 9\n")
    said: dict[int, bytes] = {}
    for channel, data in client.messages():
        said[channel] = said.get(channel, b"") + data
    status = json.loads(said.pop(3))
    assert said == {1: b"out\n", 2: b"err\n"}
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "9"}]
    assert client.pongs == 1


def test_ports_are_pairs_of_channels(streaming: Streaming) -> None:
    made = streaming.pod("oldports", "sleep 3600")
    with servers(streaming, made):
        path = "/api/v1/namespaces/default/pods/oldports/portforward?ports=7001,7999"
        client = Client(streaming, path, "v4.channel.k8s.io")
        said: dict[int, bytes] = {}
        for channel, data in client.messages():
            said[channel] = said.get(channel, b"") + data
    port = {number: number.to_bytes(2, "little") for number in (7001, 7999)}
    assert said[0] == port[7001] + b"hello\n"
    assert said[1] == port[7001]
    assert said[2] == port[7999]
    assert said[3] == port[7999] + b"error forwarding port 7999 to pod oldports: connection refused"


@pytest.mark.parametrize("protocol", ["v3.channel.k8s.io", "chat"])
def test_a_protocol_not_spoken_is_refused(streaming: Streaming, protocol: str) -> None:
    streaming.pod(f"refuse-{protocol[:2]}", "sleep 3600")
    path = f"/api/v1/namespaces/default/pods/refuse-{protocol[:2]}/exec?stdout=true&command=sh"
    client = Client(streaming, path, protocol)
    client.close()
    assert client.status == 400
