"""pods/proxy and services/proxy: one HTTP request goes on to a port of a pod, and what is answered comes back.

Behind the API server's signed head comes the request as the pod is to get it (apiserver/nodes/proxying.py). h11 reads
both sides, so what a client gets is framed again, whatever a pod sends. Bodies pass piece by piece, each waiting until
the other end takes it. A page of HTML has its links changed on the way (rewriting.py). After 101 both connections carry
bytes, and nothing is read any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple, Protocol

import h11

from minik8s_modules.api.errors import BadRequest, ServiceUnavailable, StatusError
from minik8s_modules.streams.asking import Conversation
from minik8s_modules.streams.connections import Connection, adopt
from minik8s_modules.streams.forwarding import Reached
from minik8s_modules.streams.heads import SWITCHING, answered
from minik8s_modules.streams.passing import Packet
from minik8s_modules.streams.requests import HEAD_BYTES, StreamRequest
from minik8s_modules.streams.rewriting import Page, Proxy, location
from minik8s_modules.streams.secured import secured

# a page is worked on in such pieces, and others have their turn in between
_PIECE_BYTES = 16 * 1024
# how long a client may still send what the pod, which has answered, does not want
_LINGER_S = 5.0
_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
    b"upgrade",
})  # fmt: skip
# a pod does not decide which pages may use the API server's origin (util/net CORS headers are dropped in Kubernetes)
_ORIGIN = b"access-control-"
_ENCODINGS = frozenset({b"", b"identity", b"gzip", b"x-gzip", b"deflate"})

Head = list[tuple[bytes, bytes]]


class Pod(Protocol):
    """A connection to the pod, in TLS or not."""

    async def read(self) -> bytes:
        """Return what has come, b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Write all; OSError when the pod is gone."""


class Wire(NamedTuple):
    """One side: its connection, and what h11 knows of it."""

    http: h11.Connection
    read: Callable[[], Awaitable[bytes]]
    write: Callable[[bytes], Awaitable[None]]

    async def event(self) -> h11.Event | None:
        """Return what comes next, None where that is no HTTP. Raises h11.RemoteProtocolError for what is broken."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.read())
        return event if isinstance(event, h11.Event) else None

    async def send(self, event: h11.Event) -> None:
        """Send, and wait until it is taken; OSError when the other end is gone."""
        if data := self.http.send(event):
            await self.write(data)


async def serve(client: Connection, request: StreamRequest, talk: Conversation, first: Packet) -> None:
    """Carry one request and its answer.

    Raises:
        StatusError: before anything was answered; ConnectionAbortedError: the pod stopped in the middle of it.
    """
    ends = [await adopt(each.socket()) for each in first.descriptors]
    reached = Reached(ends[0], ends[-1], talk)
    try:
        pod = await _secured(reached) if request.text("scheme") == "https" else reached
        await _carry(Wire(h11.Connection(h11.SERVER, HEAD_BYTES), client.read, client.write), pod, reached, request)
    except h11.RemoteProtocolError as error:
        failure = await _failure(reached) or f"its answer is not HTTP: {error}"
        raise _unreachable(failure) from error
    except (OSError, h11.LocalProtocolError) as error:
        if client.started:
            raise ConnectionAbortedError(f"an answer was cut: {error}") from error
        raise _unreachable(str(error) or type(error).__name__) from error
    finally:
        await reached.close()


def _unreachable(why: str) -> StatusError:
    return ServiceUnavailable(f"error trying to reach service: {why}")


async def _secured(reached: Reached) -> Pod:
    try:
        return await secured(reached)
    except ssl.SSLError as error:
        raise _unreachable(await _failure(reached) or f"TLS: {error.reason or error}") from error


async def _failure(reached: Reached) -> str:
    """Return why there never was a connection: through ssh it shows at its end."""
    with contextlib.suppress(TimeoutError, StatusError):
        async with asyncio.timeout(1.0):
            return await reached.failure()
    return ""


async def _carry(ours: Wire, pod: Pod, reached: Reached, request: StreamRequest) -> None:
    asked = await ours.event()
    if not isinstance(asked, h11.Request):
        raise BadRequest("no request follows the head")
    theirs = Wire(h11.Connection(h11.CLIENT, HEAD_BYTES), pod.read, pod.write)
    # h11 frames for the version that is spoken: the pod is told ours, the client gets what its own allows
    await theirs.send(h11.Request(method=asked.method, target=asked.target, headers=asked.headers))
    up = asyncio.create_task(_send_body(ours, theirs))
    try:
        answer = await answered(theirs.event)
        if isinstance(answer, h11.InformationalResponse):
            await up
            await _switch(ours, theirs, answer, reached)
        else:
            await _answer(ours, theirs, asked, answer, request)
            # closing a connection with unread bytes resets it, and the answer's end could be lost
            await asyncio.wait({up}, timeout=_LINGER_S)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _send_body(ours: Wire, theirs: Wire) -> None:
    """Pass the request's body on. A pod may answer, and stop reading, before it has all: the rest is read away."""
    taken = True
    with contextlib.suppress(OSError, h11.LocalProtocolError, h11.RemoteProtocolError):
        while isinstance(event := await ours.event(), h11.Data | h11.EndOfMessage):
            if taken:
                taken = await _sent(theirs, event)
            if isinstance(event, h11.EndOfMessage):
                return


