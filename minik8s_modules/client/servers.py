"""Which of several API servers is asked: the first in the list while it answers, else the next one that does.

A daemon's own machine stands first. Whoever neither answers nor says that it is ready (transport.py) is passed over by
all calls from then on; after ``RETURN_S`` the first is asked again, and when it is still away that costs one refused
connection. A watch stays with the server it began at; those that began elsewhere end after 5 to 10 minutes instead of
30 to 60 (api.py).
"""

from __future__ import annotations

import threading

from minik8s_modules.base.clock import Clock, SystemClock

RETURN_S = 30.0


class Servers:
    """The number of the server in use, of ``count``; thread-safe."""

    def __init__(self, count: int, clock: Clock | None = None) -> None:
        self.count = count
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._current = 0
        self._left_first_at = 0.0

    def current(self) -> int:
        """Return the number of the server to ask now."""
        with self._lock:
            if self._current and self._clock.monotonic() - self._left_first_at >= RETURN_S:
                self._current = 0
            return self._current

    def failed(self, number: int) -> None:
        """Pass ``number`` over from now on, unless another call has done so already."""
        with self._lock:
            if number != self._current:
                return
            if number == 0:
                self._left_first_at = self._clock.monotonic()
            self._current = (number + 1) % self.count
