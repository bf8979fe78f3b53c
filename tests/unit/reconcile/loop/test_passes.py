"""How often a pod is decided about in its life, and what is asked of the API meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import POD, POD_ADDRESS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.loop.changed_pods import is_news
from minik8s_modules.reconcile.loop.gateway_events import is_urgent
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import full
from minik8s_modules.reconcile.pods.desired import decide_pod
from tests.unit.reconcile.loop.test_loop import Cluster, running, until
from tests.unit.reconcile.worlds import UID, pod


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.start()
    yield made
    made.stop()


def settle(cluster: Cluster, written: JsonObject) -> None:
    """Wait until the loop has seen a write of a pod and has nothing to do."""
    assert cluster.service is not None
    copies, queue = cluster.service._copies, cluster.service.loop._queue
    until(lambda: copies.pods.has_reached(int(written["metadata"]["resourceVersion"])))
    until(lambda: not queue._dirty and not queue._processing)


def test_an_address_is_given_back_once_and_before_its_pod_goes(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    delete = cluster.api.delete

    def slow(kind: Kind, *rest: Any, **named: Any) -> JsonObject:
        time.sleep(0.2 if kind == POD_ADDRESS else 0)
        return delete(kind, *rest, **named)

    cluster.api.delete = slow  # type: ignore[method-assign]
    cluster.api.delete(POD, "web", "default")
    until(lambda: cluster.node.stopped)
    cluster.node.die(cluster.node.find("app")["id"], 143)
    until(lambda: cluster.addresses() == [] and cluster.api.list(POD).items == [])
    ends = [call[1] for call in cluster.api.calls if call[0] == "delete"]
    assert ends == ["pods", "podaddresses", "pods"]


def test_a_status_of_our_own_leads_to_no_decision(cluster: Cluster, monkeypatch: Any):
    decided: list[str] = []

    def noted(given: JsonObject, *rest: Any) -> Any:
        decided.append(given["metadata"]["name"])
        return decide_pod(given, *rest)

    cluster.create()
    until(lambda: running(cluster))
    settle(cluster, cluster.pod())
    monkeypatch.setattr("minik8s_modules.reconcile.loop.loop.decide_pod", noted)
    gate = {"type": "example.com/gate", "status": "True"}
    conditions = [*cluster.pod()["status"]["conditions"], gate]
    written = cluster.api.patch(POD, "web", "default", {"status": {"conditions": conditions}}, subresource="status")
    settle(cluster, written)
    assert decided == []
    written = cluster.api.patch(POD, "web", "default", {"metadata": {"labels": {"a": "b"}}})
    settle(cluster, written)
    assert decided == ["web"]


def test_a_status_that_somebody_else_writes_is_put_right(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.api.patch(POD, "web", "default", {"status": {"conditions": []}}, subresource="status")
    until(lambda: running(cluster))


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}, False),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Pending", "reason": "Evicted"}}, True),
        ({"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}, False),
        ({"status": {"phase": "Pending", "containerStatuses": [{"name": "app", "restartCount": 1}]}}, True),
        ({"status": {"phase": "Pending", "containerStatuses": [{"name": "app", "restartCount": 0}]}}, False),
        ({"status": {"phase": "Pending", "containerStatuses": [{"name": "app", "containerID": "docker://1"}]}}, True),
        ({"status": {"phase": "Pending", "containerStatuses": "none"}}, True),
        ({"metadata": {"resourceVersion": "2", "managedFields": [{}]}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        ({"spec": {"containers": [{"name": "app", "image": "other"}]}}, True),
    ],
)
def test_what_is_news_to_a_decision(change: JsonObject, news: bool):  # noqa: FBT001
    assert is_news(pod(), pod(**change)) is news


def test_how_a_container_ended_is_news():
    def told(state: JsonObject) -> JsonObject:
        return pod(status={"phase": "Running", "containerStatuses": [{"name": "app", "containerID": "x", **state}]})

    ended = told({"state": {"terminated": {"exitCode": 0}}})
    assert is_news(told({"state": {"running": {}}}), ended)
    assert is_news(ended, told({"state": {"terminated": {"exitCode": 1}}}))
    assert not is_news(ended, told({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}))


def test_the_start_of_a_pod_with_a_deadline_is_news():
    spec = {"activeDeadlineSeconds": 5}
    assert is_news(pod(spec), pod(spec, status={"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}))


@pytest.mark.parametrize(
    ("kind", "state", "action", "urgent"),
    [
        ("sandbox", "created", "create", False),
        ("sandbox", "running", "start", False),
        ("sandbox", "exited", "die", False),
        ("app", "created", "create", False),
        ("app", "running", "start", True),
        ("app", "exited", "die", True),
        ("app", "running", "pause", True),
        ("", "", "destroy", False),
    ],
)
def test_what_an_item_will_tell_waits_for_it(kind: str, state: str, action: str, urgent: bool):  # noqa: FBT001
    told = {"type": kind, "state": state, "error": ""} if kind else None
    message = {"op": "event", "action": action, "container": told}
    node = NodeState("n1", lambda: 300.0)
    assert is_urgent(node, message, {UID})
    node.sent = Sent("1", {"containers": full({f"{UID}/app": {}})})
    assert is_urgent(node, message, {UID}) is urgent
    assert is_urgent(node, message, {"another pod"})
    assert is_urgent(node, {"op": "pulled"}, {UID})


def test_a_container_that_could_not_be_started_is_told_at_once():
    node = NodeState("n1", lambda: 300.0)
    node.sent = Sent("1", {"containers": full({f"{UID}/app": {}})})
    told = {"type": "app", "state": "created", "error": "no such file"}
    assert is_urgent(node, {"op": "event", "action": "die", "container": told}, {UID})
