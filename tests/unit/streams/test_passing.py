"""Packets with descriptors between two ends."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from minik8s_modules.streams.passing import BadPacket, Channel, pair


def between(act: Callable[[Channel, Channel, socket.socket], Awaitable[None]], accepts: int = 2) -> None:
    """Run ``act`` with both ends, and the raw socket of the first."""

    async def run() -> None:
        one, other = pair()
        ends = Channel(one), Channel(other, accepts)
        try:
            async with asyncio.timeout(20):
                await act(*ends, one)
        finally:
            for end in ends:
                end.close()

    asyncio.run(run())


def test_a_packet_brings_its_own_descriptors():
    async def act(one: Channel, other: Channel, _: socket.socket) -> None:
        near, far = socket.socketpair()
        await one.send({"n": 1})
        await one.send({"n": 2}, [near.fileno()])
        await one.send({"n": 3})
        near.close()
        found = [await other.receive() for _ in range(3)]
        assert [each and (each.message["n"], len(each.descriptors)) for each in found] == [(1, 0), (2, 1), (3, 0)]
        assert found[1] is not None
        taken = found[1].descriptors[0].socket()
        taken.send(b"through")
        assert far.recv(10) == b"through"
        with pytest.raises(BadPacket, match="taken already"):
            found[1].descriptors[0].take()
        taken.close()
        far.close()

    between(act)


@pytest.mark.parametrize("accepts", [0, 2])
def test_descriptors_that_nobody_takes_are_closed(accepts: int):
    async def act(one: Channel, other: Channel, _: socket.socket) -> None:
        near, far = socket.socketpair()
        await one.send({}, [near.fileno()])
        near.close()
        assert await other.receive() is not None
        far.settimeout(60)
        assert far.recv(1) == b""
        far.close()

    between(act, accepts)


@pytest.mark.parametrize("data", [b"[]", b"\xff", b"{}" + b" " * 200_000])
def test_what_is_no_object_or_too_long_is_told(data: bytes):
    async def act(_: Channel, other: Channel, raw: socket.socket) -> None:
        raw.send(data)
        with pytest.raises(BadPacket):
            await other.receive()

    between(act)


def test_a_reader_that_waits_hears_of_either_end():
    async def act(one: Channel, other: Channel, _: socket.socket) -> None:
        for end in (one, other):
            waiting = asyncio.create_task(other.receive())
            await asyncio.sleep(0)
            end.close()
            assert await waiting is None

    between(act)


def test_a_writer_waits_for_a_slow_reader_and_is_told_of_one_that_is_gone():
    async def act(one: Channel, other: Channel, _: socket.socket) -> None:
        sending = asyncio.gather(*(one.send({"n": n, "pad": "x" * 10_000}) for n in range(100)))
        got = [await other.receive() for _ in range(100)]
        assert [each and each.message["n"] for each in got] == list(range(100))
        await sending
        other.close()
        with pytest.raises(OSError, match=r"."):
            await one.send({})

    between(act)


def test_a_closed_number_can_be_another_files_at_once():
    """Who waited at the old one must not be woken, or unregister, by the new one."""

    async def act(one: Channel, other: Channel, _: socket.socket) -> None:
        number = other._socket.fileno()
        waiting = asyncio.create_task(other.receive())
        await asyncio.sleep(0)
        near, far = pair()
        other.close()
        os.dup2(near.fileno(), number)
        again = Channel(socket.socket(fileno=number))
        reading = asyncio.create_task(again.receive())
        assert await waiting is None
        far.send(b"{}")
        assert await reading is not None
        for each in (again, near, far):
            each.close()

    between(act)
