"""What others than kubectl speak: WebSocket in its older versions, in base64, without a subprotocol; logs, too."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage

from tests.integration.streams.conftest import Streaming
from tests.integration.streams.test_forwarding import servers


class Client:
    """A WebSocket to the API server; ``messages`` yields (channel, data) to the end."""

    def __init__(self, streaming: Streaming, path: str, *protocols: str) -> None:
        plain = socket.create_connection(("127.0.0.1", streaming.server.port), timeout=60)
        context: ssl.SSLContext = streaming.server.context(streaming.server.admin)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._made = WSConnection(ConnectionType.CLIENT)
        self._socket.sendall(self._made.send(Request(host="x", target=path, subprotocols=list(protocols))))
        self._events: list[object] = []
        first = self._next()
        self.accepted = isinstance(first, AcceptConnection)
        self.status = 101 if self.accepted else getattr(first, "status_code", 0)
        self.pongs = 0
        self.text = any("base64" in each for each in protocols)

    def _next(self) -> object:
        while not self._events:
            data = self._socket.recv(65536)
            self._made.receive_data(data or None)
            self._events += list(self._made.events())
        return self._events.pop(0)

    def send(self, channel: int, data: bytes) -> None:
        """Send one message."""
        text = TextMessage(data=f"{channel}{base64.b64encode(data).decode()}")
        event = text if self.text else BytesMessage(data=bytes([channel]) + data)
        self._socket.sendall(self._made.send(event))

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
            if isinstance(event, BytesMessage | TextMessage):
                part += event.data.encode() if isinstance(event.data, str) else event.data
                if event.message_finished:
                    yield self._read(part)
                    part = b""

    def _read(self, message: bytes) -> tuple[int, bytes]:
        if self.text:
            return int(message[:1]), base64.b64decode(message[1:], validate=True)
        return message[0], message[1:]


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


@pytest.mark.parametrize("protocols", [(), ("channel.k8s.io",), ("base64.channel.k8s.io",)])
def test_the_first_version_tells_a_failure_in_words(streaming: Streaming, protocols: tuple[str, ...]) -> None:
    name = f"first{len(''.join(protocols))}"
    streaming.pod(name, "sleep 3600")
    path = f"/api/v1/namespaces/default/pods/{name}/exec?stdin=true&stdout=true&stderr=true&command=sh"
    for code, failure in ((9, b"command terminated with non-zero exit code: exit status 9"), (0, b"")):
        client = Client(streaming, path, *protocols)
        assert client.accepted
        client.send(0, b"echo out; exit %d\n" % code)
        said = {1: b"", 3: b""}
        for channel, data in client.messages():
            said[channel] += data
        assert said == {1: b"out\n", 3: failure}


def test_the_fourth_version_in_base64(streaming: Streaming) -> None:
    streaming.pod("fourth", "sleep 3600")
    path = "/api/v1/namespaces/default/pods/fourth/exec?stdout=true&command=sh&command=-c&command=exit+3"
    said = dict(Client(streaming, path, "v4.base64.channel.k8s.io").messages())
    assert json.loads(said[3])["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize("protocols", [(), ("v4.base64.channel.k8s.io",)])
def test_ports_without_a_subprotocol_and_in_base64(streaming: Streaming, protocols: tuple[str, ...]) -> None:
    made = streaming.pod(f"plainports{len(protocols)}", "sleep 3600")
    with servers(streaming, made):
        path = f"/api/v1/namespaces/default/pods/plainports{len(protocols)}/portforward?ports=7001"
        said = {0: b"", 1: b""}
        for channel, data in Client(streaming, path, *protocols).messages():
            said[channel] += data
    port = (7001).to_bytes(2, "little")
    assert said == {0: port + b"hello\n", 1: port}


@pytest.mark.parametrize("protocols", [(), ("binary.k8s.io",), ("base64.binary.k8s.io",)])
def test_logs_come_as_messages(streaming: Streaming, protocols: tuple[str, ...]) -> None:
    """The whole of a message is the log's, with no channel before it."""
    name = f"told{len(''.join(protocols))}"
    streaming.pod(name, "for i in 1 2 3; do echo line $i; done; sleep 3600")
    streaming.until(lambda: streaming.kubectl("logs", name).stdout.count("\n") == 3)
    client = Client(streaming, f"/api/v1/namespaces/default/pods/{name}/log", *protocols)
    client.text = False
    said = [bytes([first]) + rest for first, rest in client.messages()]
    if protocols == ("base64.binary.k8s.io",):
        said = [base64.b64decode(each, validate=True) for each in said]
    assert b"".join(said) == b"line 1\nline 2\nline 3\n"


def test_a_log_speaks_no_channels(streaming: Streaming) -> None:
    streaming.pod("unspoken", "sleep 3600")
    client = Client(streaming, "/api/v1/namespaces/default/pods/unspoken/log", "v4.channel.k8s.io")
    client.close()
    assert client.status == 400


@pytest.mark.parametrize("protocol", ["v3.channel.k8s.io", "chat"])
def test_a_protocol_not_spoken_is_refused(streaming: Streaming, protocol: str) -> None:
    streaming.pod(f"refuse-{protocol[:2]}", "sleep 3600")
    path = f"/api/v1/namespaces/default/pods/refuse-{protocol[:2]}/exec?stdout=true&command=sh"
    client = Client(streaming, path, protocol)
    client.close()
    assert client.status == 400
