"""A followed log is told whole, once and in order, whatever Docker's followers leave out, give twice or end with."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.streams import logs
from minik8s_modules.streams.connections import adopt
from minik8s_modules.streams.passing import Descriptor, Packet
from minik8s_modules.streams.requests import StreamRequest
from tests.unit.streams.test_end_of_logs import everything, text_of

BEGAN = 1_767_225_600_000_000_000
PAUSE_NS = 30_000_000_000


class Entry(NamedTuple):
    """An entry of a log: the part of a line, of one stream, in the file of this number."""

    file: int
    kind: int
    at: int
    text: str

    def frame(self) -> bytes:
        """Return it as Docker does, with its timestamp."""
        seconds, rest = divmod(self.at, 1_000_000_000)
        minutes, second = divmod(seconds - BEGAN // 1_000_000_000, 60)
        stamp = f"2026-01-01T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}.{rest:09d}Z"
        data = f"{stamp} {self.text}".encode()
        return bytes([self.kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def entries(luck: random.Random, *, set_back: bool = False) -> Iterator[Entry]:
    """Yield a log over some files; writing each takes a while, as in reality, and long lines have several parts.

    ``set_back``: the clock is, now and then; by other times than a file takes, which would hide that one is left out.
    """
    at = BEGAN + set_back * 60 * PAUSE_NS
    for file in range(luck.randrange(1, 7)):
        size = luck.randrange(1, 40)
        pause = luck.randrange(size)
        for number in range(size):
            at += PAUSE_NS if number == pause else luck.choice([700, 2_000_000])
            if set_back and luck.random() < 0.05:
                at -= luck.choice([4, 70]) * 1_000_000_000
            kind = luck.choice([1, 1, 2])
            parts = luck.choice([1, 1, 1, 1, 3])
            for part in range(1, parts + 1):
                yield Entry(file, kind, at, f"{file}.{number}.{part}" + "\n" * (part == parts))


class Docker:
    """A log that grows, and followers that do what Docker's have been seen to do."""

    def __init__(self, luck: random.Random, *, set_back: bool = False) -> None:
        self._luck = luck
        self._coming = [*entries(luck, set_back=set_back)]
        self.log: list[Entry] = []
        self.over = False
        self._tasks: list[asyncio.Task[None]] = []

    def grow(self, most: int) -> None:
        """Write some more."""
        count = self._luck.randrange(most) + 1
        self.log += self._coming[:count]
        del self._coming[:count]
        self.over = not self._coming

    async def say(self, message: JsonObject) -> Packet:
        """Answer as the gateway does."""
        if self._luck.random() < 0.7:
            self.grow(30)
        lines = message.get("lines", 0)
        match message["do"]:
            case "running":
                return Packet({"running": not self.over})
            case "follow":
                return self._told(self._follow, len(self.log) - lines if lines else 0)
        return self._told(self._end, len(self.log) - lines if lines else 0, message.get("since", 0))

    def mark(self) -> Packet:
        """Return what the gateway answers first."""
        answer = self._told(self._end, len(self.log) - 1)
        return answer._replace(message={**answer.message, "frames": "stamped"})

    def _told(
        self, tell: Callable[[socket.socket, int, list[Entry]], Coroutine[Any, Any, None]], begin: int, since: int = 0
    ) -> Packet:
        known = [each for each in self.log[max(0, begin) :] if each.at >= since * 1_000_000_000]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._tasks.append(asyncio.create_task(tell(ours, max(0, begin), known)))
        return Packet({"came": ""}, (Descriptor(theirs.detach()),))

    async def _end(self, to: socket.socket, _begin: int, known: list[Entry]) -> None:
        with to:
            data = b"".join(each.frame() for each in known)
            await asyncio.get_running_loop().sock_sendall(to, data)

    async def _follow(self, to: socket.socket, at: int, _known: list[Entry]) -> None:
        try:
            with to:
                await self._give(to, at)
        except OSError:  # it was given up
            return

    async def _give(self, to: socket.socket, at: int) -> None:
        luck, repeats, lost = self._luck, 2, luck_of_end(self._luck)
        while not self.over or at < len(self.log) - lost:
            if at >= len(self.log):
                await asyncio.sleep(0)
                if luck.random() < 0.5:
                    self.grow(luck.choice([2, 60]))
                continue
            entry = self.log[at]
            await asyncio.get_running_loop().sock_sendall(to, entry.frame())
            at += 1
            last_of_file = at < len(self.log) and self.log[at].file != entry.file
            choice = luck.choice(["late", "late", "on time", "ends"]) if last_of_file else ""
            if choice == "late":
                self.grow(60)
                at = self._first(self.log[-1].file)
            elif choice == "ends" and luck.random() < 0.3:
                return
            elif luck.random() < 0.02 and repeats and entry.at > self.log[self._first(entry.file)].at:
                at, repeats = self._first(entry.file), repeats - 1
            elif luck.random() < 0.01:  # it waits for a file that is no longer written
                while not self.over:
                    await asyncio.sleep(0.005)
                return

    def _first(self, file: int) -> int:
        return next(index for index, each in enumerate(self.log) if each.file == file)

    async def close(self) -> None:
        """End all followers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def luck_of_end(luck: random.Random) -> int:
    """Return how many of the last lines a follower leaves out when the container ends."""
    return luck.choice([0, 0, 3])


async def _followed(luck: random.Random, *, set_back: bool = False, **options: str) -> tuple[str, list[Entry], int]:
    docker = Docker(luck, set_back=set_back)
    if luck.random() < 0.7:
        docker.grow(100)
    while docker.log and not docker.log[-1].text.endswith("\n"):  # from the middle of a long line, more is told
        docker.grow(1)
    known = len(docker.log)
    ours, theirs = socket.socketpair()
    client, other = await adopt(ours), await adopt(theirs)
    request = StreamRequest("n1", "u1", "log", {"follow": ["true"], **{k: [v] for k, v in options.items()}}, {}, "")
    reading = asyncio.ensure_future(everything(other))
    try:
        async with asyncio.timeout(60):
            await logs.serve(client, request, docker, docker.mark())  # type: ignore[arg-type]
    finally:
        client.close()
        found = await reading
        other.close()
        await docker.close()
    return text_of(found), docker.log, known


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "IDLE_S", 0.02)
    monkeypatch.setattr(logs, "LOST_S", 0.02)
    monkeypatch.setattr(logs, "ROUND_S", 0.001)
    monkeypatch.setattr(logs, "MOST_ENDS", 20)


@pytest.mark.parametrize("seed", range(100))
def test_a_log_is_told_whole_once_and_in_order(seed: int) -> None:
    found, log, _ = asyncio.run(_followed(random.Random(seed)))
    assert found == "".join(each.text for each in log)


@pytest.mark.parametrize("seed", range(60))
def test_of_a_log_whose_clock_is_set_back_nothing_is_lost(seed: int) -> None:
    found, log, _ = asyncio.run(_followed(random.Random(seed), set_back=True))
    told = iter(found.splitlines(keepends=True))
    assert [line for line in "".join(each.text for each in log).splitlines(keepends=True) if line not in told] == []


@pytest.mark.parametrize("seed", range(20))
def test_one_stream_of_it_is_told_likewise(seed: int) -> None:
    found, log, _ = asyncio.run(_followed(random.Random(seed), stream="Stderr"))
    assert found == "".join(each.text for each in log if each.kind == 2)


@pytest.mark.parametrize("seed", range(20))
def test_who_asks_for_no_line_that_is_there_is_told_all_that_come(seed: int) -> None:
    found, log, known = asyncio.run(_followed(random.Random(seed), tailLines="0"))
    assert found == "".join(each.text for each in log[known:])
