"""Plugins that nobody here wrote: what they may do, and that their failures hold their pod's attempt alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event, Wake
from minik8s_modules.scheduler.framework.statuses import Code, Status, error, unschedulable
from minik8s_modules.scheduler.profiles import building
from minik8s_modules.scheduler.profiles.configuration import Enabled, PluginSet, ProfileSettings, Settings
from minik8s_modules.scheduler.queueing.queue import SchedulingQueue
from minik8s_modules.scheduler.running import binding, scheduler
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.unit.scheduler.conftest import Start
from tests.unit.scheduler.worlds import condition_of, events, node, node_of, pod, until


class Entry:
    """An entry point that loads a class."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def load(self) -> Any:
        """Return the class."""
        return self._plugin


class Mine:
    """A plugin that succeeds at everything; tests override a point."""

    name = "Mine"

    def __init__(self, arguments: Any, handle: Any) -> None:
        self.arguments, self.handle = arguments, handle


@pytest.fixture
def begin(start: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scheduler]:
    def begin(plugin: type[Mine], limit_s: float = 60.0) -> Scheduler:
        monkeypatch.setattr(building, "foreign", lambda: {"Mine": Entry(plugin)})
        own = ProfileSettings(plugins={"multiPoint": PluginSet((Enabled("Mine", 1),))})
        return start(Settings((own, replace(own, name="plain", plugins={})), backoff_s=(0.05, 0.2)), limit_s)

    return begin


def wanted(api: FakeApi, name: str, **spec: Any) -> None:
    api.create(POD, pod(name, **spec))


def of(info: PodInfo) -> str:
    return objects.name(info.pod)


def refused_with(api: FakeApi, text: str) -> Callable[[], bool]:
    return lambda: any(reason == "FailedScheduling" and text in message for reason, message in events(api))


def hangs(_self: Any, *_arguments: Any) -> None:
    threading.Event().wait(30)


def raises(_self: Any, *_arguments: Any) -> None:
    raise KeyError("nothing there")


POINTS = {
    "pre_filter": "PreFilter", "filter": "Filter", "pre_score": "PreScore", "score": "Score", "reserve": "Reserve",
    "permit": "Permit", "pre_bind": "PreBind",
}  # fmt: skip


@pytest.mark.parametrize("method", POINTS)
def test_what_raises_fails_its_pod_and_is_named(api: FakeApi, begin: Callable[..., Scheduler], method: str):
    body: dict[str, Any] = {method: raises}
    if method == "reserve":
        body["unreserve"] = lambda *_: None
    plugin = type("Mine", (Mine,), body)
    api.create(NODE, node("a"))
    api.create(NODE, node("b"))
    begin(plugin)
    wanted(api, "bad")
    wanted(api, "fine", schedulerName="plain")
    until(lambda: node_of(api, "fine"))
    until(refused_with(api, f'running "Mine" {POINTS[method]} plugin: KeyError'))
    until(lambda: condition_of(api, "bad").get("reason") == "SchedulerError")
    assert node_of(api, "bad") == ""


@pytest.mark.parametrize(
    ("method", "answer", "why"),
    [
        ("filter", "yes", "it answered 'yes' instead of a Status"),
        ("filter", error("the disk is on fire"), "the disk is on fire"),
        ("score", 101, "its score 101 is not an integer between 0 and 100"),
        ("score", "much", "its score 'much' is not an integer between 0 and 100"),
        ("pre_filter", 5, "it answered 5 instead of nodes and a Status"),
    ],
)
def test_nonsense_is_told_as_such(api: FakeApi, begin: Callable[..., Scheduler], method: str, answer: Any, why: str):
    api.create(NODE, node("a"))
    api.create(NODE, node("b"))
    begin(type("Mine", (Mine,), {method: lambda _self, *_arguments: answer}))
    wanted(api, "bad")
    until(refused_with(api, why))
    assert node_of(api, "bad") == ""


