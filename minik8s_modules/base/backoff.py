"""Exponential back-off as a value."""

from __future__ import annotations

from typing import NamedTuple


class Backoff(NamedTuple):
    """Delays that grow by ``factor`` from ``initial_s`` up to ``maximum_s`` seconds."""

    initial_s: float
    maximum_s: float
    factor: float = 2.0

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after ``failures`` failures in a row; 0 before the first."""
        if failures <= 0:
            return 0.0
        # the exponent is capped so that a long outage cannot overflow the float
        return min(self.maximum_s, self.initial_s * self.factor ** min(failures - 1, 64))


# kubelet's container restart back-off: 10 s doubling to 5 minutes (kubelet.go, MaxContainerBackOff)
CONTAINER_RESTART = Backoff(initial_s=10.0, maximum_s=300.0)
# kubelet's image pull back-off, same constants (imageBackOff)
IMAGE_PULL = Backoff(initial_s=10.0, maximum_s=300.0)
# our own loops towards a peer that is down
RECONNECT = Backoff(initial_s=0.1, maximum_s=5.0)
