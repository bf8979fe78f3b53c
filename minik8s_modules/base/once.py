"""What is read once by whoever asks first, also when several threads ask at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return ``make``, called once.

    ``functools.cache`` alone calls it for each thread that asks before the first has its answer. Of a large file, that
    is as many parsed copies at the same time, and Python does not give all of their place back.
    """
    lock = threading.Lock()
    made = cache(make)

    @wraps(make)
    def get() -> T:
        with lock:
            return made()

    return get
