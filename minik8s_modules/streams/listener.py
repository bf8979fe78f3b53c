"""The listener streams come in by: HTTPS with mutual TLS, for the API server's certificate and nobody else's.

A connection carries one request. That is also what keeps a client from sending a second one of its own behind an
upgrade that was refused: whatever follows the first head is the stream's, never a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.errors import BadRequest, NotFound, StatusError, TooManyRequests
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.sockets import listening
from minik8s_modules.base.tls import server_context
from minik8s_modules.streams.answers import answer_probes
from minik8s_modules.streams.asking import Conversation, Gateway
from minik8s_modules.streams.connections import BUFFER_BYTES, Connection, LogCut
from minik8s_modules.streams.passing import Packet
from minik8s_modules.streams.requests import HEAD_BYTES, METRICS, StreamRequest, parse

log = logging.getLogger(__name__)

CALLER = "system:minik8s:apiserver"
HEAD_S = 10.0
STOP_S = 5.0
# each is some file descriptors and up to a megabyte
MOST = 1000
# an API server whose machine vanished is noticed after a minute
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
# a reader may take its time with the last bytes of a stream that is over
_LAST_BYTES_S = 600.0


class StreamFiles(NamedTuple):
    """Certificate, key, and the authority of callers."""

    cert: Path
    key: Path
    client_ca: Path


class StreamServer:
    """Serves streams on ``host``:``port`` (0: any free one, see ``port``), by the gateway behind ``gateway_socket``."""

    def __init__(self, host: str, port: int, files: StreamFiles, gateway_socket: str) -> None:
        self._context = _context(files)
        self._gateway_socket = gateway_socket
        try:
            self._socket = listening(host, port)
        except OSError as error:
            raise ConfigurationError(f"listen: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._streams: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listener and cut all streams."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
        self._socket.close()

    def count(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        starting = asyncio.start_server(
            self._connected,
            sock=self._socket,
            ssl=self._context,
            limit=max(HEAD_BYTES, BUFFER_BYTES),
            ssl_handshake_timeout=HEAD_S,
            ssl_shutdown_timeout=_LAST_BYTES_S,
        )
        server = self._loop.run_until_complete(starting)
        probes = self._loop.create_task(answer_probes(self._gateway_socket))
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(_ended({*self._streams, probes}))
            self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._streams.add(task)
        client = Connection(reader, writer)
        for level, option, value in _KEEPALIVE:
            writer.get_extra_info("socket").setsockopt(level, option, value)
        try:
            await self._answer(client)
        except (OSError, EOFError) as error:
            log.debug("a stream ended: %s", error)
        except LogCut as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a stream failed")
        finally:
            self._streams.discard(task)
            with contextlib.suppress(RuntimeError):  # the loop is being closed
                client.close()

    async def _answer(self, client: Connection) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await client.reader.readuntil(b"\r\n\r\n")
            _admit(client)  # before anything is parsed
            await self._serve(client, parse(head))
        except StatusError as error:
            await _refuse(client, error)
        except (ValueError, asyncio.LimitOverrunError, TimeoutError) as error:
            await _refuse(client, BadRequest(str(error) or "no request within 10 s"))

    async def _serve(self, client: Connection, request: StreamRequest) -> None:
        handler = _HANDLERS.get(request.what)
        if handler is None:
            raise NotFound.path()
        if len(self._streams) > MOST:
            raise TooManyRequests(f"this gateway carries {MOST} streams already; close some, or try again")
        talk, first = await Gateway(self._gateway_socket).ask(request)
        ways = (handler(client, request, talk, first), client.closed(), talk.gone.wait())
        work, *ends = (asyncio.ensure_future(way) for way in ways)
        try:
            await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended({work, *ends})
            await talk.close()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _admit(client: Connection) -> None:
    try:
        caller = peer_names(client.writer.get_extra_info("peercert")).common_name
    except ValueError as error:
        raise _forbidden(str(error)) from error
    if caller != CALLER:
        raise _forbidden(f"it names {caller}")


def _forbidden(why: str) -> StatusError:
    return StatusError(HTTPStatus.FORBIDDEN, "Forbidden", f"streams are for the certificate of {CALLER}: {why}")


async def _refuse(client: Connection, error: StatusError) -> None:
    if client.started:  # it has its answer; that the stream ends without its proper end says the rest
        log.warning("a stream was cut: %s", error)
        return
    await _send(client, HTTPStatus(error.code), json.dumps(error.status()).encode())


async def _send(client: Connection, code: HTTPStatus, body: bytes) -> None:
    head = (
        f"HTTP/1.1 {code.value} {code.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-cache, private\r\nConnection: close\r\n\r\n"
    )
    await client.write(head.encode() + body)


async def _tell_metrics(client: Connection, _: StreamRequest, __: Conversation, first: Packet) -> None:
    """Hand on what nodes and containers use, which comes as a file in memory."""
    with os.fdopen(first.descriptors[0].take(), "rb") as file:
        await _send(client, HTTPStatus.OK, file.read())


Handler = Callable[[Connection, StreamRequest, Conversation, Packet], Awaitable[None]]


def _of(module: str, function: str) -> Handler:
    """Return what serves a stream by a module that comes with the first one: WebSockets and HTTP/1 take 2 MB."""

    async def serve(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
        found = importlib.import_module(f"minik8s_modules.streams.{module}")
        await getattr(found, function)(client, request, talk, first)

    return serve


_HANDLERS: Mapping[str, Handler] = {
    "log": _of("logs", "serve"),
    "exec": _of("commands", "serve_exec"),
    "attach": _of("commands", "serve_attach"),
    "portforward": _of("forwarding", "serve"),
    "proxy": _of("proxying", "serve"),
    METRICS: _tell_metrics,
}


def _context(files: StreamFiles) -> ssl.SSLContext:
    try:
        return server_context(files.cert, files.key, files.client_ca)
    except OSError as error:
        raise ConfigurationError(f"streams: cert, key or client_ca cannot be used: {error}") from error
