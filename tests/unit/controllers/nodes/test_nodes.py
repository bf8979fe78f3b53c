"""A node becomes Unknown when its Lease is stale, by this process's own clock, and only then."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kinds import EVENT, LEASE, NODE
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.nodes.nodes import STALE_AFTER_S, NodeController, decide_node_health
from minik8s_modules.runtime.events import EventRecorder

NOW = "2026-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "before"}


def node(*conditions: dict[str, str]) -> dict[str, object]:
    return {"metadata": {"name": "n"}, "status": {"conditions": list(conditions)}}


def test_a_renewed_lease_changes_nothing_and_tells_when_to_look_again():
    verdict = decide_node_health(node(READY), 39.0, NOW)
    assert (verdict.conditions, verdict.look_again_s) == ((), 1.0)


def test_a_stale_lease_makes_every_reported_condition_unknown():
    verdict = decide_node_health(node(READY, {"type": "DiskPressure", "status": "False"}), STALE_AFTER_S, NOW)
    assert [(each["type"], each["status"], each["reason"]) for each in verdict.conditions] == [
        ("Ready", "Unknown", "NodeStatusUnknown"),
        ("DiskPressure", "Unknown", "NodeStatusUnknown"),
    ]
    assert {each["lastTransitionTime"] for each in verdict.conditions} == {NOW}


def test_a_node_that_never_reported_gets_a_ready_condition():
    (condition,) = decide_node_health(node(), 50.0, NOW).conditions
    assert (condition["type"], condition["reason"]) == ("Ready", "NodeStatusNeverUpdated")


def test_an_unknown_node_is_not_written_again():
    assert decide_node_health(node({"type": "Ready", "status": "Unknown"}), 500.0, NOW).conditions == ()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def controller(api: FakeApi, clock: FakeClock) -> NodeController:
    """A controller whose informers are fed by the test, so that its time is the fake clock's alone."""
    controller = NodeController(api, EventRecorder(api, "c", clock=clock), clock)
    controller._leases._healthy_since = 0.0
    return controller


def renew(controller: NodeController, time: str) -> None:
    lease = {"metadata": {"name": "n", "namespace": "kube-node-lease"}, "spec": {"renewTime": time}}
    controller._on_lease(None, lease)


def ready(api: FakeApi) -> str:
    return str(api.get(NODE, "n")["status"]["conditions"][0]["status"])


def test_the_controllers_own_clock_counts_from_the_last_renewal_seen(api, clock, controller):
    controller._nodes._objects[Key("", "n")] = api.create(NODE, node(READY))
    controller.sync(Key("", "n"))
    clock.advance(30)
    renew(controller, "long ago")
    clock.advance(30)
    controller.sync(Key("", "n"))
    assert ready(api) == "True"
    clock.advance(15)
    controller.sync(Key("", "n"))
    assert ready(api) == "Unknown"
    while controller._recorder.write_one():
        pass
    assert [event["reason"] for event in api.list(EVENT).items] == ["NodeNotReady"]


def test_while_the_api_was_away_no_node_is_judged(api, clock, controller):
    controller._nodes._objects[Key("", "n")] = api.create(NODE, node(READY))
    controller.sync(Key("", "n"))
    controller._leases._healthy_since = None
    clock.advance(100)
    controller.sync(Key("", "n"))
    controller._leases._healthy_since = clock.monotonic()
    clock.advance(39)
    controller.sync(Key("", "n"))
    assert ready(api) == "True"
    clock.advance(1)
    controller.sync(Key("", "n"))
    assert ready(api) == "Unknown"


def test_a_ready_written_meanwhile_wins(api, clock, controller):
    controller._nodes._objects[Key("", "n")] = api.create(NODE, node(READY))
    controller.sync(Key("", "n"))
    clock.advance(60)
    newer = api.get(NODE, "n")
    newer["status"]["conditions"][0]["lastHeartbeatTime"] = NOW
    api.update(NODE, newer, subresource="status")
    controller.sync(Key("", "n"))
    assert ready(api) == "True"
    assert len(controller._queue) == 1


def test_a_lease_event_without_a_renewal_does_not_count(clock, controller):
    renew(controller, "t1")
    clock.advance(10)
    lease = {"metadata": {"name": "n"}, "spec": {"renewTime": "t1"}}
    controller._on_lease(lease, lease)
    assert controller._renewed_at["n"] == 0.0
    assert LEASE.plural == "leases"


@pytest.mark.parametrize(("kind", "heard"), [("virtual-kubelet", True), ("kwok", True), ("worker", False)])
def test_a_virtual_node_that_comes_back_is_heard_of_by_its_status(api, clock, controller, kind, heard):
    """It writes its status before it renews its Lease; Unknown until the next status would be minutes."""
    silent = {**READY, "status": "Unknown", "lastHeartbeatTime": "2026-11-28T10:00:00Z"}
    old = api.create(NODE, {**node(silent), "metadata": {"name": "n", "labels": {"type": kind}}})
    controller._nodes._objects[Key("", "n")] = old
    controller.sync(Key("", "n"))
    clock.advance(300)
    back = {**READY, "lastHeartbeatTime": "2026-11-28T10:05:00Z"}
    new = api.patch(NODE, "n", "", {"status": {"conditions": [back]}}, subresource="status")
    controller._on_node(old, new)
    controller._nodes._objects[Key("", "n")] = new
    controller.sync(Key("", "n"))
    assert ready(api) == ("True" if heard else "Unknown")
    controller._on_node(new, new)  # nothing new was told
    clock.advance(40)
    controller.sync(Key("", "n"))
    assert ready(api) == "Unknown"
