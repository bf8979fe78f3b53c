"""A reconciler that forgets everything, and modules that die before any effect: the same goal is reached."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from minik8s_modules.base.clock import FakeClock, rfc3339
from minik8s_modules.reconcile.pods.desired import assemble, decide_pod
from minik8s_modules.reconcile.pods.observed import group, observation
from minik8s_modules.reconcile.status.status import Place, pod_status
from tests.unit.reconcile.fake_node import FakeNode, Killed
from tests.unit.reconcile.worlds import IMAGE, NODE, PAUSE, SETTINGS, T0, inputs, pod

SECTIONS = ("sandboxes", "containers")


class World:
    """One pod on one node; every step observes anew, decides anew and sends everything."""

    def __init__(self, subject: dict[str, Any]) -> None:
        self.clock = FakeClock(T0)
        self.node = FakeNode("n1", [IMAGE, PAUSE], self.clock.now)
        self.pod = subject
        self.gone = False

    def step(self) -> bool:
        """Take one pass; return whether the module lived through it."""
        self.clock.advance(1)
        now = self.clock.now()
        seen = group(observation(one, now) for one in self.node.containers.values())
        decision = decide_pod(self.pod, seen, inputs({}), now)
        self.pod = {**self.pod, "status": pod_status(self.pod, seen, decision, Place("", ""), now)}
        self.gone = decision.gone
        document = assemble(NODE, [decision], SETTINGS)
        try:
            for section in SECTIONS:
                options = {"mode": "full", "entries": dict(document[section])}
                self.node.realize("n1", section, options, check=False)
        except Killed:
            return False
        return True

    def settle(self) -> None:
        """Pass until nothing is left to do."""
        for _ in range(8):
            self.step()

    def finish(self, container: str, exit_code: int = 0) -> None:
        """End a container."""
        self.node.die(self.node.find(container)["id"], exit_code)

    def summary(self) -> dict[str, Any]:
        """Return what a story has led to."""
        return {
            "running": self.node.running(),
            "phase": self.pod["status"]["phase"],
            "restarts": [one["restartCount"] for one in self.pod["status"]["containerStatuses"]],
        }


def start_with_init(world: World) -> None:
    world.settle()
    world.finish("prepare")
    world.settle()


def restart(world: World) -> None:
    start_with_init(world)
    world.finish("app", 1)
    world.settle()


def lose_sandbox(world: World) -> None:
    start_with_init(world)
    world.finish("")
    world.settle()
    world.finish("app", 137)
    world.settle()
    world.finish("prepare")
    world.settle()


def delete(world: World) -> None:
    start_with_init(world)
    later = rfc3339(T0 + timedelta(seconds=90))
    world.pod["metadata"] |= {"deletionTimestamp": later, "deletionGracePeriodSeconds": 30}
    world.settle()
    world.finish("app", 143)
    world.settle()


STORIES = [start_with_init, restart, lose_sandbox, delete]


def subject() -> dict[str, Any]:
    return pod({"initContainers": [{"name": "prepare", "image": IMAGE}]})


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("effects", range(8))
def test_a_module_killed_before_any_effect_changes_nothing_about_the_goal(story, effects):
    calm = World(subject())
    story(calm)
    hit = World(subject())
    step = hit.step
    deaths = 0

    def faulty() -> bool:
        nonlocal deaths
        if deaths == 0 and hit.node.effects_left is None:
            hit.node.effects_left = effects
        lived = step()
        if not lived:
            deaths += 1
            hit.node.effects_left = None
        return lived

    hit.step = faulty  # type: ignore[method-assign]
    story(hit)
    assert hit.summary() == calm.summary()
    assert hit.gone == calm.gone
    assert hit.node.double_starts == 0


def test_the_stories_end_as_told():
    ends = []
    for story in STORIES:
        world = World(subject())
        story(world)
        ends.append((world.node.running(), world.pod["status"]["phase"], world.gone))
    assert ends == [
        ({"": 0, "app": 0}, "Running", False),
        ({"": 0, "app": 1}, "Running", False),
        ({"": 1, "app": 1}, "Running", False),
        ({}, "Running", True),
    ]


def test_a_stop_signal_is_sent_once():
    world = World(subject())
    start_with_init(world)
    world.pod["metadata"] |= {"deletionTimestamp": rfc3339(T0), "deletionGracePeriodSeconds": 7}
    world.settle()
    assert [grace_s for _, grace_s in world.node.stopped] == [7]
