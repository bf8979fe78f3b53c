"""How an autoscaler decided last: what ``why`` prints below its cause."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.autoscalers import autoscaler_faults, decisions
from tests.unit.cli.causes.logged_api import SPACE, LoggedApi, put

LABELS = {"app": "web"}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def deployment(kind: str = "Deployment", ready: int = 2) -> JsonObject:
    spec = {"selector": {"matchLabels": LABELS}, "replicas": 2}
    fields = {"status": {"replicas": 2, "readyReplicas": ready}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec, **fields}


def used(cpu: str, name: str = "web-a") -> JsonObject:
    containers = [{"name": "app", "usage": {"cpu": cpu, "memory": "9000Ki"}}]
    meta = {"name": name, "labels": LABELS}
    moment = "2026-01-01T00:00:00Z"
    version = "metrics.k8s.io/v1beta1"
    return {
        "apiVersion": version,
        "kind": "PodMetrics",
        "metadata": meta,
        "timestamp": moment,
        "containers": containers,
    }


def event(about: JsonObject, reason: str, message: str) -> JsonObject:
    involved = {"kind": "HorizontalPodAutoscaler", "name": "web", "uid": about["metadata"]["uid"]}
    return {
        "kind": "Event",
        "metadata": {"name": f"e-{reason.lower()}", "namespace": SPACE},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:01Z",
    }


def metric(kind: str, target: dict[str, Any], current: dict[str, Any]) -> tuple[JsonObject, JsonObject]:
    field = kind[0].lower() + kind[1:]
    name = {"name": "cpu"} if kind == "Resource" else {"metric": {"name": "hits"}}
    return {"type": kind, field: {**name, "target": target}}, {"type": kind, field: {**name, "current": current}}


def test_samples_proposals_what_damped_them_and_changes_are_told():
    api = LoggedApi()
    asked = [
        metric("Resource", {"averageUtilization": 50}, {"averageUtilization": 180, "averageValue": "180m"}),
        metric("Pods", {"averageValue": "10"}, {"averageValue": "10500m"}),
        metric("External", {"value": "30"}, {"value": "15"}),
    ]
    limited = {"type": "ScalingLimited", "status": "True", "reason": "ScaleUpLimit", "message": "too fast"}
    able = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "ready"}
    about = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 9, "metrics": [each for each, _ in asked]},
        "status": {
            "currentReplicas": 2,
            "desiredReplicas": 4,
            "currentMetrics": [each for _, each in asked],
            "conditions": [able, limited],
        },
    }
    kept = put(api, about, deployment(), used("180m"), used("180m", "web-b"))[0]
    api.create(EVENT, event(kept, "SuccessfulRescale", "New size: 4; reason: cpu above target"))
    api.create(EVENT, event(kept, "Other", "x"))
    assert [*decisions(kept, api.around())] == [
        "Now:      web-a: cpu 180m, memory 9Mi, measured 2026-01-01T00:00:00Z",
        "Now:      web-b: cpu 180m, memory 9Mi, measured 2026-01-01T00:00:00Z",
        "Metric:   cpu: 180%, target 50%: asks for 8 replicas of 2",
        "Metric:   hits: 10500m a Pod, target 10 a Pod: within a tenth of the target",
        "Metric:   hits: 15, target 30: asks for 1 replica of 2",
        "Damped:   ScaleUpLimit: too fast",
        "Replicas: 2, wanted: 4; at least 1, at most 9",
        "Changed:  2026-01-01T00:00:01Z New size: 4; reason: cpu above target",
    ]


def test_of_the_originals_samples_and_changes_are_told():
    api = LoggedApi()
    spec = {"scaleTargetRef": {"kind": "ReplicaSet", "name": "web"}, "maxReplicas": 3}
    about = {"apiVersion": "v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec}
    kept = put(api, about, deployment("ReplicaSet"), used("20m"))[0]
    api.create(EVENT, event(kept, "SuccessfulRescale", "New size: 2; reason: memory above target"))
    assert [*decisions(kept, api.around())] == [
        "Now:      web-a: cpu 20m, memory 9Mi, measured 2026-01-01T00:00:00Z",
        "Changed:  2026-01-01T00:00:01Z New size: 2; reason: memory above target",
    ]


@pytest.mark.parametrize(("ready", "pods"), [(1, 2), (2, 1)])
def test_where_pods_are_not_ready_or_tell_nothing_a_proposal_is_about_right(ready: int, pods: int):
    api = LoggedApi()
    asked, current = metric("Resource", {"averageUtilization": 50}, {"averageUtilization": 180})
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 9, "metrics": [asked]}
    about = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
             "spec": spec, "status": {"currentReplicas": 2, "currentMetrics": [current]}}  # fmt: skip
    kept = put(api, about, deployment(ready=ready), *(used("1m", f"web-{each}") for each in range(pods)))[0]
    assert "Metric:   cpu: 180%, target 50%: asks for about 8 replicas of 2" in [*decisions(kept, api.around())]


def test_how_many_pods_are_left_out_is_told():
    api = LoggedApi()
    about = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
             "spec": {"scaleTargetRef": TARGET, "maxReplicas": 9}}  # fmt: skip
    kept = put(api, about, deployment(), *(used("1m", f"web-{each}") for each in range(7)))[0]
    lines = [line for line in decisions(kept, api.around()) if line.startswith("Now:")]
    assert (len(lines), lines[-1]) == (6, "Now:      these are 5 of 7 Pods")


def autoscaler(metrics: list[JsonObject], target: JsonObject = TARGET, **status: Any) -> JsonObject:
    spec = {"scaleTargetRef": target, "maxReplicas": 9, "metrics": metrics}
    meta = {"name": "web"}
    version = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**version, "metadata": meta, "spec": spec, "status": status}


def failed(kind: str, reason: str) -> JsonObject:
    return {"type": kind, "status": "False", "reason": reason, "message": "so it is"}


def test_replicas_that_somebody_else_has_set_are_told():
    api = LoggedApi()
    able = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "ready"}
    about = autoscaler([], currentReplicas=3, desiredReplicas=3, conditions=[able])
    kept = put(api, about, deployment())[0]
    text = "Since:    the target was given 2 replicas; the autoscaler decides on them next"
    assert [*decisions(kept, api.around())][-1] == text
    same = {**kept, "status": {**kept["status"], "desiredReplicas": 2}}
    assert text not in [*decisions(same, api.around())]


def test_a_target_that_cannot_be_read_damps_nothing():
    api = LoggedApi()
    kept = put(api, autoscaler([], conditions=[failed("AbleToScale", "FailedGetScale")]))[0]
    assert not [line for line in decisions(kept, api.around()) if line.startswith("Damped")]


@pytest.mark.parametrize(
    ("kind", "reason", "target", "lead"),
    [
        ("ScalingActive", "FailedGetResourceMetric", TARGET, "kubectl -n shop describe deployment/web"),
        ("ScalingActive", "FailedGetPodsMetric", TARGET, "kubectl get apiservices"),
        ("ScalingActive", "FailedGetExternalMetric", TARGET, "kubectl get apiservices"),
        ("ScalingActive", "AmbiguousSelector", TARGET, "kubectl -n shop get hpa"),
        ("AbleToScale", "FailedGetScale", TARGET, "kubectl -n shop get deployment/web"),
        (
            "AbleToScale",
            "FailedGetScale",
            {"apiVersion": "a.b/v1", "kind": "Bar", "name": "x"},
            "kubectl api-resources",
        ),
    ],
)
def test_each_fault_leads_on_to_what_shows_it(kind: str, reason: str, target: JsonObject, lead: str):
    api = LoggedApi()
    asked, _ = metric("Resource", {"averageUtilization": 50}, {})
    made = deployment()
    made["spec"]["template"] = {"spec": {"containers": [{"name": "app"}]}}
    kept = put(api, autoscaler([asked], target, conditions=[failed(kind, reason)]), made)[0]
    (fault,) = autoscaler_faults(kept, api.around())
    assert fault.next == lead.replace("shop", SPACE)


def test_where_containers_request_what_is_measured_the_samples_are_looked_at():
    api = LoggedApi()
    asked, _ = metric("Resource", {"averageUtilization": 50}, {})
    made = deployment()
    made["spec"]["template"] = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}}
    conditions = [failed("ScalingActive", "FailedGetResourceMetric")]
    kept = put(api, autoscaler([asked], conditions=conditions), made)[0]
    assert [fault.next for fault in autoscaler_faults(kept, api.around())] == [f"kubectl -n {SPACE} top pods"]
