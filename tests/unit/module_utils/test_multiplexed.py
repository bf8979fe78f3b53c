"""Many calls at once over HTTP/2, against a peer that says just what a test wants (etcd is in tests/integration)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from minik8s_modules.module_utils.minik8s.rpc import hpack, http2
from minik8s_modules.module_utils.minik8s.rpc.http2 import Broken, CallFailed
from minik8s_modules.module_utils.minik8s.rpc.multiplexed import Call, Multiplexed
from tests.unit.module_utils.test_http2 import METHOD, Frame, Peer, answer, message

INITIAL_WINDOW_SIZE = 4


class Ends(NamedTuple):
    """Both ends of a connection, and the names of calls in the order of their ends."""

    channel: Multiplexed
    peer: Peer
    ended: list[str]

    def begin(self, body: bytes) -> Call:
        """Queue a call that is called as its body."""
        return self.channel.begin(METHOD, body, lambda: self.ended.append(body[:10].decode()))

    def say(self, *frames: Frame) -> None:
        """Have the peer send frames, which are taken in."""
        self.peer.send(*frames)
        self.channel.take_in()


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    far.settimeout(30)
    made = Ends(Multiplexed(near, "etcd:2379"), Peer(far), [])
    yield made
    made.channel.close()
    made.peer.close()


def calls_of(peer: Peer, count: int) -> list[int]:
    """Return the streams of the next calls, each of which ends with one frame."""
    found: list[int] = []
    while len(found) < count:
        frame = peer.frame()
        if frame.kind == http2.DATA:
            assert frame.flags == http2.END_STREAM
            found.append(frame.stream)
    return found


def settings(*values: tuple[int, int]) -> Frame:
    return Frame(http2.SETTINGS, 0, 0, b"".join(struct.pack(">HL", *each) for each in values))


def test_calls_of_a_turn_go_out_together_and_end_in_any_order(ends: Ends):
    made = [ends.begin(name.encode()) for name in "abc"]
    assert ends.channel.running == 3
    ends.channel.flush()
    assert calls_of(ends.peer, 3) == [1, 3, 5]
    ends.say(*answer(b"B", 3), answer(b"A", 1)[0])
    assert ends.ended == ["b"]
    ends.say(*answer(b"A", 1)[1:], *answer(b"C", 5))
    assert ends.ended == ["b", "a", "c"]
    assert [each.answer() for each in made] == [b"A", b"B", b"C"]
    assert ends.channel.running == 0


def test_nothing_to_take_in_is_no_failure(ends: Ends):
    ends.begin(b"a")
    ends.channel.flush()
    ends.channel.take_in()
    assert not ends.ended


def test_a_refusal_is_its_calls_alone(ends: Ends):
    refused, other = ends.begin(b"a"), ends.begin(b"b")
    ends.channel.flush()
    trailers = hpack.literals([("grpc-status", "11"), ("grpc-message", "compacted")])
    ends.say(Frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, trailers), *answer(b"B", 3))
    with pytest.raises(CallFailed, match="compacted"):
        refused.answer()
    assert other.answer() == b"B"


def test_a_large_answer_comes_in_many_frames_among_those_of_others(ends: Ends):
    large, small = ends.begin(b"large"), ends.begin(b"small")
    ends.channel.flush()
    body = bytes(range(256)) * 1_000
    whole = message(body)
    head, _, trailers = answer(b"", 1)
    ends.say(head)
    for at in range(0, len(whole), http2.FRAME_BYTES):
        ends.say(Frame(http2.DATA, 0, 1, whole[at : at + http2.FRAME_BYTES]))
    ends.say(*answer(b"S", 3))
    assert ends.ended == ["small"]
    ends.say(trailers)
    assert (large.answer(), small.answer()) == (body, b"S")


def test_no_more_calls_run_at_once_than_the_server_takes(ends: Ends):
    ends.say(settings((http2.MAX_CONCURRENT_STREAMS, 2)))
    for name in "abc":
        ends.begin(name.encode())
    ends.channel.flush()
    assert calls_of(ends.peer, 2) == [1, 3]
    ends.begin(b"d")
    ends.channel.flush()
    ends.say(*answer(b"", 1))
    ends.channel.flush()
    assert calls_of(ends.peer, 1) == [5]
    ends.say(*answer(b"", 5), *answer(b"", 3))
    ends.channel.flush()
    assert calls_of(ends.peer, 1) == [7]


def test_calls_wait_for_room_in_their_order(ends: Ends):
    body = b"x" * 16_000
    for _ in range(6):
        ends.begin(body)
    ends.channel.flush()
    assert calls_of(ends.peer, 4) == [1, 3, 5, 7]  # 65,535 bytes hold four
    ends.channel.flush()
    ends.say(Frame(http2.WINDOW_UPDATE, 0, 0, (16_005).to_bytes(4, "big")))
    ends.channel.flush()
    assert calls_of(ends.peer, 1) == [9]
    assert ends.channel.running == 6
    ends.say(Frame(http2.WINDOW_UPDATE, 0, 0, (20_000).to_bytes(4, "big")))
    ends.channel.flush()
    assert calls_of(ends.peer, 1) == [11]


def test_what_a_stream_has_no_room_for_is_not_taken(ends: Ends):
    most = b"x" * (http2.FRAME_BYTES - 5)
    assert ends.channel.takes(most)
    assert not ends.channel.takes(most + b"x")
    ends.say(settings((INITIAL_WINDOW_SIZE, 100)))
    assert ends.channel.takes(b"x" * 95)
    assert not ends.channel.takes(b"x" * 96)


def test_what_the_socket_does_not_take_is_sent_later_and_whole(ends: Ends):
    room = (1 << 24).to_bytes(4, "big")
    ends.say(Frame(http2.WINDOW_UPDATE, 0, 0, room))
    bodies = [bytes([65 + number % 26]) * 16_000 for number in range(100)]
    for body in bodies:
        ends.begin(body)
    ends.channel.flush()
    assert ends.channel.blocked
    found: list[bytes] = []
    while len(found) < len(bodies):
        frame = ends.peer.frame()
        if frame.kind == http2.DATA:
            found.append(frame.payload[5:])
        ends.channel.flush()
    assert found == bodies
    assert not ends.channel.blocked


@pytest.mark.parametrize(
    ("frames", "words", "unseen"),
    [
        ([Frame(http2.RST_STREAM, 0, 1, (7).to_bytes(4, "big"))], "reset", True),
        ([Frame(http2.RST_STREAM, 0, 1, (2).to_bytes(4, "big"))], "reset", False),
        ([Frame(http2.DATA, http2.END_STREAM, 1, message(b""))], "no status", False),
        ([*answer(b"")[:2], *answer(b"")[1:]], "not a single message", False),
    ],
)
def test_what_ends_one_call_leaves_the_others(ends, frames, words, unseen):
    failed, other = ends.begin(b"a"), ends.begin(b"b")
    ends.channel.flush()
    ends.say(*frames, *answer(b"B", 3))
    with pytest.raises(Broken, match=words) as broken:
        failed.answer()
    assert broken.value.unseen is unseen
    assert ends.ended == ["a", "b"]
    assert other.answer() == b"B"
    assert ends.channel.usable


def test_a_server_that_leaves_ends_what_it_has_begun_and_has_not_seen_the_rest(ends: Ends):
    ends.say(settings((http2.MAX_CONCURRENT_STREAMS, 2)))
    begun, later, queued = (ends.begin(name.encode()) for name in "abc")
    ends.channel.flush()
    ends.say(Frame(http2.GOAWAY, 0, 0, struct.pack(">LL", 1, 0)))
    assert ends.ended == ["b", "c"]
    for call in (later, queued):
        with pytest.raises(Broken) as broken:
            call.answer()
        assert broken.value.unseen
    assert not ends.channel.usable
    ends.say(*answer(b"A", 1))
    assert begun.answer() == b"A"


def test_a_connection_that_ends_tells_each_call_whether_it_can_have_been_seen(ends: Ends):
    sent = ends.begin(b"a")
    ends.channel.flush()
    queued = ends.begin(b"b")
    ends.peer.close()
    with pytest.raises(Broken) as ended:
        ends.channel.take_in()
    ends.channel.end_all(ended.value)
    for call, unseen in ((sent, False), (queued, True)):
        with pytest.raises(Broken) as broken:
            call.answer()
        assert broken.value.unseen is unseen
    assert ends.channel.running == 0


@pytest.mark.parametrize("kind", [http2.DATA, http2.HEADERS])
def test_padding_is_not_understood(ends: Ends, kind: int):
    ends.begin(b"a")
    ends.channel.flush()
    ends.peer.send(Frame(kind, http2.PADDED, 1, b"\0"))
    with pytest.raises(Broken, match="pads"):
        ends.channel.take_in()


def test_streams_run_out_before_their_numbers_do(ends: Ends):
    ends.channel._stream = (1 << 30) - 1
    assert ends.channel.usable
    ends.begin(b"a")
    ends.channel.flush()
    assert bool(ends.channel.usable) is False  # not as the type checker has narrowed it
    ends.say(*answer(b"", (1 << 30) + 1))
    assert ends.ended == ["a"]


def test_settings_are_acknowledged_and_pings_after_some_calls(ends: Ends):
    ends.say(settings())
    found = {}
    for number in range(http2.PONG_CALLS + 1):
        ends.begin(b"")
        ends.channel.flush()
        while (frame := ends.peer.frame()).kind != http2.DATA:
            if frame.flags & http2.ACK and not frame.stream:
                found[frame.kind, frame.payload] = number
        ends.say(*answer(b"", 2 * number + 1), *([] if number else [Frame(http2.PING, 0, 0, b"12345678")]))
    assert found == {(http2.SETTINGS, b""): 0, (http2.PING, b"12345678"): http2.PONG_CALLS}
