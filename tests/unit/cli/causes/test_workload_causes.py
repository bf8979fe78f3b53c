"""The cause of a workload is that of its pods."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.causes.logged_api import verdict_on as judged


def find_cause(obj: dict[str, Any], *pods: dict[str, Any]) -> str:
    return judged(obj, *pods).cause


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n1"},
        "status": status,
    }


def workload(*conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status = {"conditions": [*conditions], "observedGeneration": 1}
    spec |= {"selector": {"matchLabels": {"app": "web"}}}
    named = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "spec": spec, "status": status}


UNAVAILABLE = {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "too few"}
BROKEN = pod(
    "web-a", containerStatuses=[{"name": "app", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]
)


def test_the_pods_say_why_a_deployment_is_not_available():
    causes = find_cause(workload(UNAVAILABLE), pod("web-b"), BROKEN)
    assert causes == "1 of 2 pods are not ready; pod web-a: container app: ErrImagePull: no"
    assert find_cause(workload(UNAVAILABLE), BROKEN) == "pod web-a: container app: ErrImagePull: no"


def test_pods_that_cannot_be_made_come_first():
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    assert find_cause(workload(UNAVAILABLE, failure), BROKEN) == "ReplicaFailure: FailedCreate: quota"


def test_a_pause_is_a_cause_and_a_condition_the_last():
    assert find_cause(workload(paused=True)).startswith("the rollout is paused")
    assert find_cause(workload(UNAVAILABLE), pod("web-b")).startswith("Available: Minimum")
    assert find_cause(workload(), pod("web-b")) == ""
