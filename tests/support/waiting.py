"""Waiting for a condition, with patience for a busy machine, and without keeping it busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SHORTEST_S, LONGEST_S = 0.01, 0.5


def nap(begun: float) -> None:
    """Sleep between two looks, for a tenth of the time since ``begun`` on the monotonic clock.

    A look costs requests or processes, of the servers that are waited for as well: four test processes that looked
    every 10 ms slowed down what they waited for.
    """
    time.sleep(min(LONGEST_S, max(SHORTEST_S, (time.monotonic() - begun) / 10)))


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return the first true value of ``condition``; fails when there is none within ``timeout_s`` seconds."""
    begun = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() < begun + timeout_s, "it did not come true in time"
        nap(begun)
    return value
