"""Pods of a node that does not exist go after a while, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.orphans import QUARANTINE_S, OrphanController, decide_orphans
from minik8s_modules.runtime.events import EventRecorder


def pod(name: str, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node} if node else {}}


def test_a_pod_whose_node_exists_or_that_has_none_is_left_alone():
    found = decide_orphans(["n1"], [pod("a", "n1"), pod("b")], {}, 1000.0)
    assert found == ({}, ())


def test_a_node_is_missing_for_a_while_before_its_pods_go():
    pods = [pod("a", "n1"), pod("b", "gone")]
    first = decide_orphans(["n1"], pods, {}, 10.0)
    assert (first.missing_since_s, first.doomed) == ({"gone": 10.0}, ())
    assert decide_orphans(["n1"], pods, first.missing_since_s, 10.0 + QUARANTINE_S - 1).doomed == ()
    assert decide_orphans(["n1"], pods, first.missing_since_s, 10.0 + QUARANTINE_S).doomed == (pods[1],)


def test_a_node_that_came_back_is_counted_anew():
    pods = [pod("b", "n1")]
    assert decide_orphans(["n1"], pods, {"n1": 0.0}, 100.0).missing_since_s == {}
    assert decide_orphans([], pods, {}, 110.0).doomed == ()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def controller(api: FakeApi, clock: FakeClock) -> OrphanController:
    return OrphanController(api, EventRecorder(api, "c", clock=clock), clock)


def test_the_pods_of_a_missing_node_are_deleted_without_grace(api, clock, controller):
    api.create(NODE, {"metadata": {"name": "n1"}})
    api.create(POD, pod("stays", "n1"))
    api.create(POD, pod("goes", "gone"))
    controller.sweep()
    clock.advance(QUARANTINE_S)
    controller.sweep()
    assert api.get(POD, "stays", "default")
    with pytest.raises(NotFound):
        api.get(POD, "goes", "default")


def test_a_node_that_registers_before_the_last_look_keeps_its_pods(api, clock, controller, monkeypatch):
    api.create(POD, pod("late", "n2"))
    controller.sweep()
    clock.advance(QUARANTINE_S)
    listed = api.list(NODE)
    api.create(NODE, {"metadata": {"name": "n2"}})
    real = api.list
    monkeypatch.setattr(api, "list", lambda kind, *rest, **more: listed if kind is NODE else real(kind, *rest, **more))
    controller.sweep()
    assert api.get(POD, "late", "default")
