"""Preemption is written beside the scheduling of other pods: who goes on meanwhile, and what a failure leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Nomination
from minik8s_modules.scheduler.profiles.configuration import policy_settings
from minik8s_modules.scheduler.queueing.queue import Entry, SchedulingQueue
from minik8s_modules.scheduler.running.effects import Effects
from minik8s_modules.scheduler.running.preempting import Preemption
from minik8s_modules.scheduler.running.scheduler import Scheduler
from minik8s_modules.scheduler.running.waiting import WaitingPods
from tests.unit.scheduler.conftest import Start
from tests.unit.scheduler.running.test_preemption import asking, bound
from tests.unit.scheduler.worlds import condition_of, node, node_of, until


def deleting(api: FakeApi, instead: Callable[[], object]) -> list[str]:
    """Have something done before each deletion, which takes no time itself; return whose deletion was asked for."""
    asked, delete = list[str](), api.delete

    def delete_so(kind: Any, name: str, *rest: Any, **options: Any) -> Any:
        asked.append(name)
        instead()
        return delete(kind, name, *rest, **options, grace_s=0)

    api.delete = delete_so  # type: ignore[method-assign]  # deletions alone, in whatever order calls come
    return asked


def test_others_are_placed_while_victims_are_asked_to_go(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", cpu="1"))
    api.create(POD, asking("low", "1"))
    until(lambda: node_of(api, "low") == "a")
    allowed = threading.Event()
    asked = deleting(api, lambda: allowed.wait(60))
    api.create(POD, asking("high", "1", 100))
    until(lambda: asked == ["low"])
    api.create(NODE, node("b", cpu="1"))
    api.create(POD, asking("plain", "100m"))
    until(lambda: node_of(api, "plain") == "b")
    assert node_of(api, "high") == ""
    assert asked == ["low"]
    allowed.set()
    until(lambda: node_of(api, "high") == "a")


@pytest.mark.parametrize("error", [ApiUnreachable("down"), passing_error(), KeyError("a defect")])
def test_a_preemption_that_fails_is_begun_again(api: FakeApi, start: Start, error: Exception):
    start(replace(policy_settings(), backoff_s=(0.05, 0.1)))
    api.create(NODE, node("a", cpu="1"))
    api.create(POD, asking("low", "1"))
    until(lambda: node_of(api, "low") == "a")
    failing = [error, error]

    def fail() -> None:
        if failing:
            raise failing.pop()

    asked = deleting(api, fail)
    api.create(POD, asking("high", "1", 100))
    until(lambda: node_of(api, "high") == "a")
    assert asked == ["low"] * 3


class Room:
    """A queue with a pod that was tried, and what preempts for it."""

    def __init__(self, api: FakeApi) -> None:
        clock, cache = SystemClock(), ClusterCache()
        recorder = EventRecorder(api, "default-scheduler")
        self.queue = SchedulingQueue(clock, lambda one, other: one.since < other.since, lambda _: "", lambda *_: ())
        self.preemption = Preemption(cache, self.queue, Effects(api, recorder, clock), WaitingPods())
        self.victim = PodInfo.of(api.create(POD, bound("low", "1")))

    def begin(self, high: PodInfo) -> Entry:
        """Have the only pod that is to be tried send the victim away."""
        self.queue.add(high)
        entry = self.queue.pop(60)
        assert entry is not None
        found = Nomination("a", (self.victim,))
        self.preemption.begin(entry, high.pod, Decision("", "no room", nomination=found), found)
        return entry


def test_nobody_goes_for_a_pod_that_has_gone_meanwhile(api: FakeApi):
    room, allowed = Room(api), threading.Event()
    asked = deleting(api, lambda: allowed.wait(60))
    for number in range(5):
        high = asking(f"high{number}", "1", 100)
        room.begin(PodInfo.of(api.create(POD, high)))
    until(lambda: len(asked) == 4)  # as many as are carried out at once
    room.queue.delete(PodInfo.of(asking("high4", "1", 100)).key)
    allowed.set()
    until(lambda: not room.queue.is_busy())  # also the fifth's flight ends
    room.preemption.stop()
    assert asked == ["low"] * 4
    assert condition_of(api, "high4") == {}


def test_who_leads_no_more_begins_no_preemption(api: FakeApi):
    room, allowed = Room(api), threading.Event()
    asked = deleting(api, lambda: allowed.wait(60))
    for number in range(6):
        room.begin(PodInfo.of(api.create(POD, asking(f"high{number}", "1", 100))))
    until(lambda: len(asked) == 4)
    stopping = threading.Thread(target=room.preemption.stop)
    stopping.start()
    until(lambda: room.preemption.ended)
    allowed.set()
    stopping.join(60)
    assert len(asked) == 4