@pytest.mark.parametrize("method", ["filter", "pre_bind"])
def test_what_hangs_fails_its_pod_and_holds_nobody_else(api: FakeApi, begin: Callable[..., Scheduler], method: str):
    def only_bad(self: Any, _state: Any, info: PodInfo, _node: Any) -> None:
        if of(info) == "bad":
            hangs(self)

    api.create(NODE, node("a"))
    begin(type("Mine", (Mine,), {method: only_bad}), limit_s=0.3)
    wanted(api, "bad")
    until(refused_with(api, f'running "Mine" {POINTS[method]} plugin: it did not return within 0.3 s'))
    wanted(api, "fine")
    until(lambda: node_of(api, "fine") == "a")
    assert node_of(api, "bad") == ""


def test_only_a_plugin_that_hangs_is_made_again(api: FakeApi, begin: Callable[..., Scheduler]):
    made: list[Mine] = []

    class Fails(Mine):
        def __init__(self, arguments: Any, handle: Any) -> None:
            super().__init__(arguments, handle)
            made.append(self)

        def filter(self, _state: Any, info: PodInfo, _node: Any) -> None:
            (hangs if of(info) == "hangs" else raises)(self)

    api.create(NODE, node("a"))
    scheduler = begin(Fails)
    wanted(api, "raises")
    until(refused_with(api, "KeyError"))
    wanted(api, "other", schedulerName="plain")
    until(lambda: node_of(api, "other") == "a")
    assert len(made) == 1
    scheduler._guard.limit_s = 0.3
    wanted(api, "hangs")
    until(lambda: len(made) > 1)


def test_a_pod_waits_for_its_permission_and_holds_no_thread(api: FakeApi, begin: Callable[..., Scheduler]):
    made: list[Mine] = []

    class Waits(Mine):
        def __init__(self, arguments: Any, handle: Any) -> None:
            super().__init__(arguments, handle)
            made.append(self)

        def permit(self, _state: Any, _info: PodInfo, _node: str) -> tuple[Status | None, float]:
            return Status(Code.WAIT), 600.0

    api.create(NODE, node("a"))
    begin(Waits)
    for number in range(12):
        wanted(api, f"p{number}")
    until(lambda: len(made[0].handle.waiting()) == 12)
    wanted(api, "other", schedulerName="plain")
    until(lambda: node_of(api, "other") == "a")
    assert not any(node_of(api, f"p{number}") for number in range(12))
    for one in made[0].handle.waiting():
        one.allow("Mine")
    until(lambda: all(node_of(api, f"p{number}") == "a" for number in range(12)))


def test_a_pod_that_goes_before_it_begins_to_wait_waits_for_nothing(api: FakeApi, begin: Callable[..., Scheduler]):
    made: list[Mine] = []

    class Waits(Mine):
        def permit(self, _state: Any, info: PodInfo, _node: str) -> tuple[Status | None, float]:
            made.append(self)
            api.delete(POD, info.key.name, "default", grace_s=0)
            until(lambda: running[0]._pods.get(*info.key) is None)
            return Status(Code.WAIT), 600.0

    api.create(NODE, node("a", pods=1))
    running = [begin(Waits)]
    wanted(api, "p")
    until(lambda: made)
    wanted(api, "other", schedulerName="plain")
    until(lambda: node_of(api, "other") == "a")
    assert not made[0].handle.waiting()


def test_room_that_a_failed_binding_leaves_is_given_to_who_waits_for_it(api: FakeApi, begin: Callable[..., Scheduler]):
    made: list[Mine] = []
    over = threading.Event()

    class Waits(Mine):
        def __init__(self, arguments: Any, handle: Any) -> None:
            super().__init__(arguments, handle)
            made.append(self)

        def filter(self, _state: Any, _info: PodInfo, _node: Any) -> Status | None:
            return unschedulable("never again") if over.is_set() else None

        def permit(self, _state: Any, _info: PodInfo, _node: str) -> tuple[Status | None, float]:
            return Status(Code.WAIT), 600.0

    api.create(NODE, node("a", cpu="1"))
    begin(Waits)
    asking = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    wanted(api, "first", containers=asking)
    until(made[0].handle.waiting)
    wanted(api, "second", containers=asking, schedulerName="plain")
    until(lambda: "Insufficient cpu" in condition_of(api, "second").get("message", ""))
    over.set()
    made[0].handle.waiting()[0].reject("Mine", "too late")
    until(lambda: node_of(api, "second") == "a")


