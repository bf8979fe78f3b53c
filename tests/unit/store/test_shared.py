"""The connection that a loop's errands share, against a server that does just what a test wants."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest

from minik8s_modules.module_utils.minik8s.rpc import http2
from minik8s_modules.module_utils.minik8s.rpc.multiplexed import Multiplexed
from minik8s_modules.store.errors import StoreUnavailable
from minik8s_modules.store.wire.connection import Connections
from tests.support.looped import Looped
from tests.support.waiting import until
from tests.unit.module_utils.test_http2 import METHOD, Frame, Peer, answer


class Call(NamedTuple):
    """What a server was asked, on which of its connections."""

    connection: int
    stream: int
    body: bytes


class Server:
    """Answers calls with their bodies in capitals, unless a connection has a script."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[Call] = []
        self.scripts: dict[int, Callable[[Peer], None]] = {}
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(60)
            self.connections.append(sock)
            thread = threading.Thread(target=self._serve, args=(len(self.connections) - 1, Peer(sock)))
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, peer: Peer) -> None:
        try:
            if number in self.scripts:
                self.scripts[number](peer)
            while True:
                call = self.next(number, peer)
                peer.send(*answer(call.body.upper(), call.stream))
        except (AssertionError, OSError):  # the client has gone
            peer.close()

    def next(self, number: int, peer: Peer) -> Call:
        """Return the next call of a connection."""
        body, frame = b"", peer.frame()
        while frame.kind != http2.DATA or not frame.flags & http2.END_STREAM:
            body += frame.payload if frame.kind == http2.DATA else b""
            frame = peer.frame()
        self.asked.append(Call(number, frame.stream, (body + frame.payload)[5:]))
        return self.asked[-1]

    def bodies(self) -> list[bytes]:
        """Return what was asked so far."""
        return [each.body for each in self.asked]

    def close(self) -> None:
        """End it, and all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self.connections:
            with contextlib.suppress(OSError):  # it has gone
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)


class World(NamedTuple):
    """A server, who asks it, and the loop of errands that do."""

    server: Server
    connections: Connections
    loop: Looped

    def begin(self, *names: str, read: bool = False) -> None:
        """Begin errands that make a call each, with their name."""
        ask = self.connections.read if read else self.connections.write
        for name in names:
            self.loop.begin(name, partial(ask, METHOD, name.encode()))

    def done(self, *names: str) -> list[object]:
        """Return what became of errands, once they have ended."""
        self.loop.until(lambda: set(names) <= set(self.loop.ended))
        return [self.loop.results[name] for name in names]

    def warm(self) -> None:
        """Have the shared connection made: it is the server's second one."""
        self.begin("first")
        assert self.done("first") == [b"FIRST"]
        until(lambda: self.connections._shared and len(self.server.connections) == 2)
        self.server.asked.clear()


def silent_until(gone: threading.Event) -> Callable[[Peer], None]:
    def silent(_peer: Peer) -> None:
        gone.wait(60)

    return silent


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    server = Server()
    made = World(server, Connections([server.endpoint], None, timeout_s=getattr(request, "param", 2)), Looped())
    yield made
    made.loop.close()
    made.connections.close()
    server.close()


def test_the_calls_of_a_turn_go_together_over_one_connection(world: World):
    world.warm()
    world.begin("a", "b", "c")
    assert not world.server.asked
    assert world.done("a", "b", "c") == [b"A", b"B", b"C"]
    assert world.server.asked == [Call(1, 1, b"a"), Call(1, 3, b"b"), Call(1, 5, b"c")]
    assert len(world.server.connections) == 2


def test_a_thread_makes_calls_until_there_is_a_shared_connection(world: World):
    world.begin("a", "b")
    assert world.done("a", "b") == [b"A", b"B"]
    until(lambda: world.connections._shared)
    world.begin("c")
    assert world.done("c") == [b"C"]
    assert sum(each.connection == world.server.asked[-1].connection for each in world.server.asked) == 1


def test_what_a_frame_does_not_hold_a_thread_sends(world: World):
    world.warm()
    name = "x" * 20_000
    world.begin(name)
    world.loop.until(lambda: world.loop.ended[-1] == name)
    assert world.loop.results[name] == name.upper().encode()
    assert {each.connection for each in world.server.asked} == {0}


def test_a_connection_that_the_server_closed_meanwhile_costs_nobody_an_answer(world: World):
    world.warm()
    world.server.connections[1].shutdown(socket.SHUT_RDWR)
    world.loop.turn()
    world.begin("a")
    assert world.done("a") == [b"A"]
    until(lambda: world.connections._shared)
    world.begin("b")
    assert world.done("b") == [b"B"]
    assert world.server.bodies() == [b"a", b"b"]


def test_a_write_that_may_have_been_done_is_not_repeated_and_a_read_is(world: World):
    def cut(peer: Peer) -> None:
        for _ in range(2):
            world.server.next(1, peer)
        peer.close()

    world.server.scripts[1] = cut
    world.warm()
    world.begin("write")
    world.begin("read", read=True)
    write, read = world.done("write", "read")
    assert isinstance(write, StoreUnavailable)
    assert read == b"READ"
    assert world.server.bodies().count(b"write") == 1


