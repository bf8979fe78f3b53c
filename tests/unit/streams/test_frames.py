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
    assert (cut.feed(LOG[5]), cut.gap, cut.later, cut.size) == ([], True, True, 0)
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


def test_after_a_clock_was_set_back_an_end_without_the_last_line_is_a_gap_though_nothing_in_it_is_newer():
    progress = _progress(_stamped(9, b"a\n"), _stamped(5, b"b\n"))
    end = Again(progress, whole=False)
    assert end.feed(_stamped(6, b"d\n") + _stamped(7, b"e\n")) == []
    end.end()
    assert (end.gap, end.later) == (True, False)
    more = Again(progress, whole=False)
    rows = [_stamped(5, b"b\n"), _stamped(5.5, b"c\n"), _stamped(6, b"d\n"), _stamped(7, b"e\n")]
    assert _text(more.feed(b"".join(rows))) == b"c\nd\ne\n"
    more.end()
    assert (more.gap, more.blind) == (False, False)


def test_what_a_follower_leaves_out_is_told_after_all_where_the_log_does_not_have_the_last_line():
    progress = _progress(_stamped(9, b"a\n"), _stamped(5, b"b\n"))
    follower = Follower(progress)
    given = [_stamped(6, b"c\n"), _stamped(7, b"d\n")]
    assert (follower.feed(given[0]), follower.lost, follower.doubted) == ([], True, None)
    again = Again(progress, whole=True)
    assert again.feed(b"".join(given)) == []
    again.end()
    assert again.blind
    follower.restart(trusted=again.blind)
    assert _text(follower.feed(given[1])) == b"c\nd\n"
    assert not follower.lost


ERROR_TEXT = b"Error grabbing logs: invalid character '\\x00' looking for beginning of value\n"


def test_an_error_of_dockers_is_told_once_and_is_no_place_in_the_log():
    progress = Progress(stamped=False)
    error = frame(3, ERROR_TEXT)
    first = Again(progress, whole=True)
    assert first.feed(LOG[0] + error + LOG[1]) == [(1, b"1\n"), (3, ERROR_TEXT), (1, b"2\n")]
    assert progress.last == (1, LOG[1][8:38])
    follower = Follower(progress)
    assert follower.feed(LOG[0] + error + LOG[1] + LOG[2] + error + LOG[3]) == [(1, b"3\n"), (1, b"4\n")]
    assert _text(Again(progress, whole=False).feed(b"".join([LOG[3], error, *LOG[4:]]))) == b"5\n6\n7\n8\n9\n"


@pytest.mark.parametrize(
    "broken", [frame(3, b"other\n"), frame(1, b"no timestamp, but as long as one\n"), frame(2, b"")]
)
def test_what_has_no_timestamp_is_told_and_breaks_nothing(broken: bytes) -> None:
    progress = _progress(LOG[0])
    follower = Follower(progress)
    found = follower.feed(LOG[0] + broken + LOG[1] + broken)
    assert (found[0], found[1]) == ((broken[0], broken[8:]), (1, b"2\n"))
    assert (progress.newest, follower.doubted) == (LOG[1][8:38], None)


def test_what_is_newer_than_all_is_told_though_the_log_ends_in_an_error_before_it():
    follower = Follower(_progress(LOG[0]))
    assert follower.feed(_stamped(9, b"far\n")) == []
    again = Again(follower._progress, whole=True)
    again.feed(LOG[0] + frame(3, ERROR_TEXT))
    again.end()
    assert again.blind
    assert follower.resume(again)
    assert _text(follower.feed(b"")) == b"far\n"


def test_the_first_line_of_a_stream_is_doubted_when_it_is_older_than_the_last_one_of_the_other():
    follower = Follower(_progress(LOG[4]))
    assert _text(follower.feed(LOG[4] + LOG[5] + _stamped(0.001, b"old\n", STDERR))) == b"6\n"
    assert follower.doubted == (STDERR, LOG[0][8:38])


def test_what_waits_is_told_when_there_is_no_log_any_more():
    follower = Follower(_progress(LOG[0]))
    assert follower.feed(LOG[0] + _stamped(9, b"stopping\n")) == []
    follower.let_go()
    assert _text(follower.feed(b"")) == b"stopping\n"
    assert _text(follower.feed(_stamped(40, b"over\n"))) == b"over\n"


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
