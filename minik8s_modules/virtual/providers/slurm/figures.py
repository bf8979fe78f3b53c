"""What is told of Slurms: jobs by state, passes by outcome and how long they took, and whether Slurm answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from minik8s_modules.base.clock import Clock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.virtual.providers.slurm.results import Outcome

States = Callable[[], Mapping[str, int]]
"""Returns how many jobs have each state, in Slurm's words."""


class SlurmFigures:
    """The families of one process, which may carry several partitions."""

    def __init__(self, registry: Registry) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, States] = {}
        self._away: dict[str, bool] = {}
        self._passes = registry.counter(
            "minik8s_slurm_passes_total", "Passes over the jobs of a node.", ("node", "outcome")
        )
        self._copied = registry.counter(
            "minik8s_slurm_results_total", "Copies of a Pod's results to a ConfigMap.", ("node", "outcome")
        )
        self._took = registry.histogram("minik8s_slurm_pass_duration_seconds", "How long passes took.", ("node",))
        registry.gauge("minik8s_slurm_jobs", "Jobs of a node, by their state in Slurm.", ("node", "state"), self._jobs)
        registry.gauge(
            "minik8s_slurm_unavailable", "1 while Slurm or its login machine does not answer.", ("node",), self._silent
        )

    def with_node(self, node: str, states: States) -> SlurmFigures:
        """Tell of a node from now on; returns itself."""
        with self._lock:
            self._states[node] = states
        return self

    def copied(self, node: str, outcome: Outcome) -> None:
        """Count a copy of results."""
        word = "success" if not outcome.reason else "failure" if outcome.again_s is None else "retry"
        self._copied.labels(node, word).inc()

    def remove(self, node: str) -> None:
        """Tell of a node no more."""
        with self._lock:
            self._states.pop(node, None)
            self._away.pop(node, None)

    @contextmanager
    def a_pass(self, node: str, clock: Clock) -> Iterator[None]:
        """Count and time a pass, and note whether Slurm answered."""
        began_s, outcome = clock.monotonic(), "failure"
        try:
            yield
            outcome = "success"
        finally:
            self._passes.labels(node, outcome).inc()
            self._took.labels(node).observe(clock.monotonic() - began_s)
            with self._lock:
                self._away[node] = outcome == "failure"

    def _jobs(self) -> dict[tuple[str, ...], float]:
        with self._lock:
            states = dict(self._states)
        return {(node, state): count for node, read in states.items() for state, count in read().items()}

    def _silent(self) -> dict[tuple[str, ...], float]:
        with self._lock:
            return {(node,): float(away) for node, away in self._away.items() if node in self._states}


_MADE: WeakKeyDictionary[Registry, SlurmFigures] = WeakKeyDictionary()
_MAKING = threading.Lock()


def figures_of(registry: Registry) -> SlurmFigures:
    """Return the families in ``registry``; made the first time."""
    with _MAKING:
        if registry not in _MADE:
            _MADE[registry] = SlurmFigures(registry)
        return _MADE[registry]
