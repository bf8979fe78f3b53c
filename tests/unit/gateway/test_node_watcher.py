"""Watching a node over everything that Docker and the way to it may do; the real ones are in the integration tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.gateway.engine import DockerEvent
from minik8s_modules.gateway.errors import DockerUnavailable, NodeUnreachable
from minik8s_modules.gateway.metrics import Disk
from minik8s_modules.gateway.node import DEAD_AFTER_S, TOUCH_S, NodeWatcher, ahead_s

ALIVE = {"oom_killed": False, "oom_source": ""}


class ScriptedEngine:
    """A Docker whose containers are a dictionary and whose events are a list."""

    def __init__(self) -> None:
        self.down = False
        self.time_s: float | None = None
        self.ids: dict[str, str] = {}
        self.names = ["minik8s/busybox:1"]
        self.script: list[DockerEvent | Callable[[], None]] = []
        self.asked_since: list[int] = []

    def ping(self) -> float | None:
        """Answer unless down."""
        self._check()
        return self.time_s

    def containers(self) -> list[dict[str, Any]]:
        """Return all."""
        self._check()
        return [{**ALIVE, "id": each, "state": state} for each, state in self.ids.items()]

    def container(self, container_id: str) -> dict[str, Any] | None:
        """Return one."""
        self._check()
        state = self.ids.get(container_id)
        return {**ALIVE, "id": container_id, "state": state} if state else None

    def images(self) -> list[str]:
        """Return the names."""
        return [*self.names]

    def log_end(self, container_id: str, lines: int) -> bytes:
        """Return what a container said."""
        return f"{container_id} said {lines}".encode()

    def events(self, since_ns: int) -> Any:
        """Return the scripted events."""
        self._check()
        self.asked_since.append(since_ns)
        return ScriptedStream(self)

    def close(self) -> None:
        """Nothing is open."""

    def _check(self) -> None:
        if self.down:
            raise DockerUnavailable("down")


class ScriptedStream:
    """Plays the script; what is callable happens between two events."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine

    def __iter__(self) -> Iterator[DockerEvent]:
        """Play."""
        while self._engine.script:
            step = self._engine.script.pop(0)
            if isinstance(step, DockerEvent):
                yield step
            else:
                step()

    def close(self) -> None:
        """Nothing waits."""

    release = close


class ScriptedLink:
    """A way that is there or not."""

    def __init__(self) -> None:
        self.broken = False
        self.touches = 0

    def open(self) -> str:
        """Return the socket's path."""
        if self.broken:
            raise NodeUnreachable("no route")
        return "/docker.sock"

    def touch_attended(self) -> None:
        """Count."""
        if self.broken:
            raise NodeUnreachable("no route")
        self.touches += 1

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        return f"in {path}".encode()

    def disk(self, path: str) -> Disk:
        """Have none."""
        raise NodeUnreachable(path)

    def cadvisor(self) -> str:
        """Have none."""
        return ""

    def beat(self, within_s: float) -> None:
        """Is nothing that a watcher asks for."""
        raise NotImplementedError

    def end_beats(self) -> None:
        """Is nothing that a watcher asks for."""
        raise NotImplementedError

    def close(self) -> None:
        """Be gone."""
        self.broken = True


class World:
    """One watcher with everything around it scripted; the test calls its steps, no thread runs."""

    def __init__(self) -> None:
        self.engine, self.link, self.clock = ScriptedEngine(), ScriptedLink(), FakeClock()
        self.messages: list[dict[str, Any]] = []
        self.watcher = NodeWatcher(
            "n", self.link, self.messages.append, lambda _path, _node: self.engine, self.clock, lambda: 0.5
        )

    def ops(self) -> list[str]:
        """Return the kinds of messages told."""
        return [message["op"] for message in self.messages]


@pytest.fixture
def world() -> World:
    return World()


def test_life_is_told_when_it_changes(world: World):
    assert world.watcher.probe()
    assert world.watcher.probe()
    assert [(message["op"], message["alive"]) for message in world.messages] == [("alive", True)]


def test_a_short_silence_is_no_death_and_a_longer_one_is(world: World):
    world.watcher.probe()
    world.engine.down = True
    assert not world.watcher.probe()
    world.clock.advance(DEAD_AFTER_S - 0.1)
    assert not world.watcher.probe()
    assert len(world.messages) == 1
    world.clock.advance(0.1)
    world.watcher.probe()
    assert world.messages[-1] == {"op": "alive", "node": "n", "alive": False, "message": "down"}
    world.engine.down = False
    world.watcher.probe()
    assert world.messages[-1]["alive"] is True


def test_a_broken_way_is_as_good_as_a_dead_docker(world: World):
    world.link.broken = True
    assert not world.watcher.probe()
    world.clock.advance(DEAD_AFTER_S)
    assert not world.watcher.probe()
    assert world.messages == [{"op": "alive", "node": "n", "alive": False, "message": "no route"}]
    later: list[dict[str, Any]] = []
    world.watcher.tell(later.append)
    assert later == world.messages


