"""The end of a followed log: what Docker leaves out, as its follower ends with the container, is asked for again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from minik8s_modules.api.errors import ServiceUnavailable, StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.streams import logs
from minik8s_modules.streams.connections import Connection, adopt
from minik8s_modules.streams.passing import Descriptor, Packet
from minik8s_modules.streams.requests import StreamRequest

ENDED: JsonObject = {"running": False}


def line(second: int, text: str, kind: int = 1) -> bytes:
    data = f"2026-01-01T00:00:{second:02d}.000000000Z {text}\n".encode()
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def packet(*lines: bytes, **message: Any) -> Packet:
    """Return an answer that brings a connection with these lines."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"".join(lines))
    return Packet({"came": "", **message}, (Descriptor(theirs.detach()),))


class Talk:
    """Answers in the order in which it is to, and remembers what was asked."""

    def __init__(self, *answers: Packet | JsonObject | StatusError) -> None:
        self._answers = [*answers]
        self.asked: list[JsonObject] = []

    async def say(self, message: JsonObject) -> Packet:
        """Note a question and answer it."""
        self.asked.append(message)
        answer = self._answers.pop(0)
        if isinstance(answer, StatusError):
            raise answer
        return answer if isinstance(answer, Packet) else Packet(answer)


async def _read(first: Sequence[bytes], talk: Talk, **options: str) -> str:
    ours, theirs = socket.socketpair()
    client, other = await adopt(ours), await adopt(theirs)
    request = StreamRequest("n1", "u1", "log", {"follow": ["true"], **{k: [v] for k, v in options.items()}}, {}, "")
    reading = asyncio.ensure_future(_all(other))
    try:
        await logs.serve(client, request, talk, packet(*first, frames="stamped"))  # type: ignore[arg-type]
    finally:
        client.close()
        found = await reading
        other.close()
    assert found.endswith(b"0\r\n\r\n")
    body = found.partition(b"\r\n\r\n")[2]
    return "".join(one for one in body.decode().split("\r\n")[1::2])


async def _all(other: Connection) -> bytes:
    return b"".join([piece async for piece in _pieces(other)])


async def _pieces(other: Connection) -> Any:
    while data := await other.read():
        yield data


def told(first: Sequence[bytes], talk: Talk, **options: str) -> str:
    return asyncio.run(_read(first, talk, **options))


def test_lines_that_docker_leaves_out_at_the_end_are_told():
    talk = Talk(ENDED, packet(line(1, "a"), line(2, "b"), line(3, "over")))
    assert told([line(1, "a"), line(2, "b")], talk) == "a\nb\nover\n"
    assert talk.asked == [{"do": "running"}, {"do": "rest", "lines": logs.LAST_LINES, "since": 1767225600}]


def test_more_than_the_last_lines_are_asked_for_where_these_do_not_join_on():
    talk = Talk(ENDED, packet(line(9, "i")), packet(line(8, "h"), line(9, "i")))
    assert told([line(1, "a")], talk) == "a\nh\ni\n"
    assert [one["lines"] for one in talk.asked[1:]] == [logs.LAST_LINES, 0]


def test_of_a_log_that_was_empty_all_is_asked_for():
    talk = Talk(ENDED, packet(line(1, "a")))
    assert told([], talk) == "a\n"
    assert talk.asked[1] == {"do": "rest", "lines": 0, "since": 0}


def test_who_wants_nothing_that_was_there_before_is_told_nothing_of_it():
    assert told([], Talk(ENDED), tailLines="0") == ""


def test_who_has_as_much_as_he_asked_for_is_told_no_more():
    talk = Talk()
    assert told([line(1, "abc"), line(2, "d")], talk, limitBytes="2") == "ab"
    assert talk.asked == []
    talk = Talk(ENDED, packet(line(1, "a"), line(2, "bc")))
    assert told([line(1, "a")], talk, limitBytes="3") == "a\nb"


def test_the_log_of_a_container_that_is_removed_ends_where_it_ended():
    assert told([line(1, "a")], Talk(ENDED, {})) == "a\n"


@pytest.mark.parametrize("answer", [{"running": True}, ServiceUnavailable("gone")])
def test_an_end_that_is_not_known_to_be_one_cuts_the_stream(answer: JsonObject | StatusError):
    with pytest.raises(logs.LogCut):
        told([line(1, "a")], Talk(answer))
