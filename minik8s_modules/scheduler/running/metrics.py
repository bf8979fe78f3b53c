"""The scheduler's figures, under kube-scheduler's names (pkg/scheduler/metrics)."""

from __future__ import annotations

from minik8s_modules.base.metrics import Registry
from minik8s_modules.scheduler.queueing.queue import SchedulingQueue


class Counts:
    """Counts what happens."""

    def __init__(self, registry: Registry | None = None) -> None:
        made = registry or Registry()
        self._attempts = made.counter(
            "scheduler_schedule_attempts", "Attempts to schedule pods, by result.", ("result", "profile")
        )
        self._duration = made.histogram(
            "scheduler_scheduling_attempt_duration_seconds", "From the queue to a decision.", ("result", "profile")
        )
        self._waited = made.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds", "From the queue to the binding, over all attempts."
        )
        self._tries = made.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts of the pods that were bound.", buckets=(1, 2, 4, 8, 16)
        )
        self._preemptions = made.counter("scheduler_preemption_attempts", "Preemptions so far.")
        self._victims = made.histogram(
            "scheduler_preemption_victims", "Pods chosen as victims, by preemption.", buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        summary = "Pods that wait, by the plugins that refused them."
        made.gauge("scheduler_unschedulable_pods", summary, ("plugin", "profile"), self._refused)
        self._incoming = made.counter(
            "scheduler_queue_incoming_pods", "Pods that came to a place in the queue, by event.", ("queue", "event")
        )
        self._queue: SchedulingQueue | None = None
        made.gauge("scheduler_pending_pods", "Pods in the queue, by place.", ("queue",), self._pending)

    def watch(self, queue: SchedulingQueue) -> None:
        """Read the lengths of this queue from now on."""
        self._queue = queue

    def queued(self, place: str, event: str) -> None:
        """Count a pod that came to a place in the queue."""
        self._incoming.labels(place, event).inc()

    def _pending(self) -> dict[tuple[str, ...], float]:
        found = self._queue.counts() if self._queue is not None else {}
        return {(place,): float(number) for place, number in found.items()}

    def _refused(self) -> dict[tuple[str, ...], float]:
        found = self._queue.refusals() if self._queue is not None else {}
        return {who: float(number) for who, number in found.items()}

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """Count one attempt."""
        self._attempts.labels(result, profile).inc()
        self._duration.labels(result, profile).observe(seconds)

    def bound(self, attempts: int, seconds: float) -> None:
        """Count a pod that was bound."""
        self._tries.observe(attempts)
        self._waited.observe(seconds)

    def preemption(self, victims: int) -> None:
        """Count one preemption."""
        self._preemptions.inc()
        self._victims.observe(victims)
