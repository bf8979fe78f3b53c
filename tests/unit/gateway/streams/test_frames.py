"""Docker's multiplexed stream, cut anywhere."""

from __future__ import annotations

import pytest

from minik8s_modules.gateway.streams.frames import STDERR, STDOUT, Demultiplexer, Plain, demultiplexer


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
