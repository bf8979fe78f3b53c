"""The scheduler at work on an API in memory: bindings, conditions, Events, and everything that goes wrong."""

from __future__ import annotations

import time
from functools import partial

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import EVENT, NAMESPACE, NODE, POD
from minik8s_modules.api.objects import Key
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.scheduler.running.effects import unschedulable_condition
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.unit.scheduler.worlds import condition_of, events, node, node_of, pod, until


def test_pods_are_bound_in_turn_and_told(api: FakeApi, request: pytest.FixtureRequest):
    for name in ("a", "b"):
        api.create(NODE, node(name))
    request.getfixturevalue("scheduler")
    for number in range(4):
        api.create(POD, pod(f"p{number}"))
        until(partial(node_of, api, f"p{number}"))
    assert sorted(node_of(api, f"p{number}") for number in range(4)) == ["a", "a", "b", "b"]
    until(lambda: len(events(api)) == 4)
    assert ("Scheduled", f"Successfully assigned default/p0 to {node_of(api, 'p0')}") in events(api)


WRONG = ("text", ["x"], 5)


def test_what_cannot_be_read_keeps_no_pod_from_its_node(api: FakeApi, request: pytest.FixtureRequest):
    for number, part in enumerate(WRONG):
        api.create(NODE, {**node(f"bad{number}"), "spec": part})
        api.create(NODE, {**node(f"worse{number}"), "status": part})
        api.create(NODE, {**node(f"worst{number}"), "spec": {"taints": part}})
        api.create(POD, {**pod(f"bad{number}"), "spec": part})
        api.create(POD, {**pod(f"bound{number}", nodeName="a"), "status": part})
        api.create(POD, pod(f"worst{number}", tolerations=part))
    api.create(NODE, node("a"))
    api.create(POD, pod("before"))
    request.getfixturevalue("scheduler")
    until(lambda: node_of(api, "before") == "a")
    api.create(POD, pod("after"))
    until(lambda: node_of(api, "after") == "a")


def told_by(api: FakeApi) -> set[tuple[str, str, str]]:
    found = api.list(EVENT).items
    return {(one["involvedObject"]["name"], one["reason"], one["source"]["component"]) for one in found}


