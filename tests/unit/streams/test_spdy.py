"""SPDY/3.1 as kubectl speaks it: its frames written out by hand, the answers read back."""

from __future__ import annotations

import asyncio
import struct
import zlib

import pytest

from minik8s_modules.streams.connections import BUFFER_BYTES
from minik8s_modules.streams.spdy import SpdyError, SpdySession, SpdyStream
from minik8s_modules.streams.spdy_dictionary import ADLER_32, DICTIONARY


class Peer:
    """The other end: what it says is put in, what it is told is kept."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self.taken = b""
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def say(self, data: bytes) -> None:
        """Let the session read ``data``."""
        self._said.put_nowait(data)

    async def read(self) -> bytes:
        """Return what was said."""
        return await self._said.get()

    async def write(self, data: bytes) -> None:
        """Keep what is told."""
        self.taken += data

    def opening(self, number: int, **headers: str) -> bytes:
        """Return a SYN_STREAM frame."""
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            block += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        payload = struct.pack(">IIH", number, 0, 0) + packed
        return control(1, payload)


def control(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(payload)) + payload


def data(number: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", number, flags << 24 | len(content)) + content


def test_the_dictionary_is_the_one_of_the_specification() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == ADLER_32


def test_a_stream_is_opened_answered_and_read_to_its_end() -> None:
    async def scenario() -> None:
        peer = Peer()
        session = SpdySession(peer)
        running = asyncio.create_task(session.run())
        whole = peer.opening(1, streamtype="stdin") + data(1, b"hello ") + data(1, b"world", flags=1)
        for at in range(0, len(whole), 7):
            peer.say(whole[at : at + 7])
        stream = await anext(session.streams())
        assert stream.headers == {"streamtype": "stdin"}
        assert struct.unpack_from(">HHI", peer.taken)[:2] == (0x8003, 2)
        read = b""
        while piece := await stream.read():
            read += piece
        assert read == b"hello world"
        peer.taken = b""
        await stream.write(b"x" * 40_000)
        await stream.finish()
        assert [struct.unpack_from(">II", peer.taken, at) for at in (0, 8 + 32768)] == [
            (1, 32768),
            (1, 40_000 - 32768),
        ]
        assert peer.taken.endswith(struct.pack(">II", 1, 0x01000000))
        peer.say(b"")
        await running

    asyncio.run(scenario())


def test_a_ping_is_answered_with_itself() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.say(control(6, struct.pack(">I", 77)))
        peer.say(b"")
        await SpdySession(peer).run()
        assert peer.taken == control(6, struct.pack(">I", 77))

    asyncio.run(scenario())


def test_a_stream_nobody_reads_stops_the_session_and_no_memory_is_lost() -> None:
    async def scenario() -> None:
        peer = Peer()
        session = SpdySession(peer)
        running = asyncio.create_task(session.run())
        peer.say(peer.opening(1))
        for _ in range(100):
            peer.say(data(1, b"x" * 32768))
        stream: SpdyStream = await anext(session.streams())
        await asyncio.sleep(0.05)
        assert len(await stream.read()) <= BUFFER_BYTES + 32768
        await asyncio.sleep(0.05)
        assert len(await stream.read()) <= BUFFER_BYTES + 32768
        running.cancel()

    asyncio.run(scenario())


def test_a_reset_stream_is_over_for_both_directions() -> None:
    async def scenario() -> None:
        peer = Peer()
        session = SpdySession(peer)
        running = asyncio.create_task(session.run())
        peer.say(peer.opening(3) + control(3, struct.pack(">II", 3, 5)))
        stream = await anext(session.streams())
        await asyncio.sleep(0)
        assert await stream.read() == b""
        with pytest.raises(ConnectionResetError):
            await stream.write(b"late")
        running.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "said",
    [
        control(1, b""),
        control(1, struct.pack(">IIH", 1, 0, 0) + b"no zlib"),
        struct.pack(">HHI", 0x8002, 1, 0),
        struct.pack(">II", 1, 0xFFFFFF),
    ],
    ids=["short", "not compressed", "SPDY/2", "a frame of 16 MiB"],
)
def test_what_is_no_spdy_ends_the_session(said: bytes) -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.say(said)
        await SpdySession(peer).run()

    with pytest.raises(SpdyError):
        asyncio.run(scenario())


def test_headers_that_unfold_without_end_are_refused() -> None:
    async def scenario() -> None:
        peer = Peer()
        peer.say(peer.opening(1, bomb="x" * 10_000_000))
        await SpdySession(peer).run()

    with pytest.raises(SpdyError, match="headers of more than"):
        asyncio.run(scenario())
