"""One call at a time over HTTP/2, against a peer that says just what a test wants (etcd is in tests/integration)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from minik8s_modules.module_utils.minik8s.rpc import hpack
from minik8s_modules.module_utils.minik8s.rpc.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PONG_CALLS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Broken,
    CallFailed,
    Channel,
)

OK = hpack.literals([("grpc-status", "0"), ("grpc-message", "")])
METHOD = "/etcdserverpb.KV/Range"


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes = b""

    def wire(self) -> bytes:
        """Return its bytes."""
        size = len(self.payload)
        return struct.pack(">HBBBL", size >> 8, size & 255, self.kind, self.flags, self.stream) + self.payload


def message(body: bytes) -> bytes:
    return struct.pack(">BL", 0, len(body)) + body


def answer(body: bytes, stream: int = 1, trailers: bytes = OK) -> list[Frame]:
    return [
        Frame(HEADERS, END_HEADERS, stream, hpack.literals([("content-type", "application/grpc")])),
        Frame(DATA, 0, stream, message(body)),
        Frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers),
    ]


class Peer:
    """The other end: what it is sent, as frames; what it sends is up to the test."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._bytes = b""
        self._greeted = False

    def frame(self) -> Frame:
        """Return the next frame."""
        if not self._greeted:
            assert self._take(len(PREFACE)) == PREFACE
            self._greeted = True
        high, low, kind, flags, stream = struct.unpack(">HBBBL", self._take(9))
        return Frame(kind, flags, stream, self._take(high << 8 | low))

    def asked(self) -> bytes:
        """Return the body of the next call that ends, or whose first message is whole."""
        body = b""
        while True:
            found = self.frame()
            if found.kind == DATA:
                body += found.payload
                if len(body) == 5 + int.from_bytes(body[1:5], "big"):
                    return body[5:]

    def send(self, *frames: Frame) -> None:
        """Send frames."""
        self._sock.sendall(b"".join(each.wire() for each in frames))

    def send_slowly(self, data: bytes) -> None:
        """Send bytes one by one."""
        for byte in data:
            self._sock.sendall(bytes([byte]))

    def close(self) -> None:
        """End the connection."""
        self._sock.close()

    def _take(self, size: int) -> bytes:
        while len(self._bytes) < size:
            chunk = self._sock.recv(65_536)
            assert chunk, "the client closed the connection"
            self._bytes += chunk
        found, self._bytes = self._bytes[:size], self._bytes[size:]
        return found


class Ends(NamedTuple):
    """Both ends of a connection."""

    channel: Channel
    peer: Peer


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    near.settimeout(30)
    far.settimeout(30)
    made = Ends(Channel(near, "etcd:2379"), Peer(far))
    yield made
    made.channel.close()
    made.peer.close()


