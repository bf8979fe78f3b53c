"""The figures are of the kinds that kube-scheduler's have, so that its dashboards and rules read them."""

from __future__ import annotations

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event, Wake
from minik8s_modules.scheduler.queueing.queue import SchedulingQueue
from minik8s_modules.scheduler.running.metrics import Counts
from tests.unit.scheduler.worlds import pod


def test_attempts_and_victims_are_counted_by_size():
    registry = Registry()
    counts = Counts(registry)
    counts.bound(3, 0.5)
    counts.preemption(20)
    message = registry.text().splitlines()
    for line in (
        "# TYPE scheduler_pod_scheduling_attempts histogram",
        'scheduler_pod_scheduling_attempts_bucket{le="2.0"} 0.0',
        'scheduler_pod_scheduling_attempts_bucket{le="4.0"} 1.0',
        "# TYPE scheduler_preemption_victims histogram",
        'scheduler_preemption_victims_bucket{le="16.0"} 0.0',
        'scheduler_preemption_victims_bucket{le="32.0"} 1.0',
    ):
        assert line in message


def test_who_waits_is_counted_by_plugin_until_it_is_tried_again():
    clock, registry = FakeClock(), Registry()
    queue = SchedulingQueue(clock, lambda one, other: one.since < other.since, lambda _: "", lambda *_: ())
    Counts(registry).watch(queue)
    for name in "pq":
        queue.add(PodInfo.of(pod(name)))
        entry = queue.pop(0)
        assert entry is not None
        queue.refuse(entry, frozenset({"Fit", ""} if name == "p" else {"Fit", "Ports"}))

    def reported() -> list[str]:
        return [line for line in registry.text().splitlines() if line.startswith("scheduler_unschedulable_pods")]

    assert reported() == [
        'scheduler_unschedulable_pods{plugin="Fit",profile="default-scheduler"} 2.0',
        'scheduler_unschedulable_pods{plugin="Ports",profile="default-scheduler"} 1.0',
    ]
    clock.advance(300)
    queue.flush()
    queue.pop(0)
    queue.pop(0)
    assert reported() == []


def test_pods_that_come_to_a_place_in_the_queue_are_counted_by_event():
    clock, registry = FakeClock(), Registry()
    counts, wakes = Counts(registry), [Wake(Event("Node", "Add"))]
    queue = SchedulingQueue(
        clock, lambda one, other: one.since < other.since, lambda _: "", lambda *_: wakes, on_place=counts.queued
    )
    queue.add(PodInfo.of(pod("p")))
    entry = queue.pop(0)
    assert entry is not None
    queue.refuse(entry, frozenset({"Fit"}))
    queue.move(Event("Node", "Add"), None, {})
    clock.advance(1)
    assert queue.pop(0) is entry
    lines = [line for line in registry.text().splitlines() if line.startswith("scheduler_queue_incoming_pods_total")]
    assert lines == [
        f'scheduler_queue_incoming_pods_total{{event="{event}",queue="{place}"}} 1.0'
        for place, event in (
            ("active", "PodAdd"), ("unschedulable", "ScheduleAttemptFailure"), ("backoff", "NodeAdd"),
            ("active", "BackoffComplete"),
        )
    ]  # fmt: skip
