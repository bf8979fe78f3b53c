"""How often the listener of many Services is told again. Pure.

An Envoy keeps what a listener was for the ten minutes of its drain time, 1 MB for a thousand Services. So Services that
come one after the other wait for each other: a second at first, ever longer while more come. Until then, connections to
them are passed on to the Service. What is wrong by now, such as a Service that is gone, waits for others like it alone,
and not as long.
"""

from __future__ import annotations

FIRST_S, MOST_S, MOST_URGENT_S = 1.0, 120.0, 30.0
DRAIN_S = 600.0
"""Envoy's own drain time: so long does it keep a former listener, and the connections that came to it."""


class Pace:
    """Of one thing that is told, or done, again and again.

    Args:
        first_s: how long a change waits for the one before.
        most_s: how long at most, when many have come.
    """

    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._told_s: float | None = None
        self._pause_s = self._urgent_s = first_s

    def due_in_s(self, now_s: float, *, urgent: bool = False) -> float:
        """Return how long a change is to wait yet; an ``urgent`` one only as other urgent ones require."""
        if self._told_s is None or self.is_quiet(now_s):
            return 0.0
        pause_s = min(self._urgent_s, self._pause_s) if urgent else self._pause_s
        return max(0.0, self._told_s + pause_s - now_s)

    def told(self, now_s: float, *, urgent: bool = False) -> None:
        """Note that it was told."""
        if self._told_s is not None and self.is_quiet(now_s):
            self._pause_s = self._urgent_s = self._first_s
        elif self._told_s is not None:
            self._pause_s = min(2 * self._pause_s, self._most_s)
            if urgent:
                self._urgent_s = min(2 * self._urgent_s, MOST_URGENT_S)
        self._told_s = now_s

    def is_quiet(self, now_s: float) -> bool:
        """Return whether nothing that was told is kept by an Envoy any more."""
        return self._told_s is None or now_s - self._told_s > DRAIN_S


class Paces:
    """Of a port number: of its listener while Services share it, and of the change to that and back."""

    def __init__(self) -> None:
        self.listener = Pace()
        self.form = Pace(5.0, DRAIN_S / 2)

    def is_quiet(self, now_s: float) -> bool:
        """Return whether they need not be remembered."""
        return self.listener.is_quiet(now_s) and self.form.is_quiet(now_s)
