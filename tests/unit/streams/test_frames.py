"""Docker's multiplexed stream, cut anywhere."""

from __future__ import annotations

import pytest

from minik8s_modules.streams.frames import (
    STDERR,
    STDOUT,
    TRUSTED_BYTES,
    Again,
    Demultiplexer,
    Follower,
    Plain,
    Progress,
    demultiplexer,
)


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


def _stamped(second: float, text: bytes, kind: int = 1) -> bytes:
    line = f"2026-01-01T00:00:{second:012.9f}Z ".encode() + text
    return frame(kind, line)


LOG = [_stamped(number / 1000, b"%d\n" % number) for number in range(1, 10)]


def _progress(*frames: bytes, stamped: bool = False, streams: tuple[int, ...] = (1, 2)) -> Progress:
    """Return how far a log was passed on when these frames were."""
    progress = Progress(stamped=stamped, streams=streams)
    Again(progress, whole=True).feed(b"".join(frames))
    return progress


def _text(found: list[tuple[int, bytes]]) -> bytes:
    return b"".join(text for _, text in found)


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_of_a_log_that_is_told_again_what_was_passed_on_is_left_out(size: int) -> None:
    whole = b"".join(LOG)
    again = Again(_progress(*LOG[1:3]), whole=False)
    found = [each for at in range(0, len(whole), size) for each in again.feed(whole[at : at + size])]
    assert _text(found) == b"4\n5\n6\n7\n8\n9\n"
    assert (again.gap, again.first) == (False, (1, b"2026-01-01T00:00:00.004000000Z"))


def test_an_end_that_may_have_lines_before_it_is_told_by_its_whole():
    progress = _progress(LOG[0], stamped=True)
    cut, whole = Again(progress, whole=False), Again(progress, whole=True)
    assert (cut.feed(LOG[5]), cut.gap, cut.size) == ([], True, 0)
    assert (whole.feed(LOG[5]), whole.gap) == ([(1, LOG[5][8:])], False)


def test_a_long_line_that_was_passed_on_in_part_goes_on_after_that_part():
    parts = [_stamped(2, b"a"), _stamped(2, b"b"), _stamped(2, b"c\n")]
    before = _stamped(1, b"before\n")
    assert _text(Again(_progress(before, *parts[:2]), whole=False).feed(b"".join([before, *parts]))) == b"c\n"
    inside = Again(_progress(before, *parts[:2]), whole=False)
    assert (inside.feed(b"".join(parts[1:])), inside.gap) == ([], True)
    whole = Again(_progress(parts[2]), whole=False)
    assert _text(whole.feed(b"".join([*parts, _stamped(3, b"after\n")]))) == b"after\n"


def test_a_clock_set_back_and_streams_out_of_step_tell_nothing_twice_and_lose_nothing():
    rows = [_stamped(9, b"a\n"), _stamped(5, b"b\n"), _stamped(1, b"e\n", STDERR), _stamped(6, b"c\n")]
    for count in (1, 2, 3):
        assert _text(Again(_progress(*rows[:count]), whole=False).feed(b"".join(rows))) == b"".join(
            [b"b\n", b"e\n", b"c\n"][count - 1 :]
        )
    assert Again(_progress(), whole=False).feed(b"".join(rows))[2] == (STDERR, b"e\n")


def test_a_stream_that_is_not_asked_for_is_left_out():
    progress = _progress(LOG[0], streams=(STDERR,))
    assert Follower(progress).feed(b"".join([*LOG, _stamped(0.009, b"e\n", STDERR)])) == [(STDERR, b"e\n")]


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_what_a_follower_gives_twice_is_doubted_and_then_left_out(size: int) -> None:
    follower, text = Follower(_progress(LOG[0])), b""
    given = b"".join([*LOG[:5], *LOG[2:]])
    for at in range(0, len(given), size):
        text += _text(follower.feed(given[at : at + size]))
        if follower.doubted:
            again = Again(follower._progress, whole=False)
            text += _text(again.feed(b"".join(LOG[:7])))
            assert again.size == 2 * len(LOG[0][8:])
            assert not follower.resume(again)  # where it was is not known, but goes on from here
            text += _text(follower.feed(b""))
    assert text == b"2\n3\n4\n5\n6\n7\n8\n9\n"


def test_a_follower_is_doubted_over_the_first_pause_until_it_was_woken_by_what_came_next():
    late = [_stamped(second, b"x\n") for second in (1, 2, 3)]
    follower = Follower(_progress(*LOG))
    assert _text(follower.feed(LOG[-1] + late[0], 0.01)) == b""
    for number, waited in ((0, 0.01), (1, 1.0)):
        assert follower.doubted == (1, late[number][8:38])
        again = Again(follower._progress, whole=False)
        assert _text(again.feed(b"".join([LOG[-1], *late[: number + 1]]))) == b"x\n"
        assert follower.resume(again)
        assert _text(follower.feed(late[number + 1], waited)) == b"" if number == 0 else b"x\n"


def test_a_trusted_follower_is_doubted_when_it_was_late_or_has_given_much():
    def trusted() -> Follower:
        follower = Follower(_progress(LOG[0]))
        assert [*follower.feed(LOG[0]), *follower.feed(_stamped(1, b"x\n"), 1.0)] == []
        again = Again(follower._progress, whole=False)
        again.feed(LOG[0] + _stamped(1, b"x\n"))
        assert follower.resume(again)
        assert follower.feed(b"") == []
        return follower

    after = _stamped(2, b"y\n")
    assert _text(trusted().feed(after, 0.95)) == b"y\n"
    late = trusted()
    assert late.feed(after, 0.5) == []
    assert late.doubted
    much = trusted()
    much.feed(_stamped(1.000001, bytes(TRUSTED_BYTES) + b"\n"))
    assert much.feed(after, 1.0) == []
    assert much.doubted
    assert trusted().feed(_stamped(1.015, b"y\n")) == [(1, b"y\n")]  # sooner than a file can be written


def test_a_follower_that_left_a_file_out_is_given_up():
    follower = Follower(_progress(LOG[0]))
    assert follower.feed(_stamped(9, b"far\n")) == []
    again = Again(follower._progress, whole=True)
    again.feed(b"".join([*LOG, _stamped(9, b"far\n")]))
    assert follower.resume(again)  # it only began there
    assert follower.feed(b"") == []
    assert follower.feed(_stamped(40, b"farther\n"), 1.0) == []
    again = Again(follower._progress, whole=False)
    again.feed(b"".join([_stamped(9, b"far\n"), _stamped(20, b"lost\n"), _stamped(40, b"farther\n")]))
    assert not follower.resume(again)
