"""Kinds that are served before controllers act on them: scale, eviction, approval, two versions, and what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, DEPLOYMENT, KINDS
from minik8s_modules.api.validation import warnings
from tests.integration.apiserver.conftest import Namespace, pod
from tests.unit.api import samples

APPS = "/apis/apps/v1/namespaces"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def deployment(namespace: Namespace):
    """The path of a deployment called web."""
    base = f"{APPS}/{namespace.name}/deployments"
    made = namespace.server.request("POST", base, samples.sample(DEPLOYMENT))
    assert made.code == 201
    return f"{base}/web"


STORED = [kind for kind in KINDS.all() if kind.group in {"apps", "batch", "autoscaling", "policy", "networking.k8s.io"}]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: f"{kind.kind}.{kind.version}")
def test_a_kind_is_created_read_changed_and_deleted(namespace: Namespace, kind):
    root = f"/apis/{kind.api_version}"
    base = f"{root}/namespaces/{namespace.name}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    wanted = samples.sample(kind)
    if kind.kind == "Ingress":  # a host that no other test has taken
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        wanted["spec"] = {"rules": [{"host": f"{namespace.name}.example", "http": {"paths": paths}}]}
    made = namespace.server.request("POST", base, wanted)
    assert made.code == 201, made.json
    untold = "minik8s does not act on it"
    acted_on = not any(untold in each for each in warnings(kind, made.json))
    assert (untold in made.headers.get("warning", "")) != acted_on
    assert (made.json["apiVersion"], made.json["kind"]) == (kind.api_version, kind.kind)
    assert namespace.server.request("PUT", f"{base}/web", made.json).body == made.body  # nothing changed
    label = b'{"metadata":{"labels":{"l":"1"}}}'
    changed = namespace.server.request("PATCH", f"{base}/web", label, headers=MERGE)
    assert changed.json["metadata"]["labels"]["l"] == "1"
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    rows = namespace.server.request("GET", base, headers=table).json["rows"]
    assert "web" in [row["cells"][0] for row in rows]
    assert namespace.server.request("DELETE", f"{base}/web").code == 200


def test_what_is_only_created_is_not_shown_as_a_table(namespace: Namespace):
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    assert namespace.server.request("POST", path, review, headers={"Accept": table}).code == 406
    either = {"Accept": f"{table},application/json"}
    assert namespace.server.request("POST", path, review, headers=either).json["status"]["allowed"]


def test_scale_is_read_and_written(namespace: Namespace, deployment):
    scale = namespace.server.request("GET", f"{deployment}/scale").json
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 0, "selector": "app=web"},
    )
    scale["spec"]["replicas"] = 4
    assert namespace.server.request("PUT", f"{deployment}/scale?fieldManager=s", scale).json["spec"] == {"replicas": 4}
    stale = namespace.server.request("PUT", f"{deployment}/scale", scale)
    assert stale.code == 409
    patched = namespace.server.request("PATCH", f"{deployment}/scale", b'{"spec":{"replicas":0}}', headers=MERGE)
    assert patched.json["spec"] == {"replicas": 0}
    obj = namespace.server.request("GET", deployment).json
    assert (obj["spec"]["replicas"], obj["metadata"]["generation"]) == (0, 3)
    assert "scale" in {entry.get("subresource") for entry in obj["metadata"]["managedFields"]}


@pytest.mark.parametrize(
    ("body", "media", "code", "expected"),
    [
        (b'{"spec":{"replicas":-1}}', "application/merge-patch+json", 422, "must be greater than or equal to 0"),
        (b'{"spec":{"replicas":"x"}}', "application/merge-patch+json", 400, "cannot unmarshal string"),
        (b"[]", "application/merge-patch+json", 400, "must be a JSON object"),
        (b'{"metadata":{"name":"other"}}', "application/merge-patch+json", 400, "does not match the name on the URL"),
        (b"{}", "application/apply-patch+yaml", 422, "fieldManager: Required value"),
        (b"{}", "text/plain", 415, "accepted media types"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(namespace: Namespace, deployment, body, media, code, expected):
    answer = namespace.server.request("PATCH", f"{deployment}/scale", body, headers={"Content-Type": media})
    assert (answer.code, expected in answer.json["message"]) == (code, True), answer.json
    assert namespace.server.request("GET", deployment).json["spec"]["replicas"] == 1


def eviction(name):
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


class Budget:
    """A budget over three running, ready pods, and what its controller would say of it."""

    def __init__(self, namespace: Namespace, **spec: str) -> None:
        self.server, self.namespace = namespace.server, namespace
        self.path = f"/apis/policy/v1/namespaces/{namespace.name}/poddisruptionbudgets"
        declared = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}, **spec}
        self.made = self.server.request("POST", self.path, {"metadata": {"name": "b"}, "spec": declared}).json
        for name in ("a", "b", "c"):
            body = pod(name)
            body["metadata"]["labels"] = {"app": "web"}
            assert self.server.request("POST", namespace.path("pods"), body).code == 201
            self.ready(name, "True")

    def ready(self, name: str, status: str) -> None:
        """Say whether the pod is ready."""
        fields = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}}
        path = self.namespace.path("pods", name, "status")
        assert self.server.request("PATCH", path, json.dumps(fields).encode(), headers=MERGE).code == 200

    def says(self, allowed: int, healthy: int, desired: int = 1) -> None:
        """Say what the controller counted."""
        counted = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
        status = {**counted, "observedGeneration": 1, "expectedPods": 2}
        answer = self.server.request("GET", f"{self.path}/b").json | {"status": status}
        assert self.server.request("PUT", f"{self.path}/b/status", answer).code == 200

    def evict(self, name: str, query: str = "", **options: object) -> Any:
        """Ask for an eviction."""
        body = {**eviction(name), **({"deleteOptions": options} if options else {})}
        return self.server.request("POST", self.namespace.path("pods", name, "eviction") + query, body)

    @property
    def status(self) -> Any:
        """The budget's status."""
        return self.server.request("GET", f"{self.path}/b").json["status"]