def test_events_are_told_by_the_profile_that_decided(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", pods=1))
    api.create(POD, pod("random", schedulerName="random"))
    until(lambda: node_of(api, "random"))
    api.create(POD, pod("round-robin", schedulerName="round-robin"))
    wanted = {("random", "Scheduled", "random"), ("round-robin", "FailedScheduling", "round-robin")}
    until(lambda: wanted <= told_by(api))
    assert {component for _, _, component in told_by(api)} == {"random", "round-robin"}


def test_a_pod_waits_with_its_reason_until_a_node_comes(api: FakeApi, scheduler: Scheduler):
    api.create(POD, pod("p"))
    until(lambda: condition_of(api, "p"))
    condition = condition_of(api, "p")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "no nodes available to schedule pods"
    api.create(NODE, node("a"))
    until(lambda: node_of(api, "p") == "a")
    until(lambda: len(events(api)) == 2)
    assert ("FailedScheduling", "no nodes available to schedule pods") in events(api)


def test_a_waiting_pod_goes_when_another_leaves(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", pods=1))
    api.create(POD, pod("first"))
    until(lambda: node_of(api, "first"))
    api.create(POD, pod("second"))
    until(lambda: condition_of(api, "second"))
    assert condition_of(api, "second")["message"] == (
        "0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    )
    api.delete(POD, "first", "default", grace_s=0)
    until(lambda: node_of(api, "second"))


def test_many_pods_at_once_never_overfill_a_node(api: FakeApi, scheduler: Scheduler):
    for name in ("a", "b"):
        api.create(NODE, node(name, cpu="1"))
    asking = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    for number in range(25):
        api.create(POD, pod(f"p{number}", containers=asking))
    until(lambda: sum(bool(node_of(api, f"p{number}")) for number in range(25)) == 20)
    until(lambda: [condition_of(api, f"p{number}").get("status") for number in range(25)].count("False") == 5)
    placed = [node_of(api, f"p{number}") for number in range(25)]
    assert (placed.count("a"), placed.count("b")) == (10, 10)


def test_heartbeats_and_its_own_writes_wake_nobody(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", ready="False"))
    api.create(POD, pod("p"))
    until(lambda: "not ready" in condition_of(api, "p").get("message", ""))
    written = api.get(POD, "p", "default")["status"]
    until(lambda: (scheduler._pods.get("default", "p") or {}).get("status") == written)
    queue = scheduler._queue
    assert queue is not None
    entry = queue._entries[Key("default", "p")]
    attempts = entry.attempts
    beating = api.get(NODE, "a")
    beating["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:10Z"
    api.update(NODE, beating, subresource="status")
    # an informer shows an object to others only after its handlers have ended
    until(lambda: (scheduler._nodes.get("", "a") or {}).get("status") == beating["status"])
    assert (entry.place, entry.attempts) == ("waiting", attempts)


@pytest.mark.parametrize(
    "error", [ApiUnreachable("down"), passing_error(), Forbidden(POD, "p", "no"), KeyError("a defect")]
)
def test_a_binding_that_fails_is_tried_again(api: FakeApi, error: Exception, request: pytest.FixtureRequest):
    api.create(NODE, node("a"))
    failing = [error, error]
    create = api.create

    def create_or_fail(kind, obj, *, subresource="", **options):
        if subresource == "binding" and failing:
            raise failing.pop()
        return create(kind, obj, subresource=subresource, **options)

    api.create = create_or_fail  # type: ignore[method-assign]  # only bindings fail, other calls run meanwhile
    request.getfixturevalue("scheduler")
    api.create(POD, pod("p"))
    until(lambda: node_of(api, "p") == "a")
    assert failing == []


def test_a_pod_bound_by_another_is_left_alone(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a"))
    with api.changed:
        api.create(POD, pod("p"))
        api.create(
            POD,
            {"metadata": {"name": "p", "namespace": "default"}, "target": {"name": "z"}},
            subresource="binding",
        )
    time.sleep(0.1)
    assert node_of(api, "p") == "z"
    api.create(POD, pod("q"))
    until(lambda: node_of(api, "q") == "a")


def test_a_restarted_api_loses_no_pod(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a"))
    with api.changed:
        api.cut_watches()
        api.create(POD, pod("p"))
    until(lambda: node_of(api, "p") == "a")


def test_pending_pods_from_before_are_taken_when_leading_begins(api: FakeApi, request: pytest.FixtureRequest):
    api.create(NODE, node("a"))
    api.create(POD, pod("p"))
    request.getfixturevalue("scheduler")
    until(lambda: node_of(api, "p") == "a")


def test_a_condition_keeps_its_transition_time_while_only_its_message_changes():
    first = unschedulable_condition({}, "one", "t1")
    assert unschedulable_condition(first, "two", "t2") == {**first, "message": "two"}
    bound = {**first, "status": "True"}
    assert unschedulable_condition(bound, "two", "t2")["lastTransitionTime"] == "t2"


def test_a_pod_that_waits_for_others_goes_where_they_went(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", labels={"host": "a"}))
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    api.create(POD, pod("web", affinity=near))
    until(lambda: "didn't match pod affinity rules" in condition_of(api, "web").get("message", ""))
    db = pod("db")
    db["metadata"]["labels"] = {"app": "db"}
    api.create(POD, db)
    until(lambda: node_of(api, "web") == "a")


def test_a_namespace_chosen_by_its_labels_counts(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a", labels={"host": "a"}))
    api.create(NAMESPACE, {"metadata": {"name": "shop", "labels": {"team": "one"}}})
    db = pod("db")
    db["metadata"] |= {"labels": {"app": "db"}, "namespace": "shop"}
    api.create(POD, db)
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}}
    term |= {"namespaceSelector": {"matchLabels": {"team": "one"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    api.create(POD, pod("web", affinity=near))
    until(lambda: node_of(api, "web") == "a")
