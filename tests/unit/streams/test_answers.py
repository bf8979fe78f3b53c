"""What answers to probes say."""

from __future__ import annotations

import pytest

from minik8s_modules.streams.answers import ProbeAnswer, grpc_answer, http_answer


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (b"", None),
        (b"\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01", ProbeAnswer("grpc", 1)),
        (b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00", ProbeAnswer("grpc", 0)),
        (b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88", ProbeAnswer("grpc", -1)),
        (b"\x00\x00\x07\x00", None),
    ],
    ids=["nothing", "serving", "unknown", "trailers only", "half a frame"],
)
def test_frames_tell_the_serving_status(got: bytes, said: ProbeAnswer | None):
    assert grpc_answer(got) == said


def test_an_empty_answer_is_an_early_end():
    assert http_answer(b"") == ProbeAnswer("closed")
    assert http_answer(b"hello") == ProbeAnswer("malformed")
    assert http_answer(b"HTTP/1.1 204 No Content\r\n\r\n") == ProbeAnswer("http", 204)