def test_a_node_that_was_away_is_touched_at_once(world: World):
    world.watcher.probe()
    world.watcher.touch_if_due()
    world.engine.down = True
    world.watcher.probe()
    world.engine.down = False
    world.watcher.probe()
    world.watcher.touch_if_due()
    assert world.link.touches == 2


def test_only_lately_answered_pings_count_for_the_lease(world: World):
    assert not world.watcher.answered_within(25)
    world.watcher.probe()
    world.clock.advance(25)
    assert world.watcher.answered_within(25)
    world.clock.advance(0.1)
    assert not world.watcher.answered_within(25)


def test_the_attended_file_is_touched_every_30_s_and_again_at_once_after_a_failure(world: World):
    world.watcher.touch_if_due()
    world.watcher.touch_if_due()
    assert world.link.touches == 1
    world.clock.advance(TOUCH_S)
    world.link.broken = True
    world.watcher.touch_if_due()
    world.link.broken = False
    world.watcher.touch_if_due()
    assert world.link.touches == 2


def test_events_come_after_the_state_with_fresh_observations(world: World):
    world.watcher.probe()
    world.engine.ids["a"] = "running"
    world.engine.script = [
        DockerEvent("start", "a", 5),
        lambda: world.engine.ids.update(a="exited"),
        DockerEvent("die", "a", 6),
        world.engine.ids.clear,
        DockerEvent("destroy", "a", 7),
    ]
    world.watcher.follow_once()
    assert world.ops() == ["alive", "state", "event", "event", "event"]
    assert [each["id"] for each in world.messages[1]["containers"]] == ["a"]
    assert [message["container"] and message["container"]["state"] for message in world.messages[2:]] == [
        "running", "exited", None,
    ]  # fmt: skip
    collected: list[dict[str, Any]] = []
    world.watcher.tell(collected.append)
    assert collected[-1]["containers"] == []


def test_after_a_break_events_resume_behind_the_last_one_seen_and_everything_is_listed(world: World):
    world.watcher.probe()
    world.engine.script = [DockerEvent("create", "a", 41)]
    world.watcher.follow_once()
    world.watcher.follow_once()
    assert world.engine.asked_since == [0, 42]
    assert world.ops().count("state") == 2


def test_a_container_that_is_gone_before_it_was_looked_at_is_told_as_gone(world: World):
    world.watcher.probe()
    world.engine.script = [DockerEvent("start", "a", 5)]
    world.watcher.follow_once()
    assert world.messages[-1] == {"op": "event", "node": "n", "action": "start", "id": "a", "container": None}


def test_a_kill_for_memory_that_docker_tells_after_the_end_is_known_from_then_on(world: World):
    world.watcher.probe()
    world.engine.ids["a"] = "running"
    world.engine.script = [
        DockerEvent("oom", "a", 5),
        lambda: world.engine.ids.update(a="exited"),
        DockerEvent("die", "a", 6),
        DockerEvent("oom", "a", 7),
        DockerEvent("die", "a", 8),
    ]
    world.watcher.follow_once()
    told = [message["container"]["oom_killed"] for message in world.messages if message["op"] == "event"]
    assert told == [False, False, True, True]


def test_images_are_told_only_when_they_have_changed(world: World):
    world.watcher.probe()
    world.engine.script = [
        DockerEvent("tag", "", 1),
        lambda: world.engine.names.append("new:1"),
        DockerEvent("pull", "", 2),
    ]
    world.watcher.follow_once()
    assert [message["images"] for message in world.messages if message["op"] == "images"] == [
        ["minik8s/busybox:1", "new:1"]
    ]


def test_a_docker_that_breaks_off_in_a_list_leaves_the_last_state(world: World):
    world.watcher.probe()
    world.engine.ids["a"] = "running"
    world.watcher.follow_once()
    world.engine.down = True
    with pytest.raises(DockerUnavailable):
        world.watcher.follow_once()
    collected: list[dict[str, Any]] = []
    world.watcher.tell(collected.append)
    assert [each["id"] for each in collected[-1]["containers"]] == ["a"]


def test_its_threads_do_all_that_by_themselves_and_end():
    world = World()
    watcher = NodeWatcher("n", world.link, world.messages.append, lambda _path, _node: world.engine)
    world.engine.script = [lambda: time.sleep(0.05)]
    watcher.start()
    end = time.monotonic() + 60
    while "state" not in world.ops():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert world.link.touches == 1
    before = world.ops().count("state")
    watcher.relist()
    while world.ops().count("state") <= before:
        assert time.monotonic() < end
        time.sleep(0.01)
    watcher.stop()
    assert not any(thread.is_alive() for thread in watcher._threads)


@pytest.mark.parametrize(
    ("told_s", "ahead"),
    [(None, 0.0), (100.0, 0.0), (99.0, 0.0), (101.0, 0.0), (110.0, 8.5), (90.0, -9.0)],
    ids=["not told", "same", "a second cut off", "within the call", "ahead", "behind"],
)
def test_a_clock_is_off_by_what_no_delay_explains(told_s: float | None, ahead: float):
    assert ahead_s(told_s, began_s=100.0, ended_s=101.5) == ahead
