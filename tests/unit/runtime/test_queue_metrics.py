"""Queues and storms of Events are counted and held back by Kubernetes' rules."""

from __future__ import annotations

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.runtime.event_storms import BURST, REFILL_S, SIMILAR_LIMIT, SIMILAR_S, Storms
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.queue_metrics import QueueMetrics


def test_a_queue_tells_under_kubernetes_names():
    clock, registry = FakeClock(), Registry()
    metrics = QueueMetrics(registry, clock)
    queue: WorkQueue[str] = WorkQueue(clock, counts=metrics.queue("replicaset"))
    for key in ("a", "b", "a"):
        queue.add(key)
    clock.advance(2)
    assert queue.get(0) == "a"
    queue.add_rate_limited("a")
    clock.advance(1)
    text = registry.text()
    for line in (
        'workqueue_adds_total{name="replicaset"} 2',
        'workqueue_retries_total{name="replicaset"} 1',
        'workqueue_depth{name="replicaset"} 1',
        'workqueue_queue_duration_seconds_sum{name="replicaset"} 2',
        'workqueue_unfinished_work_seconds{name="replicaset"} 1',
        'workqueue_longest_running_processor_seconds{name="replicaset"} 1',
    ):
        assert line in text
    queue.done("a")
    assert 'workqueue_work_duration_seconds_sum{name="replicaset"} 1' in registry.text()


def test_failures_come_back_spread():
    queue: WorkQueue[str] = WorkQueue(FakeClock(), random=lambda: 1.0)
    assert queue.add_rate_limited("a") == 0.005 * 1.25


def test_ten_different_messages_of_a_reason_become_one():
    storms = Storms()
    listed = [storms.judge("pod", f"m{number}", 0.0) for number in range(SIMILAR_LIMIT + 3)]
    assert listed[: SIMILAR_LIMIT - 1] == [f"m{number}" for number in range(SIMILAR_LIMIT - 1)]
    assert listed[SIMILAR_LIMIT - 1 :] == [""] * 4
    assert storms.judge("other", "m", 0.0) == "m"
    assert storms.judge("pod", "later", SIMILAR_S + 1) == "later"


def test_a_burst_is_cut_and_then_one_comes_in_five_minutes():
    storms = Storms()
    listed = [storms.judge("pod", "same", 0.0) for _ in range(int(BURST) + 5)]
    assert listed == ["same"] * int(BURST) + [None] * 5
    assert storms.judge("pod", "same", REFILL_S / 2) is None
    assert storms.judge("pod", "same", REFILL_S) == "same"
    assert storms.judge("pod", "same", REFILL_S) is None
