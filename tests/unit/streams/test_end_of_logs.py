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
from minik8s_modules.streams.connections import Connection, LogCut, adopt
from minik8s_modules.streams.passing import Descriptor, Packet
from minik8s_modules.streams.requests import StreamRequest

ENDED: JsonObject = {"running": False}
RUNNING: JsonObject = {"running": True}


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
    reading = asyncio.ensure_future(everything(other))
    try:
        await logs.serve(client, request, talk, packet(*first[-1:], frames="stamped"))  # type: ignore[arg-type]
    finally:
        client.close()
        found = await reading
        other.close()
    return text_of(found)


async def everything(other: Connection) -> bytes:
    """Return all that comes."""
    found = b""
    while data := await other.read():
        found += data
    return found


def text_of(answer: bytes) -> str:
    """Return the body of a whole answer in chunks."""
    assert answer.endswith(b"0\r\n\r\n")
    return "".join(answer.partition(b"\r\n\r\n")[2].decode().split("\r\n")[1::2])


def told(first: Sequence[bytes], talk: Talk, **options: str) -> str:
    return asyncio.run(_read(first, talk, **options))


def test_lines_that_docker_leaves_out_at_the_end_are_told():
    talk = Talk(packet(*lines("ab")), packet(*lines("ab")), ENDED, packet(*lines("ab"), line(3, "over")))
    assert told(lines("ab"), talk) == "a\nb\nover\n"
    assert talk.asked == [
        {"do": "log"},
        {"do": "follow", "lines": 20},
        {"do": "running"},
        {"do": "rest", "lines": 20, "since": 0},
    ]


def test_more_than_the_last_lines_are_asked_for_where_these_do_not_join_on():
    late = packet(line(9, "i"))
    talk = Talk(packet(line(1, "a")), packet(line(1, "a")), ENDED, late, late_again(), packet(*lines("abcdefghi")))
    assert told([line(1, "a")], talk) == "a\nb\nc\nd\ne\nf\ng\nh\ni\n"
    assert [one["lines"] for one in talk.asked[3:]] == [20, 600, 10_000]


def test_all_is_asked_for_in_the_end_from_shortly_before_the_last_line():
    talk = Talk(packet(line(5, "e")), packet(), ENDED, *(late_again() for _ in range(3)), packet(line(9, "i")))
    assert told([line(5, "e")], talk) == "e\ni\n"
    assert talk.asked[-1] == {"do": "rest", "lines": 0, "since": 1767225603}


def test_of_a_log_that_was_empty_all_is_asked_for():
    talk = Talk(packet(), packet(), ENDED, packet(line(1, "a")))
    assert told([], talk) == "a\n"
    assert talk.asked[1] == {"do": "follow", "lines": 0}
    assert talk.asked[3] == {"do": "rest", "lines": 0, "since": 0}


def test_who_wants_nothing_that_was_there_before_is_told_nothing_of_it():
    talk = Talk(packet(*lines("ab")), ENDED, packet(*lines("abc")))
    assert told(lines("ab"), talk, tailLines="0") == "c\n"
    assert talk.asked[0] == {"do": "follow", "lines": 20}


def test_where_nothing_is_new_enough_what_comes_is_told():
    talk = Talk(packet(), packet(*lines("ab")), ENDED, packet(*lines("abc")))
    assert told(lines("ab"), talk, since="1767225700") == "c\n"


def test_who_has_as_much_as_he_asked_for_is_told_no_more():
    talk = Talk(packet(line(1, "abc"), line(2, "d")))
    assert told([line(2, "d")], talk, limitBytes="2") == "ab"
    assert talk.asked == [{"do": "log"}]
    talk = Talk(packet(line(1, "a")), packet(line(1, "a")), ENDED, packet(line(1, "a"), line(2, "bc")))
    assert told([line(1, "a")], talk, limitBytes="3") == "a\nb"


def test_the_log_of_a_container_that_is_removed_ends_where_it_ended():
    assert told([line(1, "a")], Talk(packet(line(1, "a")), {})) == "a\n"
    assert told([line(1, "a")], Talk(packet(line(1, "a")), packet(line(1, "a")), ENDED, {})) == "a\n"


def test_the_last_words_of_a_container_that_is_removed_are_told():
    talk = Talk(packet(line(1, "a")), packet(line(1, "a"), line(9, "over")), {}, ENDED, {})
    assert told([line(1, "a")], talk) == "a\nover\n"


def test_lines_after_an_error_of_dockers_are_told():
    text = b"Error grabbing logs: invalid character 'x' looking for beginning of value\n"
    broken = bytes([3, 0, 0, 0]) + len(text).to_bytes(4, "big") + text
    log = [line(1, "a"), broken]
    rest, *rests = [packet(*log) for _ in range(5)]
    talk = Talk(packet(*log), packet(line(5, "e"), line(6, "f")), rest, ENDED, *rests)
    assert told([line(1, "a")], talk) == f"a\n{text.decode()}e\nf\n"


def test_all_is_asked_for_after_a_clock_was_set_back():
    log = [line(9, "a"), line(5, "b")]
    end = [line(7, "d")]
    ends = [packet(*end) for _ in range(3)]
    talk = Talk(packet(*log), packet(*end), *ends, packet(*log, line(6, "c"), *end), ENDED, packet(*end))
    assert told([log[-1]], talk) == "a\nb\nc\nd\n"
    assert talk.asked[5] == {"do": "rest", "lines": 0, "since": 0}


def test_a_follower_that_ends_while_the_container_runs_has_some_successors():
    talk = Talk(packet(line(1, "a")), *(one for _ in range(9) for one in (packet(line(1, "a")), RUNNING)))
    with pytest.raises(LogCut):
        told([line(1, "a")], talk)
    assert [one["do"] for one in talk.asked].count("follow") == logs.MOST_ENDS + 1


def test_an_end_that_is_not_known_to_be_one_cuts_the_stream():
    with pytest.raises(LogCut):
        told([line(1, "a")], Talk(packet(line(1, "a")), packet(line(1, "a")), ServiceUnavailable("gone")))


def lines(texts: str) -> list[bytes]:
    """Return a line each second."""
    return [line(second, text) for second, text in enumerate(texts, 1)]


def late_again() -> Packet:
    return packet(line(9, "i"))
