"""Events are written once, counted when they repeat, and cost the caller nothing when the API is away."""

from __future__ import annotations

import time

import pytest

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.runtime.events import PENDING_LIMIT, EventRecorder
from tests.support.waiting import until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def recorder(api: FakeApi, clock: FakeClock) -> EventRecorder:
    return EventRecorder(api, "default-scheduler", clock=clock)


def events(api: FakeApi) -> list[JsonObject]:
    return api.list(EVENT).items


def drain(recorder: EventRecorder) -> None:
    while recorder.write_one():
        pass


def test_an_event_has_kubernetes_shape(api, recorder):
    recorder.event(POD, "Normal", "Scheduled", "Successfully assigned shop/web to n1", field_path="spec")
    drain(recorder)
    (event,) = events(api)
    assert event["metadata"]["namespace"] == "shop"
    assert event["metadata"]["name"].startswith("web.")
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u1",
        "resourceVersion": "7", "fieldPath": "spec",
    }  # fmt: skip
    assert (event["type"], event["reason"], event["count"]) == ("Normal", "Scheduled", 1)
    assert event["source"] == {"component": "default-scheduler"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


def test_an_event_may_come_from_somebody_on_a_node(api, recorder):
    recorder.event(POD, "Normal", "Started", "Started container app", component="kubelet", host="n1")
    recorder.event(POD, "Normal", "Started", "Started container app", component="kubelet", host="n2")
    drain(recorder)
    recorded = [(event["source"], event["reportingComponent"], event["reportingInstance"]) for event in events(api)]
    assert sorted(recorded, key=str) == [
        ({"component": "kubelet", "host": node}, "kubelet", node) for node in ("n1", "n2")
    ]


def test_an_event_of_a_cluster_scoped_object_goes_to_default(api, recorder):
    recorder.event({"kind": "Node", "metadata": {"name": "n1"}}, "Warning", "NodeNotReady", "gone")
    drain(recorder)
    assert events(api)[0]["metadata"]["namespace"] == "default"


def test_repeats_raise_the_count_before_and_after_writing(api, recorder, clock):
    for _ in range(3):
        recorder.event(POD, "Warning", "BackOff", "again")
    drain(recorder)
    clock.advance(60)
    recorder.event(POD, "Warning", "BackOff", "again")
    recorder.event(POD, "Warning", "BackOff", "something else")
    drain(recorder)
    counts = {event["message"]: event["count"] for event in events(api)}
    assert counts == {"again": 4, "something else": 1}
    repeated = next(event for event in events(api) if event["message"] == "again")
    assert (repeated["firstTimestamp"], repeated["lastTimestamp"]) == (
        "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z",
    )  # fmt: skip


def test_a_repeat_of_a_deleted_event_is_a_new_one(api, recorder):
    recorder.event(POD, "Warning", "BackOff", "again")
    drain(recorder)
    api.delete(EVENT, events(api)[0]["metadata"]["name"], "shop")
    recorder.event(POD, "Warning", "BackOff", "again")
    drain(recorder)
    assert [event["count"] for event in events(api)] == [1]


@pytest.mark.parametrize("error", [ApiUnreachable("down"), passing_error()])
def test_while_the_api_is_away_events_wait_and_repeats_are_counted(api, recorder, error):
    recorder.event(POD, "Warning", "BackOff", "again")
    api.fail(error)
    with pytest.raises(type(error)):
        recorder.write_one()
    recorder.event(POD, "Warning", "BackOff", "again")
    drain(recorder)
    assert [event["count"] for event in events(api)] == [2]


def test_a_count_that_could_not_be_raised_is_raised_later(api, recorder):
    recorder.event(POD, "Warning", "BackOff", "again")
    drain(recorder)
    recorder.event(POD, "Warning", "BackOff", "again")
    api.fail(ApiUnreachable("down"))
    with pytest.raises(ApiUnreachable):
        recorder.write_one()
    drain(recorder)
    assert [event["count"] for event in events(api)] == [2]


def test_what_the_api_refuses_and_what_does_not_fit_is_dropped_and_counted(api, recorder):
    recorder.event(POD, "Normal", "Refused", "no")
    api.fail(BadRequest("no such thing"))
    drain(recorder)
    assert recorder.dropped == 1
    for number in range(PENDING_LIMIT + 5):
        recorder.event({**POD, "metadata": {"name": "web", "uid": str(number)}}, "Normal", "Storm", "many")
    assert recorder.dropped == 6


def test_the_thread_writes_and_stop_writes_the_rest(api):
    recorder = EventRecorder(api, "test")
    recorder.start()
    recorder.event(POD, "Normal", "First", "one")
    until(lambda: events(api))
    recorder.event(POD, "Normal", "Last", "two")
    recorder.stop()
    assert {event["reason"] for event in events(api)} == {"First", "Last"}


def test_stop_does_not_wait_for_an_api_that_is_away(api):
    recorder = EventRecorder(api, "test")
    api.fail(*[ApiUnreachable("down")] * 1000)
    recorder.event(POD, "Normal", "First", "one")
    recorder.start()
    time.sleep(0.05)
    began = time.monotonic()
    recorder.stop(timeout_s=120)
    assert time.monotonic() - began < 60
