"""APIs that keep silent: who is refused, who finds out whether they answer again, and what is no silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.silences import AGAIN_S, Silences

API, OTHER = "custom.metrics.k8s.io", "wardle.example.com/v1"


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


def fails(silences: Silences, clock: FakeClock, after_s: float, error: Exception) -> None:
    """Ask, and fail so late."""
    with silences.asking(API):
        clock.advance(after_s)
        raise error


def keeps_silent(silences: Silences, clock: FakeClock, wait_s: float = 5.0) -> None:
    """Ask in vain for so long."""
    with pytest.raises(ApiUnreachable, match="Read timed out"):
        fails(silences, clock, wait_s, ApiUnreachable("Read timed out."))


def asks(silences: Silences, api: str = API) -> None:
    """Ask, and be answered."""
    with silences.asking(api):
        pass


def test_who_asks_an_api_that_has_kept_silent_is_refused_for_a_while(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock)
    for _ in range(2):
        with refused():
            asks(silences)
        clock.advance(AGAIN_S / 2 - 0.1)
    asks(silences, OTHER)
    clock.advance(0.2)
    asks(silences)
    asks(silences)


def test_one_alone_finds_out_whether_it_answers_again(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock)
    clock.advance(AGAIN_S)
    with silences.asking(API):
        clock.advance(3 * AGAIN_S)
        with refused():
            asks(silences)
    asks(silences)
    keeps_silent(silences, clock)
    clock.advance(AGAIN_S)
    keeps_silent(silences, clock)
    with refused():
        asks(silences)


def test_what_fails_at_once_or_answers_late_is_no_silence(silences: Silences, clock: FakeClock):
    keeps_silent(silences, clock, 0.5)
    with pytest.raises(ServiceUnavailable):
        fails(silences, clock, 20, ServiceUnavailable("later"))
    with silences.asking(API):
        clock.advance(20)
    asks(silences)
