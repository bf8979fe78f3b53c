"""Waiting for a condition, with patience for a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return the first true value of ``condition``; fails when there is none within ``timeout_s`` seconds."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
    return value
