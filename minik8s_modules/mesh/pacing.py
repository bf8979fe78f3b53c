"""How often the listener of many Services is told again. Pure.

An Envoy keeps what a listener was for the ten minutes of its drain time, 1 MB for a thousand Services. So Services that
come one after the other wait for each other: a second at first, ever longer while more come. Until then, connections to
them are passed on to the Service.
"""

from __future__ import annotations

FIRST_S, MOST_S = 1.0, 120.0
DRAIN_S = 600.0
"""Envoy's own drain time: so long does it keep a former listener, and the connections that came to it."""


class Pace:
    """Of one listener."""

    def __init__(self) -> None:
        self._told_s: float | None = None
        self._pause_s = FIRST_S

    def due_in_s(self, now_s: float, *, urgent: bool) -> float:
        """Return how long a change is to wait yet; an ``urgent`` one waits for no more than the first pause."""
        if self._told_s is None:
            return 0.0
        return max(0.0, self._told_s + (FIRST_S if urgent else self._pause_s) - now_s)

    def told(self, now_s: float) -> None:
        """Note that it was told."""
        if self._told_s is not None:
            is_quiet = now_s - self._told_s > DRAIN_S
            self._pause_s = FIRST_S if is_quiet else min(2 * self._pause_s, MOST_S)
        self._told_s = now_s