def test_who_is_kept_back_by_a_plugin_is_asked_about_again_when_its_event_comes(
    api: FakeApi, begin: Callable[..., Scheduler]
):
    asked: list[str] = []
    opened = threading.Event()

    class Gate(Mine):
        def pre_enqueue(self, info: PodInfo) -> Status | None:
            asked.append(of(info))
            return None if opened.is_set() else unschedulable("the quota is used up")

        def wakes(self) -> tuple[Wake, ...]:
            return (Wake(Event("Node", "UpdateLabel"), lambda *_: False),)

    api.create(NODE, node("a"))
    begin(Gate)
    wanted(api, "p")
    until(lambda: condition_of(api, "p").get("message") == "the quota is used up")
    assert condition_of(api, "p")["reason"] == "SchedulingGated"
    opened.set()
    api.create(NODE, node("b"))
    wanted(api, "other", schedulerName="plain", nodeSelector={"x": "y"})
    api.update(NODE, {**api.get(NODE, "b"), "metadata": {**api.get(NODE, "b")["metadata"], "labels": {"x": "y"}}})
    until(lambda: node_of(api, "other") == "b")
    until(lambda: node_of(api, "p"))
    assert asked == ["p", "p"]


def test_a_pre_enqueue_that_hangs_holds_neither_queue_nor_informers(api: FakeApi, begin: Callable[..., Scheduler]):
    hanging, over = threading.Event(), threading.Event()

    class Gate(Mine):
        def pre_enqueue(self, _info: PodInfo) -> None:
            hanging.set()
            over.wait()

    scheduler = begin(Gate)
    wanted(api, "p")
    until(hanging.is_set)
    queue = scheduler._queue
    assert queue is not None
    heard = threading.Thread(target=queue.counts)
    heard.start()
    heard.join(50)
    free = not heard.is_alive()
    over.set()
    assert free


@pytest.mark.parametrize("answer", [None, ["Node"], (Wake("Node/Add"),)])  # type: ignore[arg-type]  # nonsense
def test_wakes_are_asked_for_once_and_nonsense_is_every_event(monkeypatch: pytest.MonkeyPatch, answer: Any):
    asked: list[None] = []

    class Wakes(Mine):
        def filter(self, _state: Any, _info: PodInfo, _node: Any) -> None:
            return None

        def wakes(self) -> Any:
            asked.append(None)
            return answer

    monkeypatch.setattr(building, "foreign", lambda: {"Mine": Entry(Wakes)})
    profile = building.bench(ProfileSettings(plugins={"multiPoint": PluginSet((Enabled("Mine", 1),))})).profile
    assert profile is not None
    for _ in range(3):
        assert profile.wakes("Mine") == (Wake(Event("*", "*")),)
    assert len(asked) == 1


