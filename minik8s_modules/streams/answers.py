"""What containers answer to probes: HTTP, HTTPS and gRPC, read where a defect costs the least.

The gateway dials, and hands over the connection with what to send. Each packet brings the channel that the answer goes
back on, and the connection: one descriptor, or through ssh two (to read, to write). The answer is a word and a number
(gateway/probing/wire.py, ``Cause``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import RECONNECT
from minik8s_modules.streams import passing
from minik8s_modules.streams.connections import Connection, adopt
from minik8s_modules.streams.passing import BadPacket, Channel, Packet
from minik8s_modules.streams.secured import secured

log = logging.getLogger(__name__)

ROLE = {"answers": True}
_DESCRIPTORS = 3
_BODY_BYTES = 10 * 1024
_FRAME_HEAD = 9


class ProbeAnswer(NamedTuple):
    """What an answer says: ``http`` with a status, ``grpc`` with a serving status, or how it came to none."""

    word: str
    number: int = 0


class Plain:
    """A connection of one socket, or of one for each direction."""

    def __init__(self, reads: Connection, writes: Connection) -> None:
        self._ends = (reads, writes)
        self.read = reads.read
        self.write = writes.write

    def close(self) -> None:
        """End it."""
        for end in self._ends:
            end.abort()


async def answer_probes(path: str) -> None:
    """Read answers for the gateway at ``path``, for ever; where it is away, until it is back."""
    failures = 0
    while True:
        try:
            channel = Channel(await passing.connected(path), _DESCRIPTORS)
        except OSError as error:
            log.log(logging.DEBUG if failures else logging.INFO, "the gateway does not answer: %s", error)
        else:
            failures = 0
            with contextlib.suppress(OSError):
                await channel.send(ROLE)
                await read_answers(channel)
        failures += 1
        await asyncio.sleep(RECONNECT.delay_s(failures))


async def read_answers(channel: Channel) -> None:
    """Take one check after the other until the gateway is gone; then break off what goes on, and close the channel."""
    running: set[asyncio.Task[None]] = set()
    try:
        while packet := await channel.receive():
            task = asyncio.create_task(_check(packet))
            running.add(task)
            task.add_done_callback(running.discard)
    except BadPacket as error:
        log.warning("the gateway sent something invalid: %s", error)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        channel.close()


async def _check(packet: Packet) -> None:
    back, *ends = (each.socket() for each in packet.descriptors)
    channel = Channel(back)
    try:
        connections = [await adopt(end) for end in ends]
        said = await answered(packet.message, Plain(connections[0], connections[-1]))
        await channel.send(said._asdict())
    except (OSError, StatusError) as error:
        log.debug("a probe is no longer waited for: %s", error)
    except Exception:
        log.exception("a probe's answer could not be read")
    finally:
        channel.close()


async def answered(asked: JsonObject, connection: Plain) -> ProbeAnswer:
    """Send ``asked["send"]`` (hex), inside TLS if ``tls``, and return what is answered within ``timeout_s``."""
    try:
        async with asyncio.timeout(asked["timeout_s"]):
            through = await secured(connection) if asked["tls"] else connection
            await through.write(bytes.fromhex(asked["send"]))
            return await _read(asked["kind"], through.read)
    except TimeoutError:
        return ProbeAnswer("timeout")
    except ssl.SSLError:
        return ProbeAnswer("malformed")
    except OSError as error:
        return ProbeAnswer("errno", error.errno or 0)
    finally:
        connection.close()


async def _read(kind: str, read: Callable[[], Awaitable[bytes]]) -> ProbeAnswer:
    """Return what the answer says: an HTTP status line, or the frames of a gRPC answer."""
    got = b""
    while data := await read():
        got += data
        if kind == "grpc" and (said := grpc_answer(got)):
            return said
        if len(got) > _BODY_BYTES:
            break
    return http_answer(got) if kind == "http" else ProbeAnswer("closed")


def http_answer(got: bytes) -> ProbeAnswer:
    """Return the status an answer begins with."""
    words = got[:64].split(b" ", 2)
    if not got:
        return ProbeAnswer("closed")
    if not got.startswith(b"HTTP/") or len(words) < 2 or not words[1][:3].isdigit():  # noqa: PLR2004 - version, status
        return ProbeAnswer("malformed")
    return ProbeAnswer("http", int(words[1][:3]))


def grpc_answer(got: bytes) -> ProbeAnswer | None:
    """Return the serving status once the frames tell it, None while they do not."""
    at = 0
    while len(got) - at >= _FRAME_HEAD:
        length, kind, flags = int.from_bytes(got[at : at + 3], "big"), got[at + 3], got[at + 4]
        payload = got[at + _FRAME_HEAD : at + _FRAME_HEAD + length]
        if len(payload) < length:
            return None
        if kind == 0 and length:
            return ProbeAnswer("grpc", payload[6] if len(payload) > 6 and payload[5] == 8 else 0)  # noqa: PLR2004 - field 1
        if (kind == 1 and flags & 1) or kind in {3, 7}:
            return ProbeAnswer("grpc", -1)
        at += _FRAME_HEAD + length
    return None
