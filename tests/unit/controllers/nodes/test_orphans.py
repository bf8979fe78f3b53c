"""Pods of a node that does not exist go after a while, and no others."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import Key, name
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.nodes.orphans import QUARANTINE_S, OrphanController, decide_orphans
from minik8s_modules.runtime.controller import Context
from tests.support.waiting import until


def pod(name: str, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node} if node else {}}


def test_the_pods_of_a_node_that_exists_are_left_alone():
    assert decide_orphans({"metadata": {"name": "n"}}, [pod("a", "n")], 1000.0) == ((), None)


def test_a_node_is_missing_for_a_while_before_its_pods_go():
    pods = [pod("a", "gone")]
    assert decide_orphans(None, pods, 0.0) == ((), QUARANTINE_S)
    assert decide_orphans(None, pods, QUARANTINE_S - 1) == ((), 1.0)
    assert decide_orphans(None, pods, QUARANTINE_S) == (tuple(pods), None)


def test_a_missing_node_without_pods_is_nothing_to_wait_for():
    assert decide_orphans(None, [], 1000.0) == ((), None)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def controller(context: Context) -> OrphanController:
    """A controller whose copies follow; ``sync`` is called by the tests."""
    controller = OrphanController(context)
    context.informers.start()
    return controller


def seen(context: Context, *names: str) -> None:
    until(lambda: {name(each) for each in context.informers.of(POD).list()} >= set(names))


def exists(api: FakeApi, name: str) -> bool:
    with contextlib.suppress(NotFound):
        return bool(api.get(POD, name, "default"))
    return False


def test_the_pods_of_a_missing_node_are_deleted_without_grace(api, clock, context, controller):
    api.create(NODE, {"metadata": {"name": "n1"}})
    api.create(POD, pod("stays", "n1"))
    api.create(POD, pod("goes", "gone"))
    seen(context, "stays", "goes")
    controller.sync(Key("", "gone"))
    clock.advance(QUARANTINE_S)
    controller.sync(Key("", "gone"))
    controller.sync(Key("", "n1"))
    assert exists(api, "stays")
    assert not exists(api, "goes")


def test_a_node_that_registers_before_the_last_look_keeps_its_pods(api, clock, context, controller):
    api.create(POD, pod("late", "n2"))
    seen(context, "late")
    controller.sync(Key("", "n2"))
    clock.advance(QUARANTINE_S)
    context.informers.stop()  # the copy does not see it
    api.create(NODE, {"metadata": {"name": "n2"}})
    controller.sync(Key("", "n2"))
    assert exists(api, "late")


def test_a_node_that_came_back_is_counted_anew(api, clock, context, controller):
    api.create(POD, pod("a", "n3"))
    seen(context, "a")
    controller.sync(Key("", "n3"))
    api.create(NODE, {"metadata": {"name": "n3"}})
    until(lambda: context.informers.of(NODE).get("", "n3"))
    clock.advance(QUARANTINE_S)
    controller.sync(Key("", "n3"))
    api.delete(NODE, "n3")
    until(lambda: context.informers.of(NODE).get("", "n3") is None)
    controller.sync(Key("", "n3"))
    assert exists(api, "a")


def test_it_is_queued_by_pods_and_nodes_alone(api, clock, context, controller):
    api.create(NODE, {"metadata": {"name": "n4"}})
    api.create(POD, pod("b", "n4"))
    seen(context, "b")
    controller.start()
    api.delete(NODE, "n4")
    until(lambda: "n4" in controller._missing_since_s)
    clock.advance(QUARANTINE_S)
    api.create(POD, pod("wakes", "n4"))  # a fake clock wakes nobody
    until(lambda: not exists(api, "b"))
    controller.stop()
