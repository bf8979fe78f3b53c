"""The client's side of exec, byte by byte, against wsproto's server side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, RejectData, Request

from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.exec import Program, Session


class Pair:
    """A session and a server that has got its request."""

    def __init__(self) -> None:
        self.said: dict[str, bytes] = {"out": b"", "err": b""}
        self.session = Session("host:1", "/exec?x=1", self._sink("out"), self._sink("err"))
        self.server = WSConnection(ConnectionType.SERVER)
        self.server.receive_data(self.session.open())
        request = next(iter(self.server.events()))
        assert isinstance(request, Request)
        assert (request.target, request.subprotocols) == ("/exec?x=1", ["v5.channel.k8s.io"])

    def _sink(self, name: str) -> Any:
        def sink(data: bytes) -> None:
            self.said[name] += data

        return sink

    def send(self, *events: Any) -> bytes:
        """Bring the server's events to the session, a byte at a time; return what it answers."""
        data = b"".join(self.server.send(event) for event in events)
        return b"".join(self.session.receive(data[at : at + 1]) for at in range(len(data)))

    def end(self, status: dict[str, Any]) -> None:
        """Let the server tell how it ended, and close."""
        self.send(BytesMessage(data=b"\x03" + json.dumps(status).encode()), CloseConnection(code=1000))


def accepted() -> Pair:
    pair = Pair()
    pair.send(AcceptConnection(subprotocol="v5.channel.k8s.io"))
    assert pair.session.accepted
    return pair


def test_output_is_told_apart_also_when_a_message_comes_in_parts() -> None:
    pair = accepted()
    pair.send(
        BytesMessage(data=b"\x01ou", message_finished=False),
        BytesMessage(data=b"t", message_finished=True),
        BytesMessage(data=b"\x02err"),
        BytesMessage(data=b"\x01"),
    )
    pair.end({"status": "Success"})
    assert (pair.said, pair.session.ended) == ({"out": b"out", "err": b"err"}, True)
    assert pair.session.exit_code() == 0


def test_stdin_is_channel_0_and_its_end_channel_255() -> None:
    pair = accepted()
    pair.server.receive_data(pair.session.stdin(b"in") + pair.session.stdin(None))
    assert [event.data for event in pair.server.events() if isinstance(event, BytesMessage)] == [b"\0in", b"\xff\0"]


def test_the_exit_code_is_the_statuss() -> None:
    pair = accepted()
    pair.end({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}})
    assert pair.session.exit_code() == 7


def test_a_program_that_could_not_be_run_is_an_error() -> None:
    pair = accepted()
    pair.end({"status": "Failure", "message": "no such file", "code": 500})
    with pytest.raises(StatusError, match="no such file"):
        pair.session.exit_code()


def test_a_cut_connection_is_no_success() -> None:
    pair = accepted()
    pair.session.receive(b"")
    assert pair.session.ended
    with pytest.raises(ApiUnreachable, match="before its program did"):
        pair.session.exit_code()


def test_pings_are_answered() -> None:
    assert accepted().send(Ping(payload=b"there?"))


def test_a_refusal_is_the_servers_status() -> None:
    pair = Pair()
    body = json.dumps({"kind": "Status", "reason": "NotFound", "message": "no pod", "code": 404}).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    with pytest.raises(NotFound, match="no pod"):
        pair.send(RejectConnection(status_code=404, headers=headers, has_body=True), RejectData(data=body))


def test_what_is_no_http_is_told() -> None:
    with pytest.raises(ApiUnreachable, match="the exec was cut"):
        Pair().session.receive(b"SSH-2.0-OpenSSH\r\n\r\n")


def test_arguments_are_words_of_the_query() -> None:
    program = Program("default", "web", "a", ("sh", "-c", "echo $1 & 'x'"))
    query = "stdout=true&stderr=true&stdin=true&container=a&command=sh&command=-c&command=echo+%241+%26+%27x%27"
    assert program.path(stdin=True) == f"/api/v1/namespaces/default/pods/web/exec?{query}"


def test_a_token_is_shown_to_the_server() -> None:
    session = Session("host:1", "/exec", len, len, {"Authorization": "Bearer t0ken"})
    assert b"authorization: bearer t0ken\r\n" in session.open().lower()