async def _sent(theirs: Wire, event: h11.Event) -> bool:
    try:
        await theirs.send(event)
    except (OSError, h11.LocalProtocolError):
        return False
    return True


async def _answer(ours: Wire, theirs: Wire, asked: h11.Request, answer: h11.Response, request: StreamRequest) -> None:
    hosts = dict(asked.headers)
    proxy = Proxy(request.text("prefix"), hosts.get(b"host", b"").decode("latin-1"), request.text("host"))
    head = client_head(answer.headers.raw_items(), proxy)
    headers = {name: value.lower().strip() for name, value in answer.headers}
    encoding = headers.get(b"content-encoding", b"")
    page = is_page(headers) and asked.method != b"HEAD"
    if page:
        head = [each for each in head if each[0].lower() not in {b"content-length", b"content-encoding", b"etag"}]
    await ours.send(h11.Response(status_code=answer.status_code, headers=head, reason=answer.reason))
    pieces = _body(theirs)
    async for data in _rewritten(pieces, proxy, encoding) if page else pieces:
        await ours.send(h11.Data(data=data))
    await ours.send(h11.EndOfMessage())


def client_head(headers: Head, proxy: Proxy) -> Head:
    """Return what of the pod's head goes to the client, with a Location that leads through the proxy."""
    lowered = [(name.lower(), value) for name, value in headers]
    own = {each.strip().lower() for name, value in lowered if name == b"connection" for each in value.split(b",")}
    own |= {b"content-length"} if any(name == b"transfer-encoding" for name, _ in lowered) else set()
    kept = [
        (name, location(value.decode("latin-1"), proxy).encode("latin-1") if name.lower() == b"location" else value)
        for name, value in headers
        if name.lower() not in _HOP | own and not name.lower().startswith(_ORIGIN)
    ]
    return [*kept, (b"Connection", b"close")]


def is_page(headers: dict[bytes, bytes]) -> bool:
    """Return whether what these headers belong to is HTML whose links are changed."""
    media = headers.get(b"content-type", b"").partition(b";")[0].strip()
    return media == b"text/html" and b"location" not in headers and headers.get(b"content-encoding", b"") in _ENCODINGS


async def _body(theirs: Wire) -> AsyncIterator[bytes]:
    """Yield the answer's body; ConnectionAbortedError where it breaks off."""
    try:
        while isinstance(event := await theirs.event(), h11.Data):
            yield bytes(event.data)
    except h11.RemoteProtocolError as error:
        raise ConnectionAbortedError(f"the pod broke off its answer: {error}") from error


async def _rewritten(pieces: AsyncIterator[bytes], proxy: Proxy, encoding: bytes) -> AsyncIterator[bytes]:
    """Yield a page with its links changed, and without its compression."""
    page = Page(proxy)
    unpack = _plain if encoding in {b"", b"identity"} else Unpacked(encoding).feed
    async for data in pieces:
        for piece in unpack(data):
            if done := page.feed(piece):
                yield done
            await asyncio.sleep(0)
    if rest := page.end():
        yield rest


def _plain(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _PIECE_BYTES):
        yield data[at : at + _PIECE_BYTES]


class Unpacked:
    """A compressed body, which is unpacked no faster than it is taken: a page may be a bomb."""

    def __init__(self, encoding: bytes) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | (16 if encoding.endswith(b"gzip") else 0))

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data`` holds; ConnectionAbortedError where it is not what its header says."""
        try:
            while data and not self._stream.eof:
                yield self._stream.decompress(data, _PIECE_BYTES)
                data = self._stream.unconsumed_tail
        except zlib.error as error:
            raise ConnectionAbortedError(f"the pod's page cannot be unpacked: {error}") from error


async def _switch(ours: Wire, theirs: Wire, answer: h11.InformationalResponse, reached: Reached) -> None:
    """Answer the upgrade and carry bytes both ways until the pod has ended, or the client is gone."""
    kept = [each for each in answer.headers.raw_items() if not each[0].lower().startswith(_ORIGIN)]
    await ours.send(h11.InformationalResponse(status_code=SWITCHING, headers=kept, reason=answer.reason))
    up = asyncio.create_task(_copy_up(ours, theirs, reached))
    try:
        await ours.write(theirs.http.trailing_data[0])
        while data := await theirs.read():
            await ours.write(data)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _copy_up(ours: Wire, theirs: Wire, reached: Reached) -> None:
    with contextlib.suppress(OSError):  # the pod reads no more; what it still says goes on
        data = ours.http.trailing_data[0] or await ours.read()
        while data:
            await theirs.write(data)
            data = await ours.read()
        reached.end_writing()
