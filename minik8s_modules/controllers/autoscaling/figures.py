"""What the autoscaler controller counts, by kube-controller-manager's names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from minik8s_modules.base.metrics import Registry
from minik8s_modules.controllers.autoscaling.autoscalers import Decision, Scale
from minik8s_modules.controllers.autoscaling.proposals import Proposal

_PREFIX = "horizontal_pod_autoscaler_controller_"
_LABELS = ("action", "error")


class Outcome:
    """What one reconciliation has come to."""

    def __init__(self) -> None:
        self.action, self.error = "none", "internal"
        self.metrics: list[tuple[str, str, str]] = []

    def took(self, scale: Scale | str, decision: Decision, *, scaled: bool = True) -> None:
        """Take what was decided, and whether it was done."""
        self.error = "internal" if decision.error else "none"
        if isinstance(scale, str):
            return
        if scaled and decision.replicas is not None:
            self.action = _action(decision.replicas, scale.replicas)
        for each in decision.proposals:
            known = isinstance(each, Proposal)
            action = _action(each.replicas, scale.replicas) if isinstance(each, Proposal) else "none"
            kind = each.status["type"] if isinstance(each, Proposal) else _type_of(each.reason)
            self.metrics.append((action, "none" if known else "internal", kind))


class AutoscalerFigures:
    """The families; made once a process."""

    def __init__(self, registry: Registry) -> None:
        self._total = registry.counter(f"{_PREFIX}reconciliations_total", "Decisions on autoscalers.", _LABELS)
        self._seconds = registry.histogram(
            f"{_PREFIX}reconciliation_duration_seconds", "Seconds that a decision and its writes took.", _LABELS
        )
        self._metrics = registry.counter(
            f"{_PREFIX}metric_computation_total", "Computed metrics of autoscalers.", (*_LABELS, "metric_type")
        )

    @contextmanager
    def reconciliation(self) -> Iterator[Outcome]:
        """Count one reconciliation; one that raises is an internal error."""
        outcome, began = Outcome(), time.perf_counter()
        try:
            yield outcome
        except Exception:
            outcome.action, outcome.error = "none", "internal"
            raise
        finally:
            labels = (outcome.action, outcome.error)
            self._total.labels(*labels).inc()
            self._seconds.labels(*labels).observe(time.perf_counter() - began)
            for metric in outcome.metrics:
                self._metrics.labels(*metric).inc()


def _action(wanted: int, current: int) -> str:
    return "scale_up" if wanted > current else "scale_down" if wanted < current else "none"


def _type_of(reason: str) -> str:
    return reason.removeprefix("FailedGet").removesuffix("Metric")
