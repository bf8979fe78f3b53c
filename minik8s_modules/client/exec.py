"""Runs a program in a container through the API server: ``pods/exec`` over a WebSocket, ``v5.channel.k8s.io``.

The first byte of a message is its channel (KEP-4006): 0 stdin, 1 stdout, 2 stderr, 3 the Status it ended with; 255
closes the channel named after it, which is how stdin ends. ``Session`` is the protocol without input and output;
``run`` moves its bytes over one non-blocking socket, so that a program that writes while it is written to cannot
block us. The server's side is ``streams/consoles.py``.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
)
from wsproto.utilities import ProtocolError

from minik8s_modules.api.errors import StatusError, from_status
from minik8s_modules.api.kinds import POD
from minik8s_modules.client.api import resource_path
from minik8s_modules.client.bearer import Bearer
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.client.transport import CONNECT_TIMEOUT_S, KEEPALIVE, READ_TIMEOUT_S, tls_context

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
_CHUNK = 64 * 1024
_LOOK_S = 60.0
_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
Sink = Callable[[bytes], Any]


class Program(NamedTuple):
    """What is run, and where; without ``container`` the server chooses the pod's default one."""

    namespace: str
    pod: str
    container: str
    argv: tuple[str, ...]

    def path(self, *, stdin: bool) -> str:
        """Return the request's path and query."""
        query = [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else [])]
        query += [("container", self.container)] if self.container else []
        query += [("command", word) for word in self.argv]
        return f"{resource_path(POD, self.namespace, self.pod, 'exec')}?{urlencode(query)}"


class Session:
    """One exec: bytes that came go in, bytes to be sent come out; output goes to the sinks.

    Attributes:
        accepted: whether the server agreed, so that stdin may be sent.
        ended: whether nothing more comes.
    """

    def __init__(self, host: str, path: str, out: Sink, err: Sink, headers: Mapping[str, str] | None = None) -> None:
        self._socket = WSConnection(ConnectionType.CLIENT)
        more = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._request = Request(host=host, target=path, subprotocols=[PROTOCOL], extra_headers=more)
        self._status: list[bytes] = []
        self._sinks: dict[int, Sink] = {STDOUT: out, STDERR: err, STATUS: self._status.append}
        self._channel: int | None = None
        self._refusal = b""
        self._code = 0
        self.accepted = False
        self.ended = False

    def open(self) -> bytes:
        """Return the request."""
        return self._socket.send(self._request)

    def stdin(self, data: bytes | None) -> bytes:
        """Return the message that brings ``data`` to the program's stdin, or ends it (None)."""
        message = bytes([CLOSE, STDIN]) if data is None else bytes([STDIN]) + data
        return self._socket.send(BytesMessage(data=message))

    def receive(self, data: bytes) -> bytes:
        """Take what came (empty: the server closed) and return what is to be answered.

        Raises:
            StatusError: the server refused.
            ApiUnreachable: what came is no WebSocket.
        """
        try:
            self._socket.receive_data(data or None)
            answer = b"".join(self._handle(event) for event in self._socket.events())
        except ProtocolError as error:
            raise ApiUnreachable(f"the exec was cut: {error}") from error
        self.ended = self.ended or not data
        return answer

    def _handle(self, event: Event) -> bytes:
        if isinstance(event, BytesMessage):
            self._message(bytes(event.data), last=event.message_finished)
        elif isinstance(event, AcceptConnection):
            self.accepted = True
        elif isinstance(event, RejectConnection):
            self._code = event.status_code
            self._refused(b"", last=not event.has_body)
        elif isinstance(event, RejectData):
            self._refused(event.data, last=event.body_finished)
        elif isinstance(event, Ping):
            return self._socket.send(event.response())
        elif isinstance(event, CloseConnection):
            self.ended = True
            if self._socket.state is ConnectionState.REMOTE_CLOSING:  # else nobody is there to be answered
                return self._socket.send(event.response())
        return b""

    def _message(self, data: bytes, *, last: bool) -> None:
        """Hand on a message or a part of one, whose channel its first part named."""
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if data and self._channel in self._sinks:
            self._sinks[self._channel](data)
        if last:
            self._channel = None

    def _refused(self, data: bytes, *, last: bool) -> None:
        self._refusal += data
        if last:
            raise _refusal(self._refusal, self._code)

    def exit_code(self) -> int:
        """Return the program's exit code, once ``ended``.

        Raises:
            StatusError: the program could not be run.
            ApiUnreachable: the connection ended before the program did, as far as one knows.
        """
        if not self._status:
            raise ApiUnreachable("the exec ended before its program did")
        status = json.loads(b"".join(self._status))
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or []
        codes = [cause.get("message", "") for cause in causes if cause.get("reason") == "ExitCode"]
        if not codes:
            raise from_status(status)
        return int(codes[0])


def run(access: Access, program: Program, out: Sink, err: Sink, stdin: Iterator[bytes] | None = None) -> int:
    """Run ``program`` to its end and return its exit code; what it writes goes to ``out`` and ``err`` as it comes.

    Raises:
        StatusError: the server refused, or the program could not be started.
        ApiUnreachable: no connection, or it was cut; whether the program ran is unknown.
    """
    url = urllib3.util.parse_url(access.server)
    path = (url.path or "").rstrip("/") + program.path(stdin=stdin is not None)
    session = Session(url.netloc or "", path, out, err, Bearer(access).headers())
    where = f"{access.server}: exec in pod {program.namespace}/{program.pod}"
    try:
        with _connected(access, url) as channel:
            _pump(channel, session, stdin)
    except OSError as error:
        raise ApiUnreachable(f"{where}: {error}") from error
    return session.exit_code()


def _connected(access: Access, url: urllib3.util.Url) -> socket.socket:
    secure = url.scheme == "https"
    host = (url.host or "").strip("[]")
    plain = socket.create_connection((host, url.port or (443 if secure else 80)), CONNECT_TIMEOUT_S)
    plain.settimeout(READ_TIMEOUT_S)
    for option in KEEPALIVE:
        plain.setsockopt(*option)
    channel = tls_context(access).wrap_socket(plain, server_hostname=host) if secure else plain
    channel.settimeout(0)
    return channel


def _pump(channel: socket.socket, session: Session, stdin: Iterator[bytes] | None) -> None:
    """Move bytes both ways until the session has ended; stdin is read only when all before it has been sent."""
    pending = session.open()
    while not session.ended:
        if not pending and session.accepted and stdin is not None:
            chunk = next(stdin, None)
            pending, stdin = session.stdin(chunk), (None if chunk is None else stdin)
        received = _received(channel)
        if received is not None:
            pending += session.receive(received)
        sent = _sent(channel, pending)
        if sent is None:  # the program ended without reading all: what it said is still to be read
            pending, stdin = b"", None
        elif not sent and received is None:
            select.select([channel], [channel] if pending else [], [], _LOOK_S)
        pending = pending[sent or 0 :]


def _received(channel: socket.socket) -> bytes | None:
    """Return what has come, empty when the server closed, None when nothing is there."""
    try:
        return channel.recv(_CHUNK)
    except _AGAIN:
        return None


def _sent(channel: socket.socket, pending: bytes) -> int | None:
    """Return how much was sent; None when the other side takes nothing more."""
    try:
        return channel.send(pending) if pending else 0
    except _AGAIN:
        return 0
    except (BrokenPipeError, ConnectionResetError):
        return None


def _refusal(body: bytes, code: int) -> StatusError:
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": body[:500].decode("utf-8", "replace").strip()}
    return from_status({"code": code, **status})
