"""When what somebody else sets again and again is reverted: at once at first, then ever later.

A person who edits an object is answered at once. A program that disagrees (an operator, a webhook that writes the time)
answers each write with another, so two of them would write as fast as the API server lets them.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.objects import Key
from minik8s_modules.base.backoff import Backoff

AT_ONCE = 10
QUIET_S = 600.0
LATER = Backoff(initial_s=1.0, maximum_s=60.0)


class _Known(NamedTuple):
    declared: tuple[str, int]
    times: int
    last_s: float


class Reverting:
    """How often each key was reverted lately; not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}

    def wait_s(self, key: Key, declared: tuple[str, int], now_s: float) -> float:
        """Return how many seconds to wait before the next time.

        Args:
            key: what is reverted.
            declared: UID and generation of what it follows from; a change of it starts the count again.
            now_s: monotonic seconds.
        """
        known = self._lately(key, declared, now_s)
        return max(0.0, known.last_s + LATER.delay_s(known.times - AT_ONCE + 1) - now_s)

    def reverted(self, key: Key, declared: tuple[str, int], now_s: float) -> None:
        """Count a time; what was refused, or changed nothing, is none."""
        self._known[key] = _Known(declared, self._lately(key, declared, now_s).times + 1, now_s)

    def _lately(self, key: Key, declared: tuple[str, int], now_s: float) -> _Known:
        known = self._known.get(key)
        if known is None or known.declared != declared or now_s - known.last_s >= QUIET_S:
            return _Known(declared, 0, now_s)
        return known

    def forget(self, key: Key) -> None:
        """Keep nothing of a key that is gone."""
        self._known.pop(key, None)
