"""Server-side apply beyond one object in one version: scales, several versions, and kubectl coming from client-side."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace

MEDIA = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
SPEC = {
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
}
REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def apply(namespace: Namespace, path: str, body, manager="me", **query):
    asked = "&".join([f"fieldManager={manager}", *(f"{key}={value}" for key, value in query.items())])
    return namespace.server.request("PATCH", f"{path}?{asked}", json.dumps(body).encode(), headers=MEDIA)


def owners(namespace: Namespace, path: str):
    entries = namespace.server.request("GET", path).json["metadata"]["managedFields"]
    return {(e["manager"], e["operation"], e.get("subresource", "")): (e["apiVersion"], e["fieldsV1"]) for e in entries}


def scale(replicas=None, **metadata):
    spec = {} if replicas is None else {"spec": {"replicas": replicas}}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, **spec}


@pytest.fixture(params=["deployments", "replicasets", "statefulsets"])
def workload(namespace: Namespace, request):
    """The path of a workload whose replicas nobody set."""
    kind = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}[request.param]
    path = f"/apis/apps/v1/namespaces/{namespace.name}/{request.param}"
    extra = {"serviceName": "w"} if kind == "StatefulSet" else {}
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {**SPEC, **extra}}
    assert apply(namespace, f"{path}/w", body, "owner").code == 201
    return f"{path}/w"


def test_an_applied_scale_is_owned_under_its_subresource(namespace: Namespace, workload: str):
    answer = apply(namespace, f"{workload}/scale", scale(3), "scaler")
    assert (answer.code, answer.json["kind"], answer.json["spec"]) == (200, "Scale", {"replicas": 3})
    assert namespace.server.request("GET", workload).json["spec"]["replicas"] == 3
    assert owners(namespace, workload)["scaler", "Apply", "scale"] == ("apps/v1", REPLICAS)
    again = apply(namespace, f"{workload}/scale", scale(3), "scaler")
    assert again.json["metadata"]["resourceVersion"] == answer.json["metadata"]["resourceVersion"]


def test_replicas_that_another_owns_are_a_conflict(namespace: Namespace, workload: str):
    apply(namespace, f"{workload}/scale", scale(3), "scaler")
    refused = apply(namespace, f"{workload}/scale", scale(4), "other")
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
    assert apply(namespace, f"{workload}/scale", scale(4), "other", force="true").json["spec"] == {"replicas": 4}
    assert ("scaler", "Apply", "scale") not in owners(namespace, workload)
    # and an update through the subresource takes it from an applier, as kubectl scale does
    namespace.server.request(
        "PATCH", f"{workload}/scale?fieldManager=kubectl", b'{"spec":{"replicas":5}}', headers=MERGE
    )
    now = owners(namespace, workload)
    assert now["kubectl", "Update", "scale"] == ("apps/v1", REPLICAS)
    assert ("other", "Apply", "scale") not in now


def test_replicas_given_up_through_the_scale_are_none(namespace: Namespace, workload: str):
    apply(namespace, f"{workload}/scale", scale(3), "scaler")
    assert apply(namespace, f"{workload}/scale", scale(), "scaler").json["spec"] == {"replicas": 0}


@pytest.mark.parametrize(
    ("body", "query", "code", "expected"),
    [
        (scale(1), {"manager": ""}, 422, "fieldManager: Required value"),
        (scale(-1), {}, 422, "spec.replicas: Invalid value: -1"),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, {}, 400, "does not match the expected API version"),
        ({**scale(1), "spec": {"replicaz": 1}}, {}, 400, ".spec.replicaz: field not declared in schema"),
        (scale(1, managedFields=[]), {}, 400, "metadata.managedFields must be nil"),
        (scale(1, uid="u"), {}, 409, "Precondition failed: UID"),
        (scale(1, resourceVersion="1"), {}, 409, "the object has been modified"),
        (scale("many"), {}, 400, "cannot unmarshal string"),
    ],
)
def test_a_scale_that_cannot_be_applied_is_told(namespace: Namespace, workload: str, body, query, code, expected):
    before = namespace.server.request("GET", workload).body
    answer = apply(namespace, f"{workload}/scale", body, **query)
    assert answer.code == code, answer.body
    assert expected in answer.json["message"]
    assert namespace.server.request("GET", workload).body == before


def test_a_scale_is_never_created(namespace: Namespace):
    path = f"/apis/apps/v1/namespaces/{namespace.name}/deployments/none/scale"
    assert apply(namespace, path, scale(1)).code == 404


def test_what_was_applied_in_one_version_is_given_up_in_another(namespace: Namespace):
    base = f"/apis/autoscaling/{{}}/namespaces/{namespace.name}/horizontalpodautoscalers/h"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    meta = {"name": "h", "labels": {"a": "b"}}
    head = {"kind": "HorizontalPodAutoscaler", "metadata": meta}
    spec = {"maxReplicas": 5, "minReplicas": 2, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    first = {"apiVersion": "autoscaling/v1", **head, "spec": spec}
    assert apply(namespace, base.format("v1"), first).code == 201
    less = {"apiVersion": "autoscaling/v2", **head, "metadata": {"name": "h"}, "spec": {"scaleTargetRef": target}}
    less["spec"] = {"maxReplicas": 5, "scaleTargetRef": target}
    answer = apply(namespace, base.format("v2"), less)
    assert answer.code == 200, answer.body
    found = answer.json
    assert "labels" not in found["metadata"]
    assert found["spec"]["minReplicas"] == 1  # the default again
    shown = namespace.server.request("GET", base.format("v1")).json
    assert shown["spec"].get("targetCPUUtilizationPercentage") in (None, 80)
    (entry,) = [e for e in found["metadata"]["managedFields"] if e["manager"] == "me"]
    assert entry["apiVersion"] == "autoscaling/v2"


def test_what_another_owns_in_the_other_version_stays(namespace: Namespace):
    base = f"/apis/autoscaling/{{}}/namespaces/{namespace.name}/horizontalpodautoscalers/h"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    head = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
    spec = {"maxReplicas": 5, "minReplicas": 2, "scaleTargetRef": target}
    apply(namespace, base.format("v1"), {"apiVersion": "autoscaling/v1", **head, "spec": spec}, "one")
    apply(namespace, base.format("v2"), {"apiVersion": "autoscaling/v2", **head, "spec": {"minReplicas": 2}}, "two")
    less = {"maxReplicas": 5, "scaleTargetRef": target}
    answer = apply(namespace, base.format("v2"), {"apiVersion": "autoscaling/v2", **head, "spec": less}, "one")
    assert answer.json["spec"]["minReplicas"] == 2


def test_kubectl_migrates_from_client_side_apply(namespace: Namespace, tmp_path):
    manifest = tmp_path / "d.json"
    labels = {"keep": "1", "drop": "1"}
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace.name, "labels": labels},
        "spec": {"replicas": 2, **SPEC},
    }
    manifest.write_text(json.dumps(body))
    namespace.server.kubectl("apply", "-f", str(manifest))
    del body["metadata"]["labels"]["drop"]
    manifest.write_text(json.dumps(body))
    done = namespace.server.kubectl("apply", "--server-side", "-f", str(manifest))
    assert "serverside-applied" in done.stdout
    path = f"/apis/apps/v1/namespaces/{namespace.name}/deployments/d"
    found = namespace.server.request("GET", path).json
    assert found["metadata"]["labels"] == {"keep": "1"}, found["metadata"]
    assert {(e["manager"], e["operation"]) for e in found["metadata"]["managedFields"]} == {
        ("kubectl", "Apply"),
        ("kubectl-last-applied", "Apply"),  # kubectl keeps the annotation under a name of its own
    }
    assert '"drop"' not in found["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    again = namespace.server.kubectl("apply", "--server-side", "-f", str(manifest), "-o", "json")
    assert json.loads(again.stdout)["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    # and back: client-side apply goes on from the annotation
    body["metadata"]["labels"] = {}
    manifest.write_text(json.dumps(body))
    namespace.server.kubectl("apply", "-f", str(manifest))
    assert not namespace.server.request("GET", path).json["metadata"].get("labels")


def test_what_admission_adds_to_a_pod_is_nobodys_so_it_migrates(namespace: Namespace, tmp_path):
    account = {"metadata": {"name": "default"}}
    namespace.server.request("POST", namespace.path("serviceaccounts"), account)
    manifest = tmp_path / "p.json"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    meta = {"name": "p", "namespace": namespace.name}
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
    namespace.server.kubectl("apply", "-f", str(manifest))
    made = namespace.get("p", "pods").json
    assert made["spec"]["volumes"], "admission mounts a token"
    owned = json.dumps([entry["fieldsV1"] for entry in made["metadata"]["managedFields"]])
    assert "f:volumes" not in owned
    done = namespace.server.kubectl("apply", "--server-side", "-f", str(manifest))
    assert (done.stdout, "Error" in done.stderr) == ("pod/p serverside-applied\n", False), done.stderr
