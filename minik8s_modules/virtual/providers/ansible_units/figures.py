"""What is told of units: how many there are by host and state, passes by outcome, and hosts that do not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from minik8s_modules.base.metrics import Registry

Counts = Callable[[], Mapping[tuple[str, str], int]]
"""Returns how many units there are, by host and state."""
Silent = Callable[[], Mapping[str, bool]]
"""Returns of each host whether it does not answer."""


class UnitFigures:
    """The families of one process, which may carry several groups."""

    def __init__(self, registry: Registry) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = {}
        self._silent: dict[str, Silent] = {}
        self._passes = registry.counter(
            "minik8s_units_passes_total", "Passes over the units of a host.", ("node", "host", "outcome")
        )
        registry.gauge("minik8s_units", "Units of Pods, by their state.", ("node", "host", "state"), self._units)
        registry.gauge(
            "minik8s_units_host_unreachable", "1 while a host does not answer.", ("node", "host"), self._away
        )

    def add(self, node: str, counts: Counts, silent: Silent) -> None:
        """Tell of a node from now on."""
        with self._lock:
            self._counts[node], self._silent[node] = counts, silent

    def remove(self, node: str) -> None:
        """Tell of a node no more."""
        with self._lock:
            self._counts.pop(node, None)
            self._silent.pop(node, None)

    def passed(self, node: str, host: str, *, well: bool) -> None:
        """Count a pass."""
        self._passes.labels(node, host, "success" if well else "failure").inc()

    def _units(self) -> dict[tuple[str, ...], float]:
        with self._lock:
            counts = dict(self._counts)
        return {(node, *where): float(number) for node, read in counts.items() for where, number in read().items()}

    def _away(self) -> dict[tuple[str, ...], float]:
        with self._lock:
            silent = dict(self._silent)
        return {(node, host): float(away) for node, read in silent.items() for host, away in read().items()}


_MADE: WeakKeyDictionary[Registry, UnitFigures] = WeakKeyDictionary()
_MAKING = threading.Lock()


def figures_of(registry: Registry) -> UnitFigures:
    """Return the families in ``registry``; made the first time."""
    with _MAKING:
        if registry not in _MADE:
            _MADE[registry] = UnitFigures(registry)
        return _MADE[registry]
