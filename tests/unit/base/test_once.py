"""What several threads ask for at the same moment is made once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minik8s_modules.base.once import once

THREADS = 4


def test_threads_that_ask_at_the_same_moment_have_one_answer() -> None:
    made: list[object] = []
    second = threading.Event()

    @once
    def answer() -> object:
        second.wait(0.2)  # as long as a large file takes: long enough for others to ask, too
        made.append(object())
        return made[-1]

    barrier = threading.Barrier(THREADS)

    def ask(_number: int) -> object:
        barrier.wait()
        return answer()

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(ask, range(THREADS)))
    assert len(made) == 1
    assert found == made * THREADS


def test_a_failure_is_no_answer() -> None:
    attempts: list[int] = []

    @once
    def answer() -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        return 7

    with pytest.raises(OSError, match="not yet"):
        answer()
    assert (answer(), answer(), len(attempts)) == (7, 7, 2)
