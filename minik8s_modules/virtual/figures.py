"""What a process with virtual nodes tells of itself: calls of providers by function and outcome, how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.virtual.errors import is_invalid_input, is_not_found


class Figures:
    """The families of one process."""

    def __init__(self, registry: Registry, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._registry = registry
        labels = ("function", "outcome")
        self._calls = registry.counter("minik8s_virtual_provider_calls_total", "Calls of providers.", labels)
        self._took = registry.histogram(
            "minik8s_virtual_provider_call_duration_seconds", "How long providers took.", ("function",)
        )

    @contextmanager
    def call(self, function: str) -> Iterator[None]:
        """Count and time a call of a provider's ``function``."""
        began = self._clock.monotonic()
        outcome = "success"
        try:
            yield
        except Exception as error:
            outcome = "not_found" if is_not_found(error) else "invalid" if is_invalid_input(error) else "error"
            raise
        finally:
            self._calls.labels(function, outcome).inc()
            self._took.labels(function).observe(self._clock.monotonic() - began)

    def gauge_nodes(self, read: Callable[[], dict[tuple[str, ...], float]]) -> None:
        """Tell how many nodes there are, by whether their provider answers."""
        self._registry.gauge("minik8s_virtual_nodes", "Nodes this process carries.", ("answers",), read)
