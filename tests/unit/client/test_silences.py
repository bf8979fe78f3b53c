"""APIs that keep silent: who is refused, who finds out whether they answer again, and what is no silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client import silences as client_silences
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.silences import AGAIN_S, Silences

API, OTHER = "custom.metrics.k8s.io", "wardle.example.com/v1"
SLOW, FAST = "/namespaces/lab/slow", "/namespaces/shop/fast"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def silences(clock: FakeClock) -> Silences:
    return Silences(clock)


@contextmanager
def refused() -> Iterator[None]:
    """Expect that nothing is asked."""
    with pytest.raises(ApiUnreachable, match="has kept silent"):
        yield


def fails(silences: Silences, clock: FakeClock, after_s: float, error: Exception, *asked: str) -> None:
    """Ask, and fail so late."""
    with silences.asking(*asked or (API, SLOW)):
        clock.advance(after_s)
        raise error


def keeps_silent(silences: Silences, clock: FakeClock, about: str = SLOW, api: str = API, wait_s: float = 5.0) -> None:
    """Ask in vain for so long."""
    with pytest.raises(ApiUnreachable, match="Read timed out"):
        fails(silences, clock, wait_s, ApiUnreachable("Read timed out."), api, about)


def asks(silences: Silences, about: str = SLOW, api: str = API) -> None:
    """Ask, and be answered."""
    with silences.asking(api, about):
        pass


def test_who_asks_again_what_has_kept_silent_is_refused_for_a_while(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock)
    for _ in range(2):
        with refused():
            asks(silences)
        clock.advance(AGAIN_S / 2 - 0.1)
    asks(silences, api=OTHER)
    clock.advance(0.2)
    asks(silences)
    asks(silences)


def test_one_alone_finds_out_whether_it_answers_again(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock)
    clock.advance(AGAIN_S)
    with silences.asking(API, SLOW):
        clock.advance(3 * AGAIN_S)
        with refused():
            asks(silences)
    asks(silences)
    keeps_silent(silences, clock)
    clock.advance(10 * AGAIN_S)
    with silences.asking(API, SLOW), refused():
        asks(silences)
    keeps_silent(silences, clock)
    with refused():
        asks(silences)


def test_what_answers_is_asked_whatever_else_keeps_silent(silences: Silences, clock: FakeClock):
    asks(silences, FAST)
    for _ in range(6):
        keeps_silent(silences, clock)
        for _ in range(3):
            asks(silences, FAST)
            clock.advance(AGAIN_S / 3)
        with silences.asking(API, SLOW):
            asks(silences, FAST)
            clock.advance(0.5)


def test_what_is_not_known_to_answer_is_asked_by_one_at_a_time_beside_a_silence(silences: Silences, clock: FakeClock):
    with silences.asking(API, "a"), silences.asking(API, "b"):
        pass
    keeps_silent(silences, clock)
    with silences.asking(API, "c"):
        with refused():
            asks(silences, "d")
        asks(silences, "a")
        asks(silences, "d", OTHER)
    asks(silences, "d")
    with silences.asking(API, "e"):
        asks(silences, "c")
        asks(silences, "d")


def test_an_api_that_falls_silent_as_a_whole_holds_one_thread_soon(silences: Silences, clock: FakeClock):
    metrics = [str(each) for each in range(20)]
    for each in metrics:
        asks(silences, each)
    for each in metrics[:4]:
        keeps_silent(silences, clock, each)
    with silences.asking(API, metrics[4]), refused():
        asks(silences, metrics[5])


def test_metrics_that_fall_silent_one_by_one_say_nothing_of_those_that_answer_between(
    silences: Silences, clock: FakeClock
):
    metrics = [str(each) for each in range(10)]
    for each in (*metrics, FAST, "asked seldom"):
        asks(silences, each)
    for each in metrics:
        keeps_silent(silences, clock, each)
        asks(silences, FAST)
        clock.advance(1)
    with silences.asking(API, "new"):
        asks(silences, "asked seldom")


def test_a_silence_that_nobody_comes_back_to_says_nothing_of_others_after_a_while(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock)
    clock.advance(5 * AGAIN_S + 1)
    with silences.asking(API, "a"):
        asks(silences, "b")


def test_what_is_remembered_has_an_end(silences: Silences, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_silences, "_KEPT", 40)
    for number in range(50):
        asks(silences, str(number), f"{number}.example.com/v1")
        keeps_silent(silences, clock, api=f"{number}.example.com/v1")
    assert len(silences._answering) == len(silences._silent) == 40
    with refused():
        asks(silences, api="49.example.com/v1")


def test_what_fails_at_once_or_answers_late_is_no_silence(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock, wait_s=0.5)
    with pytest.raises(ServiceUnavailable):
        fails(silences, clock, 20, ServiceUnavailable("later"))
    with silences.asking(API, SLOW):
        clock.advance(20)
    asks(silences)