def test_eviction_deletes_unless_the_budget_says_no(namespace: Namespace):
    budget = Budget(namespace)
    early = budget.evict("a")
    assert (early.code, early.headers["retry-after"]) == (429, "10")
    assert "is still being processed by the server" in early.json["details"]["causes"][0]["message"]
    budget.says(allowed=1, healthy=1)
    assert budget.evict("b", "?dryRun=All").code == 201
    assert budget.status["disruptionsAllowed"] == 1
    assert budget.evict("b").code == 201
    assert namespace.get("b", "pods").code == 404
    refused = budget.evict("c")
    assert (refused.code, refused.headers["retry-after"]) == (429, "10")
    assert refused.json["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}
    ]
    assert namespace.get("c", "pods").code == 200
    assert set(budget.status["disruptedPods"]) == {"b"}


def test_a_pod_that_is_not_ready_may_go_while_the_budget_is_kept_without_it(namespace: Namespace):
    budget = Budget(namespace)
    budget.says(allowed=0, healthy=1)
    budget.ready("a", "False")
    assert budget.evict("a").code == 201
    assert "disruptedPods" not in budget.status
    budget.says(allowed=0, healthy=0)
    budget.ready("b", "False")
    assert budget.evict("b").code == 429


def test_unhealthy_pods_always_go_where_the_budget_says_so(namespace: Namespace):
    budget = Budget(namespace, unhealthyPodEvictionPolicy="AlwaysAllow")
    budget.says(allowed=0, healthy=0)
    budget.ready("b", "False")
    assert budget.evict("b").code == 201
    assert budget.evict("c").code == 429


def test_an_eviction_meant_for_another_pod_is_a_conflict(namespace: Namespace):
    budget = Budget(namespace)
    budget.says(allowed=1, healthy=2)
    assert budget.evict("a", preconditions={"uid": "another"}).code == 409
    assert budget.status["disruptionsAllowed"] == 1


def test_a_signing_request_says_who_asks_and_is_approved_apart(namespace: Namespace):
    server, base = namespace.server, "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    sample = samples.merged(
        samples.sample(CERTIFICATE_SIGNING_REQUEST),
        {"metadata": {"name": namespace.name}, "spec": {"username": "root"}},
    )
    made = server.request("POST", base, sample)
    assert made.json["spec"]["username"] == "minik8s-admin"
    path = f"{base}/{namespace.name}"
    approved = b'{"status":{"certificate":"eA==","conditions":[{"type":"Approved","status":"True"}]}}'
    answer = server.request("PATCH", f"{path}/approval", approved, headers=MERGE).json
    assert [each["type"] for each in answer["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in answer["status"]
    assert server.request("DELETE", path).code == 200


def test_an_autoscaler_is_one_object_in_two_versions(namespace: Namespace):
    server = namespace.server
    old, new = (f"/apis/autoscaling/{v}/namespaces/{namespace.name}/horizontalpodautoscalers" for v in ("v1", "v2"))
    spec = {
        "maxReplicas": 3,
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "targetCPUUtilizationPercentage": 50,
    }
    assert server.request("POST", old, {"metadata": {"name": "web"}, "spec": spec}).code == 201
    metric = server.request("GET", f"{new}/web").json["spec"]["metrics"][0]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    server.request("PATCH", f"{new}/web?fieldManager=n", b'{"spec":{"maxReplicas":9}}', headers=MERGE)
    seen = server.request("GET", f"{old}/web").json
    assert seen["spec"]["maxReplicas"] == 9
    assert {entry["apiVersion"] for entry in seen["metadata"]["managedFields"]} == {"autoscaling/v1", "autoscaling/v2"}
