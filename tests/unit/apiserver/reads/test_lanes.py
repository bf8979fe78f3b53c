"""What waits while a program outside converts: one question a stream, and no more than a bound."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from minik8s_modules.apiserver.intake.limits import USER, Account, Holder
from minik8s_modules.apiserver.reads import lanes as lanes_module
from minik8s_modules.apiserver.reads.lanes import Lanes, Written
from minik8s_modules.apiserver.reads.watchers import Join, Stream, Watcher
from minik8s_modules.store.cached import CachedObject, CacheEvent
from tests.support.waiting import until

JANE = Holder(Account("jane", USER), "192.0.2.1")


class Slow:
    """A stream whose program answers when it is let; it keeps the revisions that it was asked about."""

    resource = topic = "/registry/example.com/hosts/"
    lane = "hosts/v2"

    def __init__(self, key: str) -> None:
        self.key = key
        self.asked: list[list[int]] = []
        self.may_answer = threading.Event()

    def prepare(self, events: Sequence[CacheEvent]) -> None:
        """Wait."""
        self.asked.append([event.revision for event in events])
        assert self.may_answer.wait(60)

    def encode(self, event: CacheEvent) -> bytes:
        """Its revision."""
        return b"%d\n" % event.revision

    def bookmark(self, revision: int) -> bytes:
        """The revision."""
        return b"bookmark %d\n" % revision


class World:
    """Lanes, what they have written, and watchers."""

    def __init__(self) -> None:
        self.done: list[Written] = []
        self.lanes = Lanes(self.done.append)
        self.streams = [Slow("a"), Slow("b")]
        self.socks: list[socket.socket] = []

    def watcher(self, stream: Slow) -> Watcher:
        """One more watch."""
        ours, theirs = socket.socketpair()
        self.socks += [ours, theirs]
        return Watcher(Join(ours, cast(Stream, stream), b"", 0, 60.0, bookmarks=False, holder=JANE), 0.0)

    def write(self, stream: Slow, revision: int, *watchers: Watcher, **more: Any) -> bool:
        """One event for watchers."""
        item = CachedObject("/registry/example.com/hosts/a", b"x" * 2000, revision, {})
        event = CacheEvent("MODIFIED", item.key, revision, item, None)
        return self.lanes.write(cast(Stream, stream), [*watchers], [event], **more)

    def lines(self, watcher: Watcher) -> bytes:
        """What was written for a watcher."""
        return b"".join(line for each in self.done if watcher in each.watchers for _, line in each.lines)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for stream in made.streams:
        stream.may_answer.set()
    for sock in made.socks:
        sock.close()


def test_what_waits_for_a_stream_is_one_question(world: World):
    (stream, other), lines = world.streams, b"1\n2\n3\n4\n"
    watcher, beside = world.watcher(stream), world.watcher(other)
    assert world.write(stream, 1, watcher)
    until(lambda: stream.asked == [[1]])
    for revision in (2, 3, 4):
        assert world.write(stream, revision, watcher)
        assert world.write(other, revision, beside)
    stream.may_answer.set()
    other.may_answer.set()
    until(lambda: world.lines(watcher) == lines and world.lines(beside) == lines[2:])
    assert (stream.asked, other.asked) == ([[1], [2, 3, 4]], [[2, 3, 4]])


def test_nothing_overtakes_what_a_watcher_that_joins_has_missed_nor_a_bookmark(world: World):
    stream = world.streams[0]
    first, late = world.watcher(stream), world.watcher(stream)
    world.write(stream, 1, first)
    until(lambda: stream.asked == [[1]])
    world.write(stream, 2, first)
    world.write(stream, 2, late, joined=True)
    world.write(stream, 3, first, late)
    world.lanes.bookmark(late, 3)
    world.write(stream, 4, first, late)
    stream.may_answer.set()
    until(lambda: world.lines(first) == b"1\n2\n3\n4\n")
    assert world.lines(late) == b"2\n3\nbookmark 3\n4\n"


def test_no_more_than_a_bound_waits(world: World, monkeypatch):
    monkeypatch.setattr(lanes_module, "MOST_BYTES", 10_000)
    stream = world.streams[0]
    watcher = world.watcher(stream)
    world.write(stream, 1, watcher)
    until(lambda: stream.asked == [[1]])
    taken = [world.write(stream, revision, watcher) for revision in range(2, 8)]
    assert taken == [True] * 5 + [False]
    again = world.watcher(stream)
    watcher.sock.close()
    assert world.write(stream, 8, again)  # what waited is dropped: those that watch now are not sent away, too
    stream.may_answer.set()
    until(lambda: world.lines(again) == b"8\n")
    assert stream.asked == [[1], [8]]


def test_watchers_that_come_and_go_leave_nothing_that_waits(world: World, monkeypatch):
    monkeypatch.setattr(lanes_module, "_MANY", 10)
    stream, staying = world.streams[0], world.watcher(world.streams[0])
    world.write(stream, 1, staying)
    until(lambda: stream.asked == [[1]])
    for revision in range(2, 60):
        going = world.watcher(stream)
        world.write(stream, revision, going, joined=True)
        going.sock.close()
    (lane,) = world.lanes._lanes.values()
    assert len(lane._jobs) <= 12  # twice the one that is wanted, and ten
