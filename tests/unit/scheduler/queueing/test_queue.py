"""The queue: who is tried next, what wakes whom, and that nothing is lost while a pod is being tried."""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event, Wake
from minik8s_modules.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from minik8s_modules.scheduler.queueing.queue import LEFT_OVER_S, Entry, SchedulingQueue
from tests.unit.scheduler.worlds import pod

NODE_ADDED, POD_GONE = Event("Node", "Add"), Event("AssignedPod", "Delete")


WAKES = {
    "Fit": (Wake(POD_GONE), Wake(NODE_ADDED, lambda _pod, _old, new: new == "large")),
    "Labels": (Wake(Event("Node", "Update")),),
    "Broken": (Wake(NODE_ADDED, lambda *_: 1 // 0 > 0),),
}


def made(clock: FakeClock) -> SchedulingQueue:
    def gate(info: PodInfo) -> str:
        status = SchedulingGates().pre_enqueue(info)
        return status.message if status else ""

    def wakes(_info: PodInfo, plugin: str) -> Sequence[Wake]:
        return WAKES[plugin]

    return SchedulingQueue(clock, PrioritySort().less, gate, wakes)


def info(name: str, priority: int = 0, gates: Sequence[str] = ()) -> PodInfo:
    return PodInfo.of(pod(name, priority=priority, schedulingGates=[{"name": gate} for gate in gates]))


def popped(queue: SchedulingQueue) -> Entry:
    entry = queue.pop(0)
    assert entry is not None
    return entry


def refused(queue: SchedulingQueue, name: str, *plugins: str) -> Entry:
    queue.add(info(name))
    entry = popped(queue)
    queue.refuse(entry, frozenset(plugins))
    return entry


def test_higher_priorities_first_then_those_who_came_first():
    clock = FakeClock()
    queue = made(clock)
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.add(info(name, priority))
        clock.advance(1)
    assert [popped(queue).key.name for _ in range(4)] == ["b", "d", "a", "c"]
    assert queue.pop(0) is None


def test_only_an_event_that_may_help_wakes_a_pod_after_its_back_off():
    clock = FakeClock()
    queue = made(clock)
    refused(queue, "p", "Fit")
    for event, new in ((Event("Node", "UpdateLabel"), None), (NODE_ADDED, "small")):
        queue.move(event, None, new)
        assert queue.counts()["unschedulable"] == 1
    queue.move(NODE_ADDED, None, "large")
    assert queue.counts() == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}
    assert queue.pop(0) is None
    clock.advance(1.0)
    assert popped(queue).key.name == "p"


def test_any_of_several_refusals_may_end_and_a_broken_hint_wakes():
    queue = made(FakeClock())
    refused(queue, "p", "Fit", "Labels")
    refused(queue, "q", "Broken")
    queue.move(Event("Node", "UpdateLabel"), None, None)
    assert queue.counts()["unschedulable"] == 1
    queue.move(NODE_ADDED, None, "small")
    assert queue.counts()["unschedulable"] == 0


def test_what_happens_while_a_pod_is_tried_counts_when_it_comes_back():
    queue = made(FakeClock())
    queue.add(info("p"))
    queue.add(info("other"))
    entry, other = popped(queue), popped(queue)
    queue.move(POD_GONE, None, None)
    queue.refuse(entry, frozenset({"Fit"}))
    queue.refuse(other, frozenset({"Labels"}))
    assert queue.counts() == {"active": 0, "backoff": 1, "unschedulable": 1, "gated": 0}


def test_back_off_doubles_from_one_second_to_ten():
    clock = FakeClock()
    queue = made(clock)
    queue.add(info("p"))
    waits = []
    for _ in range(6):
        queue.again(popped(queue))
        began = clock.monotonic()
        while (entry := queue.pop(0)) is None:
            clock.advance(0.5)
        waits.append(clock.monotonic() - began)
        queue.again(entry)
        entry.attempts -= 1
        clock.advance(20)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_refused_pod_is_tried_again_after_five_minutes_whatever_happens():
    clock = FakeClock()
    queue = made(clock)
    refused(queue, "p", "Fit")
    clock.advance(LEFT_OVER_S - 1)
    queue.flush()
    assert queue.pop(0) is None
    clock.advance(1)
    queue.flush()
    assert popped(queue).key.name == "p"


def test_a_gated_pod_comes_when_its_last_gate_goes():
    queue = made(FakeClock())
    assert queue.add(info("p", gates=["a", "b"])) == "waiting for scheduling gates: [a b]"
    assert queue.update(info("p", gates=["b"])) == "waiting for scheduling gates: [b]"
    assert queue.pop(0) is None
    assert queue.counts()["gated"] == 1
    assert queue.update(info("p")) == ""
    assert popped(queue).key.name == "p"


def test_a_deleted_pod_is_never_handed_out_and_one_of_its_name_is_another():
    queue = made(FakeClock())
    queue.add(info("p"))
    entry = popped(queue)
    queue.delete(entry.key)
    queue.refuse(entry, frozenset({"Fit"}))
    queue.again(entry)
    assert queue.pop(0) is None
    queue.add(info("p"))
    assert popped(queue) is not entry


def named_again(uid: str) -> PodInfo:
    made = pod("web-0")
    made["metadata"]["uid"] = uid
    return PodInfo.of(made)


def test_the_end_of_an_old_binding_ends_no_flight_of_a_new_pod_of_the_same_name():
    queue = made(FakeClock())
    queue.add(named_again("old"))
    old = popped(queue)
    queue.delete(old.key)
    queue.add(named_again("new"))
    new = popped(queue)
    queue.move(POD_GONE, None, None)
    queue.placed(old)
    queue.refuse(new, frozenset({"Fit"}))
    assert queue.counts() == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}


def test_a_pod_made_again_between_two_lists_is_another():
    queue = made(FakeClock())
    queue.add(named_again("old"))
    old = popped(queue)
    queue.add(named_again("new"))
    queue.again(old)
    new = popped(queue)
    assert (objects.uid(new.pod.pod), new.attempts) == ("new", 1)


def test_a_pod_that_changes_while_it_is_tried_is_tried_again():
    queue = made(FakeClock())
    queue.add(info("p"))
    entry = popped(queue)
    queue.update(info("p", 7))
    queue.refuse(entry, frozenset({"Fit"}))
    assert queue.counts()["backoff"] == 1
    assert entry.pod.priority == 7


def test_a_queue_is_busy_while_a_pod_is_tried_or_bound():
    queue = made(FakeClock())
    queue.add(info("a"))
    assert not queue.is_busy()
    entry = popped(queue)
    assert queue.is_busy()
    queue.again(entry)
    assert not queue.is_busy()
    queue.activate(entry.key)
    queue.placed(popped(queue))
    assert not queue.is_busy()


def test_a_queue_is_busy_until_the_attempt_of_a_pod_that_has_gone_is_over():
    queue = made(FakeClock())
    queue.add(info("a"))
    entry = popped(queue)
    queue.delete(entry.key)
    assert queue.is_busy()
    queue.again(entry)
    assert not queue.is_busy()
    assert queue.pop(0.0) is None