def beside(act: Callable[[], object]) -> threading.Thread:
    """Let the peer act while the test calls."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_calls_follow_each_other_on_one_connection(ends):
    def serve() -> None:
        for number in range(3):
            body = ends.peer.asked()
            ends.peer.send(*answer(body.upper(), 2 * number + 1))

    beside(serve)
    assert [ends.channel.call(METHOD, body, 30) for body in (b"a", b"", b"c")] == [b"A", b"", b"C"]
    assert ends.channel.usable


def test_the_call_says_where_it_goes(ends):
    beside(lambda: ends.peer.send(*answer(b"")))
    ends.channel.call(METHOD, b"", 30)
    heads = next(frame for frame in iter(ends.peer.frame, None) if frame.kind == HEADERS)
    assert hpack.fields(heads.payload) == {
        ":method": "POST",
        ":scheme": "http",
        ":authority": "etcd:2379",
        ":path": METHOD,
        "te": "trailers",
        "content-type": "application/grpc",
    }


def test_an_answer_may_come_in_any_pieces(ends):
    body = bytes(range(256)) * 200
    frames = [Frame(DATA, 0, 1, piece) for piece in _pieces(message(body), 10_000)]
    heads, _, trailers = answer(b"")
    split = (Frame(HEADERS, END_STREAM, 1, OK[:5]), Frame(CONTINUATION, END_HEADERS, 1, OK[5:]))
    assert trailers.payload == OK
    wire = b"".join(each.wire() for each in (heads, *frames, *split))
    beside(lambda: ends.peer.send_slowly(wire))
    assert ends.channel.call(METHOD, b"", 30) == body


def _pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_a_large_message_waits_for_room(ends):
    body, found = b"x" * 400_000, []

    def serve() -> None:
        taken = b""
        while len(taken) < len(body) + 5:
            frame = ends.peer.frame()
            if frame.kind == DATA:
                assert len(frame.payload) <= FRAME_BYTES
                taken += frame.payload
                room = len(frame.payload).to_bytes(4, "big")
                ends.peer.send(Frame(WINDOW_UPDATE, 0, 0, room), Frame(WINDOW_UPDATE, 0, 1, room))
        found.append(taken[5:])
        ends.peer.send(*answer(b"taken"))

    beside(serve)
    assert ends.channel.call(METHOD, body, 30) == b"taken"
    assert found == [body]


def test_settings_are_acknowledged_with_the_next_call_and_pings_after_some(ends):
    settings = struct.pack(">HL", 4, 1_000_000)
    ends.peer.send(Frame(SETTINGS, 0, 0, settings), Frame(PING, 0, 0, b"12345678"))
    found = {}
    for number in range(PONG_CALLS + 1):
        ends.peer.send(*answer(b"", 2 * number + 1))
        ends.channel.call(METHOD, b"", 30)
        while (frame := ends.peer.frame()).kind != DATA:
            if frame.flags & ACK and not frame.stream:
                found[frame.kind, frame.payload] = number
    assert found == {(SETTINGS, b""): 1, (PING, b"12345678"): PONG_CALLS}


def test_a_refusal_has_etcds_status_and_words(ends):
    trailers = hpack.literals([("grpc-status", "11"), ("grpc-message", "etcdserver: 100%25 gone")])
    ends.peer.send(Frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers))
    with pytest.raises(CallFailed, match="100% gone") as failed:
        ends.channel.call(METHOD, b"", 30)
    assert failed.value.code == 11
    ends.peer.send(*answer(b"yes", 3))
    assert ends.channel.call(METHOD, b"", 30) == b"yes"


def test_a_large_message_may_be_refused_before_all_of_it_was_sent(ends):
    trailers = hpack.literals([("grpc-status", "8"), ("grpc-message", "received message larger than max")])
    ends.peer.send(Frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers), Frame(RST_STREAM, 0, 1, bytes(4)))
    with pytest.raises(CallFailed, match="larger than max"):
        ends.channel.call(METHOD, b"x" * 400_000, 30)
    assert not ends.channel.usable


@pytest.mark.parametrize(
    ("frames", "words", "unseen"),
    [
        ([Frame(RST_STREAM, 0, 1, (7).to_bytes(4, "big"))], "reset", True),
        ([Frame(RST_STREAM, 0, 1, (2).to_bytes(4, "big"))], "reset", False),
        ([Frame(GOAWAY, 0, 0, bytes(8))], "no more calls", True),
        ([Frame(DATA, PADDED, 1, b"\0")], "pads", False),
        ([Frame(DATA, END_STREAM, 1, message(b""))], "no status", False),
        ([*answer(b"")[:2], *answer(b"")[1:]], "not a single message", False),
        ([Frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\0\x7f")], "cut off", False),
    ],
)
def test_what_breaks_a_call_says_whether_it_can_have_been_seen(ends, frames, words, unseen):
    ends.peer.send(*frames)
    with pytest.raises(Broken, match=words) as broken:
        ends.channel.call(METHOD, b"", 30)
    assert broken.value.unseen is unseen


def test_an_answer_without_a_status_is_a_failure(ends):
    ends.peer.send(Frame(HEADERS, END_HEADERS | END_STREAM, 1, hpack.literals([("a", "b")])))
    with pytest.raises(CallFailed, match="no gRPC status"):
        ends.channel.call(METHOD, b"", 30)


def test_a_server_that_leaves_ends_what_it_has_begun(ends):
    ends.peer.send(Frame(GOAWAY, 0, 0, struct.pack(">LL", 1, 0)), *answer(b"last"))
    assert ends.channel.call(METHOD, b"", 30) == b"last"
    assert not ends.channel.usable
    assert not ends.channel.alive()


def test_silence_ends_a_call(ends):
    near, far = socket.socketpair()
    near.settimeout(0.05)
    channel = Channel(near, "etcd")
    with pytest.raises(Broken, match="in time") as broken:
        channel.call(METHOD, b"", 0.05)
    assert broken.value.late
    assert not broken.value.unseen
    channel.close()
    far.close()


def test_a_connection_that_waits_is_alive_until_its_peer_goes(ends):
    ends.peer.send(*answer(b""))
    ends.channel.call(METHOD, b"", 30)
    assert ends.channel.alive()
    ends.peer.send(Frame(PING, 0, 0, bytes(8)))
    assert ends.channel.alive()
    ends.peer.close()
    assert not ends.channel.alive()


def test_a_stream_yields_each_message_once_and_acknowledges_at_once(ends):
    messages = ends.channel.stream(METHOD, b"create")
    two = message(b"one") + message(b"two")
    ends.peer.send(answer(b"")[0], Frame(PING, 0, 0, b"12345678"), Frame(DATA, 0, 1, two[:12]))
    assert next(messages) == b"one"
    assert ends.peer.asked() == b"create"
    ends.peer.send(Frame(DATA, 0, 1, two[12:]))
    assert next(messages) == b"two"
    assert ends.peer.frame() == Frame(PING, ACK, 0, b"12345678")
    ends.peer.send(Frame(HEADERS, END_HEADERS | END_STREAM, 1, OK))
    with pytest.raises(Broken, match="ended the stream"):
        next(messages)


def test_a_quiet_stream_asks_for_a_sign_of_life(ends):
    near, far = socket.socketpair()
    near.settimeout(0.05)
    channel, peer = Channel(near, "etcd"), Peer(far)
    messages = channel.stream(METHOD, b"")
    with pytest.raises(Broken, match="in time"):
        next(messages)
    peer.asked()
    assert peer.frame().kind == PING
    channel.close()
    peer.close()


def test_a_call_is_ended_from_another_thread(ends):
    def cut() -> None:
        ends.peer.asked()
        ends.channel.cut()

    beside(cut)
    with pytest.raises(Broken):
        ends.channel.call(METHOD, b"", 30)