def test_what_a_server_that_leaves_has_not_begun_is_done_by_a_thread(world: World):
    def leave(peer: Peer) -> None:
        first, _ = world.server.next(1, peer), world.server.next(1, peer)
        peer.send(Frame(http2.GOAWAY, 0, 0, struct.pack(">LL", first.stream, 0)), *answer(b"last", first.stream))

    world.server.scripts[1] = leave
    world.warm()
    world.begin("a", "b")
    assert world.done("a", "b") == [b"last", b"B"]
    first, second = (each.connection for each in world.server.asked if each.body == b"b")
    assert first == 1 != second


@pytest.mark.parametrize("world", [6], indirect=True, ids=["6 s"])
def test_a_late_answer_costs_only_its_own_call(world: World):
    late = threading.Event()

    def pauses(peer: Peer) -> None:
        _, second = world.server.next(1, peer), world.server.next(1, peer)
        late.wait(60)
        assert peer.frame().kind == http2.RST_STREAM
        peer.send(*answer(b"B", second.stream))

    world.server.scripts[1] = pauses
    world.warm()
    world.begin("a")
    until_s = time.monotonic() + 3  # on a busy machine either call may take as long to begin
    world.loop.until(lambda: time.monotonic() > until_s)
    world.begin("b")
    (a,) = world.done("a")
    assert isinstance(a, StoreUnavailable)
    assert "took too long" in str(a)
    late.set()
    assert world.done("b") == [b"B"]
    world.begin("c")
    assert world.done("c") == [b"C"]
    assert world.server.asked[-1].connection != 1
    assert not [each for each in world.connections._open if isinstance(each, Multiplexed) and not each.usable]


def test_what_has_come_when_the_loop_ends_counts(world: World):
    sent = threading.Event()

    def answers(peer: Peer) -> None:
        call = world.server.next(1, peer)
        peer.send(*answer(b"A", call.stream))
        sent.set()

    world.server.scripts[1] = answers
    world.warm()
    world.begin("a")
    world.loop.errands.end_turn()
    assert sent.wait(60)
    world.loop.errands.end()
    assert world.loop.results["a"] == b"A"


def test_a_server_that_says_nothing_is_given_up_in_time_with_all_that_it_was_asked(world: World):
    gone = threading.Event()
    world.server.scripts[1] = silent_until(gone)
    world.warm()
    try:
        world.begin("a", "b")
        for each in world.done("a", "b"):
            assert isinstance(each, StoreUnavailable)
            assert "took too long" in str(each)
        world.begin("c")
        assert world.done("c") == [b"C"]
    finally:
        gone.set()


@pytest.mark.parametrize(
    "frame",
    [
        Frame(http2.SETTINGS, 0, 0, b"12345"),
        Frame(http2.DATA, http2.PADDED, 1, b"\0"),
        Frame(http2.GOAWAY, 0, 0, b""),
        Frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, b"\0\x7f"),
    ],
)
def test_what_no_server_should_send_ends_calls_and_not_the_loop(world: World, frame: Frame):
    def spoil(peer: Peer) -> None:
        world.server.next(1, peer)
        peer.send(frame)

    world.server.scripts[1] = spoil
    world.warm()
    world.begin("a")
    assert isinstance(world.done("a")[0], StoreUnavailable | bytes)
    world.begin("b")
    assert world.done("b") == [b"B"]


def test_only_the_loop_that_made_the_first_call_uses_the_connection(world: World):
    world.warm()
    world.begin("a")
    other = Looped()
    other.begin("b", lambda: world.connections.write(METHOD, b"b"))
    other.until(lambda: other.ended)
    assert other.results == {"b": b"B"}
    assert world.done("a") == [b"A"]
    assert {each.body: each.connection for each in world.server.asked} == {b"a": 1, b"b": 0}
    other.close()


def test_a_store_that_is_closed_ends_the_calls_under_way(world: World):
    asked, gone = threading.Event(), threading.Event()

    def silent(peer: Peer) -> None:
        world.server.next(1, peer)
        asked.set()
        gone.wait(60)

    world.server.scripts[1] = silent
    world.warm()
    world.begin("a")
    world.loop.turn()
    assert asked.wait(60)
    world.connections.close()
    try:
        assert isinstance(world.done("a")[0], StoreUnavailable)
        world.begin("b")
        assert isinstance(world.done("b")[0], StoreUnavailable)
    finally:
        gone.set()


def test_a_loop_that_ends_ends_calls_under_way_and_closes_the_connection(world: World):
    gone = threading.Event()
    world.server.scripts[1] = silent_until(gone)
    world.warm()
    world.begin("a")
    world.loop.turn(0)
    world.loop.errands.end()
    assert isinstance(world.loop.results["a"], StoreUnavailable)
    gone.set()
    assert not [each for each in world.connections._open if isinstance(each, Multiplexed)]
