"""Packets of JSON, with file descriptors, between the gateway and the process that parses streams.

The socket (``/run/minik8s/streams.sock``) is of kind SOCK_SEQPACKET: a packet arrives whole or not at all, and
descriptors belong to the packet they came with. ``minik8s-streams`` connects; the gateway answers that user alone
(SO_PEERCRED). Every channel is used by one asyncio loop, and read by one task at a time.

Each stream is a connection, and its end, on either side, ends the stream. The first packet is the signed request,
``{"line", "signed", "certificate"}``. The gateway checks signature, certificate (authority, CN), time (300 s) and nonce
(once), and answers by what is asked::

    exec          {"tty"}
    attach        {"tty", "stays_open"}
    log           {"frames": "plain|multiplexed|stamped", "came"}      with Docker's connection; stamped: its last line
    portforward   {}
    proxy         {}                                                   with the connection to the pod
    metrics       {}                                                   with a file in memory
    anything      {"error": Status}

Then come requests ``{"do": …}``, each answered in turn: exec and attach ``start`` (``{"came"}`` with the upgraded
connection) and ``resize`` (``height``, ``width``); exec ``exit`` (``{"code"}``); log ``running`` (``{"running"}``),
and of a stamped one ``log`` (as the request says), ``follow`` (``lines``: so many of the last first, 0: all) and
``rest`` (``lines``; ``since``, seconds since 1970 or 0), with Docker's connection, or none when the container is gone;
portforward ``connect`` (``port``), answered by a channel on which comes ``{}`` with the connection, or ``error``;
``failure`` on that channel, and of a proxy, asks for ssh's ``{"words"}``. ``came`` is what the gateway had read of a
connection, in hex. A connection through ssh is two descriptors: one to read, one to write.

``{"answers": true}`` as the first packet makes the connection the gateway's, for answers to probes:
``{"kind": "http|grpc", "tls", "send": hex, "timeout_s"}`` with a channel to answer on and the dialled connection;
answered by ``{"word", "number"}`` (``Cause`` in ``gateway/probing/wire.py``).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject

# a request's head of 64 KiB, every byte of it escaped; Linux lets 208 KiB wait (net.core.wmem_default)
PACKET_BYTES = 192 * 1024


class BadPacket(ValueError):
    """A packet that is no JSON object, or too long."""


class Descriptor:
    """A file descriptor that came with a packet; it is closed when nobody takes it."""

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def take(self) -> int:
        """Return the descriptor, which is the caller's to close from now on."""
        number, self._number = self._number, None
        if number is None:
            raise BadPacket("a descriptor that was taken already")
        return number

    def socket(self) -> socket.socket:
        """Take it as a socket."""
        return socket.socket(fileno=self.take())

    def __del__(self) -> None:
        """Close it; a task may be cancelled with the answer it waited for in hand."""
        if self._number is not None:
            os.close(self._number)


class Packet(NamedTuple):
    """A message and the descriptors that came with it."""

    message: JsonObject
    descriptors: tuple[Descriptor, ...] = ()


class Channel:
    """One end of a connection; ``accepts`` is the number of descriptors that a packet may bring."""

    def __init__(self, connected: socket.socket, accepts: int = 0) -> None:
        connected.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._socket = connected
        self._accepts = accepts
        self._sending = asyncio.Lock()
        self._waiting: set[asyncio.Future[None]] = set()

    async def send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send one packet; the descriptors stay the caller's to close. Raises OSError when the other end is gone."""
        data, loop = orjson.dumps(message), asyncio.get_running_loop()
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._socket, [data], list(descriptors), socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    await self._ready(loop.add_writer, loop.remove_writer)
                else:
                    return

    async def receive(self) -> Packet | None:
        """Return the next packet, None when the other end is gone.

        Raises:
            BadPacket: it cannot be read.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                return self._taken()
            except BlockingIOError:
                try:
                    await self._ready(loop.add_reader, loop.remove_reader)
                except OSError:
                    return None
            except OSError:
                return None

    def close(self) -> None:
        """Close this end; to who waits at it, it is the other end that is gone."""
        number = self._socket.fileno()
        if number < 0:
            return
        for waiting in self._waiting:
            loop = waiting.get_loop()
            # before the number is another file's
            loop.remove_reader(number)
            loop.remove_writer(number)
            if not waiting.done():
                waiting.set_exception(ConnectionAbortedError("closed"))
        self._socket.close()

    async def _ready(self, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]) -> None:
        number, ready = self._socket.fileno(), asyncio.get_running_loop().create_future()
        add(number, lambda: None if ready.done() else ready.set_result(None))
        self._waiting.add(ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if self._socket.fileno() == number:
                remove(number)

    def _taken(self) -> Packet | None:
        # without a place for them, the kernel drops what descriptors come
        data, numbers, flags, _ = socket.recv_fds(self._socket, PACKET_BYTES, self._accepts, socket.MSG_CMSG_CLOEXEC)
        descriptors = tuple(Descriptor(each) for each in numbers)
        if not data:
            return None
        if flags & socket.MSG_TRUNC:
            raise BadPacket(f"a packet of more than {PACKET_BYTES} bytes")
        try:
            message = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise BadPacket(f"no JSON: {error}") from error
        if not isinstance(message, dict):
            raise BadPacket("a packet must be a JSON object")
        return Packet(message, descriptors)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a channel that nothing names."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def connected(path: str) -> socket.socket:
    """Return a connection to the named socket ``path``. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    try:
        await asyncio.get_running_loop().sock_connect(made, path)
    except BaseException:
        made.close()
        raise
    return made
