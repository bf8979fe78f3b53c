"""Whether this gateway attends the nodes: always, or only beside the reconciler that leads.

On several control-plane machines each has a gateway, and a reconciler connects to its own one only while it leads. So
a client on the socket is the sign that this gateway is the one to hold the nodes' ssh masters, to renew their Leases
and to answer for their streams. It goes on for ``LINGER_S`` after the last client went: a reconciler that is started
again finds everything as it was.
"""

from __future__ import annotations

from minik8s_modules.base.clock import Clock, SystemClock

LINGER_S = 10.0


class Standby:
    """Decides by the number of clients; with ``led_only`` False it always attends."""

    def __init__(self, *, led_only: bool, clock: Clock | None = None) -> None:
        self.led_only = led_only
        self._clock = clock or SystemClock()
        self._last_client_s: float | None = None

    def attends(self, clients: int) -> bool:
        """Return whether nodes are to be attended now that there are so many clients."""
        now_s = self._clock.monotonic()
        if clients:
            self._last_client_s = now_s
        return not self.led_only or (self._last_client_s is not None and now_s - self._last_client_s < LINGER_S)
