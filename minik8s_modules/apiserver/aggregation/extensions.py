"""Requests to extensions: one thread carries all of them, over TLS with the front-proxy certificate.

A request thread has authenticated, authorized and read the request and gone back to the pool; the client's bytes pass
through the tunnels (nodes/tunnels.py) to a socket of this loop. h11 reads what the extension says, and what the client
gets is framed again, so no extension says anything to a connection but one answer. Behind a request nothing of the
client passes, unless the extension has agreed to switch protocols: on a connection that names its user nobody else may
ask. Connecting happens in threads of which one extension has ``_DIALS`` at most. A caller waits for the first byte, and
unless the request may take any time for each further one, ``WAIT_S``, and so long the extension waits for the caller.
A request's body is dropped as soon as it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import h11
import orjson

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import ServiceUnavailable, StatusError, TooManyRequests
from minik8s_modules.apiserver.aggregation import heads
from minik8s_modules.apiserver.aggregation.exchanges import Body, Exchange, Outcome
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.webhooks import places
from minik8s_modules.apiserver.webhooks.places import Address, Client, Unreachable
from minik8s_modules.base.files import Stamp, stamp
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.streams.heads import SWITCHING, answered

log = logging.getLogger(__name__)

WAIT_S = 60.0  # kube-apiserver's --request-timeout
MOST = 400
"""How many requests of one extension are carried at once, of all users together; one user may have 100 streams."""
_DIAL_S = 10.0
_DIALS = 4
_THREADS = 32
_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_CONTEXTS = 256
_BAD_GATEWAY = 502
_REDIRECTED = b"the backend attempted to redirect this request, which is not permitted"
_FAILURES = (OSError, Unreachable, h11.RemoteProtocolError, h11.LocalProtocolError, asyncio.IncompleteReadError)

Connect = Callable[[Address, float], socket.socket]


class _Wire(NamedTuple):
    http: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    outcome: Outcome

    async def event(self, wait_s: float | None) -> h11.Event:
        """Return what comes next, each piece within ``wait_s``; h11.RemoteProtocolError for what is no HTTP."""
        while True:
            event = self.http.next_event()
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                raise h11.RemoteProtocolError("more came than was asked for")
            async with asyncio.timeout(wait_s):
                self.http.receive_data(await self.reader.read(_READ_BYTES))

    async def send(self, event: h11.Event) -> None:
        """Send, and wait until it is taken."""
        if data := self.http.send(event):
            if isinstance(event, h11.Response | h11.InformationalResponse):
                self.outcome.begun(event.status_code)
            self.writer.write(data)
            await self.writer.drain()


class Extensions:
    """See the top of this file."""

    def __init__(self, cache: WatchCache, connect: Connect, files: TlsFiles | None) -> None:
        self._cache, self._connect, self._files = cache, connect, files
        self._contexts: dict[tuple[str, bool, Stamp], ssl.SSLContext] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="extension-dial")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="extensions", daemon=True)
        self._carried: Counter[str] = Counter()
        self._dials: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_DIALS))
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Cut what is carried and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> str:
        """Return why nothing can be carried, "" when it can."""
        return "" if self._thread.is_alive() else "the thread of extensions has ended"

    def admit(self, remote: Remote) -> None:
        """Raise ServiceUnavailable or TooManyRequests when no request is taken for an extension now."""
        if not remote.available:
            raise ServiceUnavailable("service unavailable")
        if self._carried[remote.name] >= MOST:
            raise TooManyRequests(f"{MOST} requests to the APIService {remote.name} are under way; try again")

    def carry(self, exchange: Exchange, client: socket.socket) -> None:
        """Carry a request, whose answer goes to ``client``; from any thread."""
        self._loop.call_soon_threadsafe(self._begin, exchange, client)

    def fetch(self, exchange: Exchange, limit: int, timeout_s: float) -> Future[tuple[int, bytes]]:
        """Return the status and body of an answer, to come; raises Unreachable, TimeoutError, OSError.

        Args:
            exchange: the request.
            limit: the longest body that is read, in bytes.
            timeout_s: for all of it.
        """

        async def fetched() -> tuple[int, bytes]:
            async with asyncio.timeout(timeout_s):
                return await self._fetched(exchange, limit)

        return asyncio.run_coroutine_threadsafe(fetched(), self._loop)

    # everything below runs in the thread of extensions

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    def _begin(self, exchange: Exchange, client: socket.socket) -> None:
        name, body, outcome = exchange.remote.name, exchange.body, exchange.outcome
        self._carried[name] += 1
        task = self._loop.create_task(self._guarded(exchange, client))
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(name, body, outcome, task))

    def _ended(self, name: str, body: Body, outcome: Outcome, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._carried[name] -= 1
        body.drop()
        outcome.tell()
        if not task.cancelled() and task.exception() is not None:
            log.error("a request to %s failed", name, exc_info=task.exception())

    async def _guarded(self, exchange: Exchange, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            ours = _Wire(_client_side(exchange), reader, writer, exchange.outcome)
            await _while_listening(ours, exchange, self._carry(exchange, ours))
        finally:
            await _closed(writer)

    async def _carry(self, exchange: Exchange, ours: _Wire) -> None:
        theirs: _Wire | None = None
        try:
            async with asyncio.timeout(WAIT_S):
                theirs = await self._asked(exchange)
            first = await answered(partial(theirs.event, WAIT_S))
            if isinstance(first, h11.InformationalResponse):
                await _switch(ours, theirs, first)
            else:
                await _tell(ours, theirs, exchange, first)
        except TimeoutError:
            await _fail(ours, f"the extension did not answer within {WAIT_S:.0f} s")
        except _FAILURES as error:
            await _fail(ours, str(error) or type(error).__name__)
        finally:
            if theirs is not None:
                await _closed(theirs.writer)

    async def _asked(self, exchange: Exchange) -> _Wire:
        """Return the connection on which the request was sent."""
        reader, writer = await self._dialled(exchange.remote)
        wire = _Wire(h11.Connection(h11.CLIENT, _HEAD_BYTES), reader, writer, Outcome())
        try:
            await wire.send(h11.Request(method=exchange.method, target=exchange.target, headers=exchange.head))
            with contextlib.suppress(ConnectionError):  # it may answer without having read all
                if data := exchange.body.take():
                    await wire.send(h11.Data(data=data))
                await wire.send(h11.EndOfMessage())
        except BaseException:
            await _closed(writer)
            raise
        finally:
            exchange.body.drop()
        return wire

    async def _dialled(self, remote: Remote) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        server = f"{remote.service}.{remote.namespace}.svc"
        context = self._context(remote)
        client = Client(server, remote.port, "/", remote.authority, remote.namespace, remote.service)
        addresses = places.addresses_of(self._cache, client)
        async with asyncio.timeout(_DIAL_S):
            plain = await self._connected(remote, addresses)
            try:
                return await asyncio.open_connection(sock=plain, ssl=context, server_hostname=server)
            except BaseException:
                plain.close()
                raise

    async def _connected(self, remote: Remote, addresses: list[Address]) -> socket.socket:
        places_left = self._dials[remote.name]
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            await places_left.acquire()
            # the last one has more patience: there is no other to turn to
            deadline = time.monotonic() + (_DIAL_S / 4 if left else _DIAL_S / 2)
            dialling = self._loop.run_in_executor(self._pool, self._connect, address, deadline)
            # its thread goes on when nobody waits for it any more, and keeps its place meanwhile
            dialling.add_done_callback(lambda _: places_left.release())
            try:
                return await asyncio.shield(dialling)
            except asyncio.CancelledError:
                dialling.add_done_callback(_close_late)
                raise
            except OSError:
                if not left:
                    raise
        raise Unreachable("the service has no endpoint")

    def _context(self, remote: Remote) -> ssl.SSLContext:
        """Return how to speak TLS with an extension; made again when the front-proxy certificate was renewed."""
        if self._files is None:
            raise Unreachable("this API server has no certificate to show extensions (front_proxy)")
        files = stamp(self._files.cert, self._files.key)
        key = (remote.authority, remote.blind, files)
        made = self._contexts.get(key)
        if made is None:
            # after a renewal none of the old ones is used again
            if len(self._contexts) >= _CONTEXTS or any(known[2] != files for known in self._contexts):
                self._contexts.clear()
            made = self._contexts[key] = places.new_context("" if remote.blind else remote.authority)
            made.load_cert_chain(self._files.cert, self._files.key)
            if remote.blind:
                made.check_hostname = False
                made.verify_mode = ssl.CERT_NONE
        return made

    async def _fetched(self, exchange: Exchange, limit: int) -> tuple[int, bytes]:
        try:
            theirs = await self._asked(exchange)
        except (h11.RemoteProtocolError, h11.LocalProtocolError) as error:
            raise Unreachable(f"malformed HTTP: {error}") from error
        try:
            first = await answered(partial(theirs.event, None))
            parts, size = [], 0
            async for data in _pieces(theirs, None):
                size += len(data)
                if size > limit:
                    raise Unreachable(f"the answer is longer than {limit} bytes")
                parts.append(data)
            return first.status_code, b"".join(parts)
        except h11.RemoteProtocolError as error:
            raise Unreachable("malformed HTTP response") from error
        finally:
            await _closed(theirs.writer)


def _close_late(dialling: asyncio.Future[socket.socket]) -> None:
    """Close a connection that nobody waits for any more."""
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()


def _client_side(exchange: Exchange) -> h11.Connection:
    """Return what h11 knows of a client whose request was read already."""
    http = h11.Connection(h11.SERVER)
    upgrade = b"Connection: Upgrade\r\nUpgrade: any\r\n" if exchange.upgrade else b"Connection: close\r\n"
    line = f"{exchange.method} / HTTP/{exchange.version}\r\nHost: any\r\n".encode("latin-1")
    # the request was read by the intake, so h11 is given a stand-in: it frames the answer by it
    http.receive_data(line + upgrade + b"\r\n")
    http.next_event()
    http.next_event()
    return http


async def _while_listening(ours: _Wire, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
    """Do ``work`` until it is done or the client is gone; what a client says meanwhile is for nobody."""
    doing = asyncio.ensure_future(work)
    gone = None if exchange.upgrade else asyncio.ensure_future(_gone(ours.reader))
    try:
        await asyncio.wait({doing, gone} if gone else {doing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (doing, gone):
            if each is not None and not each.done():
                each.cancel()
        await asyncio.gather(doing, *([gone] if gone else []), return_exceptions=True)
    if not doing.cancelled() and (failed := doing.exception()) is not None:
        raise failed


async def _gone(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(_READ_BYTES):
            pass


async def _pieces(theirs: _Wire, wait_s: float | None) -> AsyncIterator[bytes]:
    while isinstance(event := await theirs.event(wait_s), h11.Data):
        yield bytes(event.data)


async def _tell(ours: _Wire, theirs: _Wire, exchange: Exchange, first: h11.Response) -> None:
    """Pass an answer on, piece by piece; one that breaks off breaks off for the client, too."""
    raw = first.headers.raw_items()
    if heads.redirects(first.status_code, raw):
        await _say(ours, _BAD_GATEWAY, b"text/plain; charset=utf-8", _REDIRECTED)
        return
    wait_s = None if exchange.endless else WAIT_S
    await ours.send(h11.Response(status_code=first.status_code, headers=heads.answer(raw), reason=first.reason))
    if exchange.endless:
        exchange.outcome.tell()
    with contextlib.suppress(*_FAILURES, TimeoutError):
        async for data in _pieces(theirs, wait_s):
            async with asyncio.timeout(wait_s):
                await ours.send(h11.Data(data=data))
        await ours.send(h11.EndOfMessage())


async def _switch(ours: _Wire, theirs: _Wire, answer: h11.InformationalResponse) -> None:
    """Answer the upgrade and carry bytes both ways until one side has ended."""
    head = heads.answer(answer.headers.raw_items(), switching=True)
    await ours.send(h11.InformationalResponse(status_code=SWITCHING, headers=head, reason=answer.reason))
    ours.outcome.tell()
    ours.writer.write(theirs.http.trailing_data[0])
    ways = {
        asyncio.ensure_future(_copied(ours.reader, theirs.writer)),
        asyncio.ensure_future(_copied(theirs.reader, ours.writer)),
    }
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()


async def _fail(ours: _Wire, why: str) -> None:
    if ours.http.our_state in {h11.SEND_RESPONSE, h11.IDLE}:
        status: StatusError = ServiceUnavailable(f"error trying to reach service: {why}")
        await _say(ours, status.code, b"application/json", orjson.dumps(status.status()))


async def _say(ours: _Wire, code: int, media: bytes, body: bytes) -> None:
    head = [(b"Content-Type", media), (b"Content-Length", str(len(body)).encode()), (b"Connection", b"close")]
    with contextlib.suppress(OSError):
        await ours.send(h11.Response(status_code=code, headers=head))
        await ours.send(h11.Data(data=body))
        await ours.send(h11.EndOfMessage())


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    waiting: Awaitable[None] = writer.wait_closed()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await waiting
