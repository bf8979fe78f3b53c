"""When a node that is listened to closely counts as silent, and when as back."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.gateway.errors import NodeUnreachable
from minik8s_modules.gateway.heart import CALM_S, SILENT_S, Heart
from minik8s_modules.gateway.messages import BadMessage, Listen, parse


class Way:
    """A node that answers or does not."""

    def __init__(self, clock: FakeClock) -> None:
        self.answers, self._clock = True, clock

    def beat(self, within_s: float) -> None:
        """Answer, or let the time pass."""
        if not self.answers:
            self._clock.advance(within_s)
            raise NodeUnreachable("nothing")

    def end_beats(self) -> None:
        """Do nothing."""
        return


def test_a_node_that_misses_a_second_is_silent_and_is_back_after_a_calm_while() -> None:
    clock, told = FakeClock(), list[dict[str, Any]]()
    way = Way(clock)
    heart = Heart("n1", way, told.append, clock)
    heart.ask()
    way.answers = False
    heart.ask()
    assert [one["silent"] for one in told] == [False, True]
    way.answers = True
    heart.ask()
    clock.advance(CALM_S / 2)
    heart.ask()
    assert len(told) == 2
    clock.advance(CALM_S)
    heart.ask()
    assert [one["silent"] for one in told] == [False, True, False]


def test_one_that_has_never_answered_is_given_time() -> None:
    clock, told = FakeClock(), list[dict[str, Any]]()
    way = Way(clock)
    way.answers = False
    heart = Heart("n1", way, told.append, clock)
    heart.ask()
    assert told == []
    for _ in range(int(CALM_S / SILENT_S)):
        heart.ask()
    assert [one["silent"] for one in told] == [True]


def test_the_request_to_listen_is_read() -> None:
    assert parse(b'{"op": "heart", "node": "n1", "on": true}\n') == Listen("n1", on=True)
    assert parse(b'{"op": "heart", "node": "n1"}\n') == Listen("n1", on=False)
    with pytest.raises(BadMessage):
        parse(b'{"op": "heart"}\n')
