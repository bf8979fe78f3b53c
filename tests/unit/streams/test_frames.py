"""Docker's multiplexed stream, cut anywhere."""

from __future__ import annotations

import pytest

from minik8s_modules.streams.frames import STDERR, STDOUT, Demultiplexer, Plain, Unrepeated, demultiplexer


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


STREAM = frame(1, b"one\n") + frame(1, b"two\n") + frame(2, b"oops\n") + frame(1, b"") + frame(1, b"three\n")


def test_neighbours_of_one_stream_are_put_together() -> None:
    assert Demultiplexer().feed(STREAM) == [(STDOUT, b"one\ntwo\n"), (STDERR, b"oops\n"), (STDOUT, b"three\n")]


@pytest.mark.parametrize("size", range(1, len(STREAM)))
def test_a_stream_cut_into_pieces_is_the_same(size: int) -> None:
    frames = Demultiplexer()
    found = [each for at in range(0, len(STREAM), size) for each in frames.feed(STREAM[at : at + size])]
    assert b"".join(data for kind, data in found if kind == STDOUT) == b"one\ntwo\nthree\n"
    assert b"".join(data for kind, data in found if kind == STDERR) == b"oops\n"


def test_a_terminal_is_not_multiplexed() -> None:
    assert isinstance(demultiplexer(tty=True), Plain)
    assert demultiplexer(tty=True).feed(STREAM) == [(STDOUT, STREAM)]


def _stamped(second: int, text: bytes) -> bytes:
    line = f"2026-01-01T00:00:{second:02d}.000000000Z ".encode() + text
    return bytes([1, 0, 0, 0]) + len(line).to_bytes(4, "big") + line


def test_what_docker_repeats_when_it_begins_a_new_file_is_left_out():
    log = [_stamped(1, b"a\n"), _stamped(2, b"b"), _stamped(2, b"b\n"), _stamped(3, b"c\n")]
    again = b"".join([*log, *log[1:], _stamped(4, b"d\n")])
    for size in (1, 7, 50, len(again)):
        frames, text = Unrepeated(stamped=False), b""
        for at in range(0, len(again), size):
            text += b"".join(piece for _, piece in frames.feed(again[at : at + size]))
        assert text == b"a\nbb\nc\nd\n"
    kept = Unrepeated(stamped=True).feed(log[0])
    assert kept == [(1, b"2026-01-01T00:00:01.000000000Z a\n")]


def test_of_the_end_of_a_log_what_its_follower_got_is_left_out():
    log = [_stamped(1, b"a\n"), _stamped(2, b"b\n"), _stamped(3, b"c\n"), _stamped(4, b"d\n")]
    followed = Unrepeated(stamped=False)
    followed.feed(b"".join(log[1:3]))
    assert followed.last == b"2026-01-01T00:00:03.000000000Z"
    again = b"".join(log)
    for size in (1, 7, 50, len(again)):
        rest = followed.rest(whole=False)
        pieces = [rest.feed(again[at : at + size]) for at in range(0, len(again), size)]
        assert b"".join(text for piece in pieces for _, text in piece) == b"d\n"
        assert rest.gap is False


def test_an_end_that_may_have_lines_before_it_is_told_by_its_whole():
    followed = Unrepeated(stamped=True)
    followed.feed(_stamped(1, b"a\n"))
    end = _stamped(5, b"e\n")
    cut, whole = followed.rest(whole=False), followed.rest(whole=True)
    assert (cut.feed(end), cut.gap) == ([], True)
    assert (whole.feed(end), whole.gap) == ([(1, end[8:])], False)


def test_of_a_stream_that_said_nothing_since_the_follower_began_older_lines_are_none_of_the_end():
    followed = Unrepeated(stamped=False)
    followed.feed(_stamped(5, b"e\n"))
    older, newer = bytearray(_stamped(1, b"old\n")), bytearray(_stamped(6, b"new\n"))
    older[0] = newer[0] = 2
    assert followed.rest(whole=False).feed(bytes(older) + _stamped(5, b"e\n") + bytes(newer)) == [(2, b"new\n")]


def test_a_clock_set_back_tells_no_line_twice_at_the_end():
    rows = b"".join([_stamped(9, b"a\n"), _stamped(5, b"b\n")])
    followed = Unrepeated(stamped=False)
    followed.feed(rows)
    assert followed.rest(whole=False).feed(rows + _stamped(6, b"c\n")) == [(1, b"c\n")]


def test_a_clock_set_back_and_streams_out_of_step_lose_nothing():
    frames = Unrepeated(stamped=False)
    rows = [_stamped(9, b"a\n"), _stamped(5, b"b\n"), _stamped(6, b"c\n")]
    error = bytearray(_stamped(1, b"e\n"))
    error[0] = 2
    assert [text for _, text in frames.feed(b"".join([*rows, bytes(error)]))] == [b"a\n", b"b\n", b"c\n", b"e\n"]
