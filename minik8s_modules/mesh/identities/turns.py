"""When a Pod's streams may ask the signer. Shared by threads.

A Pod may begin as many streams as it likes, one after the other, and each asks for a certificate: so the Pod, not the
stream, has a few requests at once, then one a minute, and never two that are not answered yet. The others wait; who
renews at half of a certificate's life never does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AT_ONCE = 4
EVERY_S = 60.0
_BUSY_S = 1.0
_FORGOTTEN_AT = 1000


class Turns:
    """See the top of this file."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._paid_until: dict[str, float] = {}
        self._forget_at = _FORGOTTEN_AT

    def take(self, whose: str) -> float:
        """Take a turn and return 0, or return in how many seconds to try again."""
        with self._lock:
            if whose in self._busy:
                return _BUSY_S
            now_s = self._now()
            paid_s = max(now_s, self._paid_until.get(whose, now_s))
            if (wait_s := paid_s - now_s - (AT_ONCE - 1) * EVERY_S) > 0:
                return wait_s
            self._busy.add(whose)
            self._paid_until[whose] = paid_s + EVERY_S
            self._forget(now_s)
            return 0.0

    def end(self, whose: str) -> None:
        """Note that a request is answered, or given up."""
        with self._lock:
            self._busy.discard(whose)

    def _forget(self, now_s: float) -> None:
        if len(self._paid_until) >= self._forget_at:
            self._paid_until = {each: until_s for each, until_s in self._paid_until.items() if until_s > now_s}
            self._forget_at = max(_FORGOTTEN_AT, 2 * len(self._paid_until))
