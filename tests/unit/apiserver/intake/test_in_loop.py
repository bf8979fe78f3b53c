"""How much the intake's loop takes upon itself in a turn."""

from __future__ import annotations

import select
import time
from types import SimpleNamespace
from typing import Any

import pytest

from minik8s_modules.apiserver.intake.connections import Answer
from minik8s_modules.apiserver.intake.in_loop import BEGINNING_S, ERRANDS, Loop
from minik8s_modules.apiserver.intake.limits import USER, Account
from minik8s_modules.apiserver.intake.turns import Turns


@pytest.mark.parametrize(("each_s", "most"), [(0.0, ERRANDS), (BEGINNING_S * 1.5, 1)])
def test_few_short_writes_begin_in_a_turn_and_none_after_one_that_computed_for_long(
    monkeypatch: pytest.MonkeyPatch, each_s: float, most: int
):
    done: list[Any] = []
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])  # a busy machine takes a turn's time for nothing

    def compute(*_: Any) -> Answer:
        now_s[0] += each_s
        return Answer([], keep=True)

    def answered(whole: Any, answer: Any) -> Any:
        return answer(connection, whole)

    connection: Any = SimpleNamespace(user="jane", account=Account("jane", USER), answered=answered)
    with select.epoll() as epoll:
        loop = Loop(
            epoll, lambda: None, Turns(10_000), lambda _connection, _whole: None,
            lambda _connection, _whole: compute, lambda *ended: done.append(ended),
        )  # fmt: skip
        for _ in range(2):
            loop.begin_turn()
            taken = [loop.answers(connection, None) for _ in range(ERRANDS + 4)]  # type: ignore[arg-type]
            assert taken == [True] * most + [False] * (ERRANDS + 4 - most)
        loop.errands.end()
    assert len(done) == 2 * most