def test_a_plugin_that_is_not_in_tree_orders_no_queue(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(building, "foreign", lambda: {"Mine": Entry(type("Mine", (Mine,), {"less": raises}))})
    own = {"queueSort": PluginSet((Enabled("Mine", 0),), frozenset({"*"}))}
    with pytest.raises(ConfigurationError, match="queueSort has Mine: only a plugin in tree may order the queue"):
        building.bench(ProfileSettings(plugins=own))


def test_what_was_reserved_is_taken_back_when_the_permission_never_comes(api: FakeApi, begin: Callable[..., Scheduler]):
    heard: list[str] = []

    class Late(Mine):
        def reserve(self, _state: Any, _info: PodInfo, node_name: str) -> None:
            heard.append(f"+{node_name}")

        def unreserve(self, _state: Any, _info: PodInfo, node_name: str) -> None:
            heard.append(f"-{node_name}")

        def permit(self, _state: Any, _info: PodInfo, _node: str) -> tuple[Status | None, float]:
            return (Status(Code.WAIT), 0.05) if len(heard) < 3 else (None, 0.0)

    api.create(NODE, node("a"))
    begin(Late)
    wanted(api, "p")
    until(refused_with(api, "waited too long for the permission of plugin Mine"))
    until(lambda: node_of(api, "p") == "a")
    assert heard[:3] == ["+a", "-a", "+a"]


def test_what_was_reserved_for_a_pod_that_goes_is_taken_back_before_the_scheduler_rests(
    api: FakeApi, begin: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
):
    heard: list[str] = []

    class Waits(Mine):
        def pre_bind(self, _state: Any, _info: PodInfo, _node: str) -> Status | None:
            heard.append("asked")
            return Status(Code.WAIT)

        def reserve(self, _state: Any, _info: PodInfo, _node: str) -> None:
            pass

        def unreserve(self, _state: Any, _info: PodInfo, node_name: str) -> None:
            heard.append(f"-{node_name}")

    rests, pop = list[float](), SchedulingQueue.pop

    def noted(queue: SchedulingQueue, rest_s: float) -> Any:
        rests.append(rest_s)
        return pop(queue, rest_s)

    monkeypatch.setattr(SchedulingQueue, "pop", noted)
    monkeypatch.setattr(scheduler, "_REST_S", 3600.0)
    monkeypatch.setattr(binding, "_ASK_AGAIN_S", 2 * scheduler._TICK_S)
    api.create(NODE, node("a"))
    begin(Waits)
    until(lambda: rests == [3600.0])
    wanted(api, "p")
    until(lambda: heard)
    api.delete(POD, "p", "default", grace_s=0)
    until(lambda: heard[-1] == "-a")
    until(lambda: rests[-1] == 3600.0)


def test_a_refusal_at_permit_and_who_hears_of_a_binding(api: FakeApi, begin: Callable[..., Scheduler]):
    bound: list[str] = []

    class Denies(Mine):
        def permit(self, _state: Any, info: PodInfo, _node: str) -> tuple[Status | None, float]:
            return (unschedulable("not you"), 0.0) if of(info) == "bad" else (None, 0.0)

        def post_bind(self, _state: Any, info: PodInfo, node_name: str) -> None:
            bound.append(f"{of(info)} {node_name}")

    api.create(NODE, node("a"))
    begin(Denies)
    wanted(api, "bad")
    wanted(api, "good")
    until(lambda: node_of(api, "good") == "a")
    until(lambda: bound == ["good a"])
    until(refused_with(api, "not you"))


def test_a_pod_whose_binding_is_under_way_is_not_deleted_to_make_room(api: FakeApi, begin: Callable[..., Scheduler]):
    released, asked = threading.Event(), threading.Event()

    class Holds(Mine):
        def pre_bind(self, _state: Any, info: PodInfo, _node: Any) -> Status | None:
            if of(info) != "low":
                return None
            asked.set()
            released.wait(60)
            return unschedulable("it gives its place up")

    api.create(NODE, node("a", cpu="2"))
    begin(Holds)
    requests = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    api.create(POD, pod("low", containers=requests, schedulerName="default-scheduler"))
    assert asked.wait(60)
    api.create(POD, pod("high", containers=requests, schedulerName="plain", priority=5))
    until(lambda: (api.get(POD, "high", "default").get("status") or {}).get("nominatedNodeName") == "a")
    released.set()
    until(lambda: node_of(api, "high") == "a")
    assert node_of(api, "low") == ""
    assert not any(reason == "Preempted" for reason, _message in events(api))
