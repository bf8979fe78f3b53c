"""Streams into pods through the API server, for asyncio: ``pods/exec`` and ``pods/portforward`` over a WebSocket.

The first byte of a message is its channel: of an exec 0 stdin, 1 stdout, 2 stderr, 3 the Status at the end; of a
forward 0 data and 1 errors, whose first messages have the port. What comes is read when somebody asks for it, so that
whoever is slow is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from wsproto import ConnectionType, WSConnection
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
from minik8s_modules.client.transport import tls_context

EXEC, FORWARD = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
DATA, ERRORS = 0, 1
_CHUNK = 64 * 1024
_OPEN_S = 30.0
_MOST = 4 * 1024 * 1024
_context = functools.lru_cache(maxsize=4)(tls_context)  # 2.3 ms of the 10 that a launcher's answer costs


class Where(NamedTuple):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


class PodStream:
    """One WebSocket to the API server; ``open`` it first, and ``close`` it, which ``async with`` does."""

    def __init__(self, access: Access, path: str, protocol: str) -> None:
        self._access, self._path, self._protocol = access, path, protocol
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._messages: list[tuple[int, bytes]] = []
        self._partial = b""
        self._refusal, self._code = b"", 0
        self._accepted = self._ended = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> PodStream:
        """Open it. Raises StatusError where the server refuses, ApiUnreachable where it does not answer."""
        try:
            async with asyncio.timeout(_OPEN_S):
                await self._open()
        except (OSError, TimeoutError) as error:
            self._abort()
            raise ApiUnreachable(f"{self._access.server}: no stream into the pod: {error}") from error
        except BaseException:
            self._abort()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut it: the program's stdin ends."""
        self._abort()

    async def _open(self) -> None:
        url = urllib3.util.parse_url(self._access.server)
        context: ssl.SSLContext | None = _context(self._access) if url.scheme == "https" else None
        host = (url.host or "").strip("[]")
        self._reader, self._writer = await asyncio.open_connection(
            host, url.port or 443, ssl=context, server_hostname=host if context else None
        )
        headers = [(name.encode(), value.encode()) for name, value in Bearer(self._access).headers().items()]
        asked = Request(
            host=url.netloc or host,
            target=(url.path or "").rstrip("/") + self._path,
            subprotocols=[self._protocol],
            extra_headers=headers,
        )
        await self._send(self._ws.send(asked))
        while not self._accepted:
            await self._take()
            if self._ended and not self._accepted:
                raise ConnectionResetError("the API server closed the connection")

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next message that is not empty, as channel and bytes; None at the end."""
        while not self._messages and not self._ended:
            await self._take()
        return self._messages.pop(0) if self._messages else None

    async def write(self, channel: int, data: bytes) -> None:
        """Send a message. OSError where the server is gone."""
        try:
            await self._send(self._ws.send(BytesMessage(data=bytes([channel]) + data)))
        except ProtocolError as error:
            raise ConnectionResetError(f"the stream into the pod is closed: {error}") from error

    async def _send(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(data)
            await self._writer.drain()

    async def _take(self) -> None:
        data = b""
        if self._reader is not None:
            with contextlib.suppress(OSError):
                data = await self._reader.read(_CHUNK)
        try:
            self._ws.receive_data(data or None)
            for event in self._ws.events():
                await self._on(event)
        except ProtocolError:
            self._ended = True
        self._ended = self._ended or not data

    async def _on(self, event: Event) -> None:
        match event:
            case BytesMessage():
                self._message(event)
            case AcceptConnection():
                self._accepted = True
            case RejectConnection():
                self._code = event.status_code
                self._refused(b"", last=not event.has_body)
            case RejectData():
                self._refused(bytes(event.data), last=event.body_finished)
            case Ping():
                await self._send(self._ws.send(event.response()))
            case CloseConnection():
                self._ended = True

    def _message(self, event: BytesMessage) -> None:
        self._partial += bytes(event.data)
        if len(self._partial) > _MOST:
            self._ended = True
        elif event.message_finished:
            whole, self._partial = self._partial, b""
            if len(whole) > 1:
                self._messages.append((whole[0], whole[1:]))

    def _refused(self, data: bytes, *, last: bool) -> None:
        self._refusal += data[:_CHUNK]
        if last:
            raise _status(self._refusal, self._code)

    def _abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


def exec_stream(access: Access, where: Where, argv: Sequence[str]) -> PodStream:
    """Return the stream of a program that is run in a container."""
    query = [("stdin", "true"), ("stdout", "true"), ("stderr", "true"), ("container", where.container)]
    query += [("command", word) for word in argv]
    return PodStream(access, f"{resource_path(POD, where.namespace, where.pod, 'exec')}?{urlencode(query)}", EXEC)


def forward_stream(access: Access, where: Where, port: int) -> PodStream:
    """Return the stream to a port of a pod."""
    path = resource_path(POD, where.namespace, where.pod, "portforward")
    return PodStream(access, f"{path}?{urlencode({'ports': port})}", FORWARD)


class Done(NamedTuple):
    """How a program ended, and what it wrote; ``code`` None where that is not known."""

    code: int | None
    out: bytes
    words: str


async def run(access: Access, where: Where, argv: Sequence[str], timeout_s: float) -> Done:
    """Run a program to its end.

    Raises:
        StatusError: the server refused, or it could not be run.
        ApiUnreachable: no answer, or none in time.
    """
    found: dict[int, bytes] = {STDOUT: b"", STDERR: b"", STATUS: b""}
    try:
        async with asyncio.timeout(timeout_s), exec_stream(access, where, argv) as stream:
            with contextlib.suppress(OSError):
                await stream.write(CLOSE, bytes([STDIN]))
            while (message := await stream.read()) is not None:
                channel, data = message
                if channel in found and len(found[channel]) < _MOST:
                    found[channel] += data
    except TimeoutError as error:
        raise ApiUnreachable(f"{argv[0]} in pod {where.pod} did not end within {timeout_s:g} s") from error
    return Done(exit_code(found[STATUS]), found[STDOUT], found[STDERR].decode("utf-8", "replace").strip()[:1024])


def exit_code(status: bytes) -> int | None:
    """Return the exit code that a Status at the end of an exec says, None without one. Raises StatusError."""
    if not status:
        return None
    told: dict[str, Any] = json.loads(status)
    if told.get("status") == "Success":
        return 0
    causes = (told.get("details") or {}).get("causes") or []
    codes = [each.get("message", "") for each in causes if each.get("reason") == "ExitCode"]
    if not codes:
        raise from_status(told)
    return int(codes[0])


def _status(body: bytes, code: int) -> StatusError:
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("kind") != "Status":
        told = {"message": body[:500].decode("utf-8", "replace").strip()}
    return from_status({"code": code, **told})
