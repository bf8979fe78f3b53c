"""What a webhook refuses is refused on every way in, and what it patches changes no identity.

The attacks: a webhook that refuses everything is gone around by a subresource, another kind of patch, a dry run, an
apply that creates, or a collection; a webhook (or who writes one) takes an object to another name or namespace, gives
it another uid, or changes a spec through a status; somebody without rights has the server call a host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace, pod
from tests.integration.apiserver.extensions.test_webhooks import EVERYTHING, GROUP, Hooks, add_label, allow, deny
from tests.support.apiserver import ApiServerProcess
from tests.support.webhook import WebhookServer, patch
from tests.unit.api.samples import sample

JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
LABEL = {"metadata": {"labels": {"a": "b"}}}
SET_LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
BINDING = {"metadata": {"name": "idle"}, "target": {"kind": "Node", "name": "n"}}
EPHEMERAL = {"spec": {"ephemeralContainers": [{"name": "e", "image": "busybox"}]}}
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
    },
}
WAYS: dict[str, tuple[str, str, Any, dict[str, str], str]] = {
    "create": ("POST", "configmaps", CONFIG_MAP, {}, "CREATE"),
    "create with a generated name": ("POST", "configmaps", {"metadata": {"generateName": "n-"}}, {}, "CREATE"),
    "create in a dry run": ("POST", "configmaps?dryRun=All", CONFIG_MAP, {}, "CREATE"),
    "update": ("PUT", "configmaps/there", {"metadata": {"name": "there", "labels": {"a": "b"}}}, {}, "UPDATE"),
    "update that changes nothing": ("PATCH", "configmaps/there", {}, MERGE_PATCH, "UPDATE"),
    "JSON patch": ("PATCH", "configmaps/there", SET_LABELS, JSON_PATCH, "UPDATE"),
    "merge patch": ("PATCH", "configmaps/there", LABEL, MERGE_PATCH, "UPDATE"),
    "strategic merge patch": ("PATCH", "configmaps/there", LABEL, STRATEGIC, "UPDATE"),
    "apply": (
        "PATCH", "configmaps/there?fieldManager=me", {**CONFIG_MAP, "metadata": {"name": "there"}}, APPLY, "UPDATE",
    ),
    "apply that creates": ("PATCH", "configmaps/new?fieldManager=me", CONFIG_MAP, APPLY, "CREATE"),
    "delete": ("DELETE", "configmaps/there", None, {}, "DELETE"),
    "delete in a dry run": ("DELETE", "configmaps/there?dryRun=All", None, {}, "DELETE"),
    "delete of a collection": ("DELETE", "configmaps", None, {}, "DELETE"),
    "status": ("PATCH", "pods/idle/status", {"status": {"phase": "Running"}}, MERGE_PATCH, "UPDATE"),
    "binding": ("POST", "pods/idle/binding", BINDING, {}, "CREATE"),
    "eviction": ("POST", "pods/idle/eviction", {"metadata": {"name": "idle"}}, {}, "CREATE"),
    "ephemeral containers": ("PATCH", "pods/idle/ephemeralcontainers", EPHEMERAL, STRATEGIC, "UPDATE"),
    "resize": ("PATCH", "pods/idle/resize", {}, MERGE_PATCH, "UPDATE"),
    "exec": ("POST", "pods/idle/exec?command=id&stdout=true", None, {}, "CONNECT"),
    "attach": ("POST", "pods/idle/attach?stdout=true", None, {}, "CONNECT"),
    "port-forward": ("POST", "pods/idle/portforward", None, {}, "CONNECT"),
    "proxy": ("GET", "pods/idle:80/proxy/x", None, {}, "CONNECT"),
    "token": ("POST", "serviceaccounts/robot/token", {"spec": {}}, {}, "CREATE"),
    "scale": ("PUT", "/apis/apps/v1/namespaces/{}/deployments/web/scale", SCALE, {}, "UPDATE"),
    "patch of a scale": (
        "PATCH", "/apis/apps/v1/namespaces/{}/deployments/web/scale", {"spec": {"replicas": 2}}, MERGE_PATCH, "UPDATE",
    ),
    "apply of a scale": (
        "PATCH", "/apis/apps/v1/namespaces/{}/deployments/web/scale?fieldManager=me&force=true", SCALE, APPLY, "UPDATE",
    ),
}  # fmt: skip


@pytest.fixture
def hooks(namespace: Namespace, tmp_path: Path) -> Iterator[Hooks]:
    """Webhooks for the namespace, in which there are a ConfigMap, a pod, an account and a Deployment."""
    for plural, obj in (
        ("configmaps", {"metadata": {"name": "there"}}),
        ("pods", pod("idle")),
        ("serviceaccounts", {"metadata": {"name": "robot"}}),
    ):
        assert namespace.server.request("POST", namespace.path(plural), obj).code == 201
    path = f"/apis/apps/v1/namespaces/{namespace.name}/deployments"
    assert namespace.server.request("POST", path, DEPLOYMENT).code == 201
    with WebhookServer(tmp_path) as server:
        found = Hooks(namespace, server)
        yield found
        found.remove()


def place(namespace: Namespace, path: str) -> str:
    """Return the path of a way in."""
    return path.format(namespace.name) if path.startswith("/") else namespace.path(path)


@pytest.mark.parametrize("kind", ["validating", "mutating"])
@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_holds_on_every_way(hooks: Hooks, way: str, kind: str) -> None:
    hooks.server.answers["/deny"] = deny
    assert hooks.make(kind, hooks.hook("/deny")).code == 201
    method, path, body, headers, operation = WAYS[way]
    answer = hooks.namespace.server.request(method, place(hooks.namespace, path), body, headers=headers)
    assert answer.code == 403, answer.body
    assert answer.json["message"] == 'admission webhook "deny.example.com" denied the request: not on a Friday'
    assert hooks.server.reviews[0]["request"]["operation"] == operation
    assert hooks.namespace.get("new").code == 404
    assert "labels" not in hooks.namespace.get("there").json["metadata"]
    assert "deletionTimestamp" not in hooks.namespace.get("idle", "pods").json["metadata"]


@pytest.fixture
def refused(hooks: Hooks) -> Iterator[Hooks]:
    """Hooks in whose namespace a policy refuses everything."""
    server, name = hooks.namespace.server, hooks.namespace.name
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    no = [{"expression": "false", "message": "never", "reason": "Forbidden"}]
    policy = {"matchConstraints": {"resourceRules": [EVERYTHING]}, "validations": no}
    limits = {"namespaceSelector": selector}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": limits}
    paths = [f"{GROUP}/validatingadmission{plural}" for plural in ("policies", "policybindings")]
    for path, spec in zip(paths, (policy, binding), strict=True):
        assert server.request("POST", path, {"metadata": {"name": name}, "spec": spec}).code == 201
    yield hooks
    for path in paths:
        assert server.request("DELETE", f"{path}/{name}").code == 200


@pytest.mark.parametrize("way", WAYS)
def test_a_policy_holds_on_every_way(refused: Hooks, way: str) -> None:
    method, path, body, headers, _ = WAYS[way]
    space = refused.namespace
    answer = space.server.request(method, place(space, path), body, headers=headers)
    assert answer.code == 403, answer.body
    text = f"ValidatingAdmissionPolicy '{space.name}' with binding '{space.name}' denied request: never"
    assert answer.json["message"].endswith(text)
    assert space.get("new").code == 404
    assert "labels" not in space.get("there").json["metadata"]


def test_a_plan_is_shown_to_webhooks_as_a_dry_run(hooks: Hooks) -> None:
    hooks.validating("/deny", deny)
    objects = [{**CONFIG_MAP, "metadata": {"name": "new", "namespace": hooks.namespace.name}}]
    gone = [{**CONFIG_MAP, "metadata": {"name": "there", "namespace": hooks.namespace.name}}]
    plan = {"spec": {"objects": objects, "deleted": gone}}
    rows = hooks.namespace.server.request("POST", "/apis/minik8s.io/v1/plans", plan).json["status"]["objects"]
    text = 'admission webhook "deny.example.com" denied the request: not on a Friday'
    assert [(row["action"], row["message"]) for row in rows] == [("refuse", text), ("refuse", text)]
    assert all(review["request"]["dryRun"] for review in hooks.server.reviews)


@pytest.mark.parametrize(
    ("path", "value"), [("/metadata/name", "other"), ("/metadata/namespace", "kube-system"), ("/metadata/name", "")]
)
@pytest.mark.parametrize("method", ["PATCH", "POST"])
def test_a_patch_moves_no_object(hooks: Hooks, path: str, value: str, method: str) -> None:
    hooks.mutating("/move", lambda _: patch({"op": "replace", "path": path, "value": value}))
    if method == "PATCH":
        answer = hooks.namespace.server.request(
            "PATCH", hooks.namespace.path("configmaps", "there"), LABEL, headers=MERGE_PATCH
        )
    else:
        answer = hooks.namespace.create("new")
    assert answer.code == 500
    field = path[1:].replace("/", ".")
    assert f'admission webhook "move.example.com" attempted to change {field}' in answer.json["message"]
    assert hooks.namespace.get("other").code == 404
    assert hooks.namespace.server.request("GET", "/api/v1/namespaces/kube-system/configmaps/new").code == 404


OWNED = {
    "uid": "11111111-2222-4333-8444-555555555555",
    "creationTimestamp": "2001-01-01T00:00:00Z",
    "deletionTimestamp": "2001-01-01T00:00:00Z",
    "generation": 77,
    "resourceVersion": "5",
    "managedFields": [],
}


@pytest.mark.parametrize("field", OWNED)
def test_what_the_server_owns_stays_its_own(hooks: Hooks, field: str) -> None:
    def forge(request: dict[str, Any]) -> dict[str, Any]:
        return patch({"op": "add", "path": f"/metadata/{field}", "value": OWNED[field]}, *label(request))

    def label(request: dict[str, Any]) -> list[dict[str, Any]]:
        labels = {**(request["object"]["metadata"].get("labels") or {}), "seen": "yes"}
        return [{"op": "add", "path": "/metadata/labels", "value": labels}]

    before = hooks.namespace.get("idle", "pods").json["metadata"]
    hooks.mutating("/forge", forge)
    path = hooks.namespace.path("pods", "idle")
    answer = hooks.namespace.server.request("PATCH", path, LABEL, headers=MERGE_PATCH)
    assert answer.code == 200, answer.body
    found = hooks.namespace.get("idle", "pods").json["metadata"]
    assert found["labels"] == {"a": "b", "seen": "yes"}
    if field == "managedFields":
        assert found[field]
    elif field != "resourceVersion":
        assert found.get(field) == before.get(field)
    made = hooks.namespace.server.request("POST", hooks.namespace.path("pods"), pod("new")).json["metadata"]
    assert made["labels"] == {"seen": "yes"}
    assert made.get(field) != OWNED[field]


def test_a_status_changes_no_spec_even_by_a_webhook(hooks: Hooks) -> None:
    hooks.mutating("/spec", lambda _: patch({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 5}))
    path = hooks.namespace.path("pods", "idle") + "/status"
    running = {"status": {"phase": "Running"}}
    assert hooks.namespace.server.request("PATCH", path, running, headers=MERGE_PATCH).code == 200
    found = hooks.namespace.get("idle", "pods").json
    assert found["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in found["spec"]


def test_a_webhook_forges_nobodys_signing_request(hooks: Hooks, server: ApiServerProcess) -> None:
    forged = {"op": "add", "path": "/spec/username", "value": "somebody-else"}
    hooks.server.answers["/forge"] = lambda _: patch(forged)
    rules = [{**EVERYTHING, "resources": ["certificatesigningrequests"], "apiGroups": ["certificates.k8s.io"]}]
    assert hooks.make("mutating", hooks.hook("/forge", rules=rules)).code == 201
    body = {**sample(CERTIFICATE_SIGNING_REQUEST), "metadata": {"name": hooks.namespace.name}}
    made = server.request("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", body)
    assert made.code == 201, made.body
    assert hooks.server.reviews
    assert made.json["spec"]["username"] == "minik8s-admin"


def test_a_patch_passes_no_plugin_by(hooks: Hooks) -> None:
    """Pod Security looks at what is stored, whoever put it in."""
    space = f"/api/v1/namespaces/{hooks.namespace.name}"
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    assert hooks.namespace.server.request("PATCH", space, strict, headers=MERGE_PATCH).code == 200
    hooks.mutating("/host", lambda _: patch({"op": "add", "path": "/spec/hostPID", "value": True}))
    answer = hooks.namespace.server.request("POST", hooks.namespace.path("pods"), pod("new"))
    assert answer.code == 403
    assert 'violates PodSecurity "baseline:latest": host namespaces' in answer.json["message"]


def test_a_broken_webhook_can_always_be_taken_away(hooks: Hooks) -> None:
    nowhere = {"url": "https://127.0.0.1:1/"}
    assert hooks.make("validating", hooks.hook("/nowhere", clientConfig=nowhere)).code == 201
    assert hooks.make("mutating", hooks.hook("/nowhere", clientConfig=nowhere)).code == 201
    answer = hooks.namespace.create("new")
    assert 'failed calling webhook "nowhere.example.com"' in answer.json["message"]
    assert "dial tcp 127.0.0.1:1: connect: connection refused" in answer.json["message"]
    hooks.remove()
    assert hooks.namespace.create("new").code == 201


def test_who_may_not_write_has_nobody_called(hooks: Hooks) -> None:
    hooks.validating("/allow", allow)
    nobody = hooks.namespace.server.identity(f"nobody-{hooks.namespace.name}")
    for method, path, body, headers, _ in WAYS.values():
        answer = hooks.namespace.server.request(
            method, place(hooks.namespace, path), body, headers=headers, client=nobody
        )
        assert answer.code == 403
    assert hooks.server.reviews == []


def test_an_editor_of_a_namespace_makes_the_server_call_no_host(hooks: Hooks) -> None:
    editor = editor_of(hooks.namespace)
    for kind in ("mutating", "validating"):
        path = f"{GROUP}/{kind}webhookconfigurations"
        body = {"metadata": {"name": "evil"}, "webhooks": [hooks.hook("/allow")]}
        for query in ("", "?dryRun=All"):
            assert hooks.namespace.server.request("POST", path + query, body, client=editor).code == 403
    assert hooks.server.reviews == []


def test_no_credential_goes_to_a_webhook(hooks: Hooks) -> None:
    hooks.mutating("/label", add_label("seen"))
    path = hooks.namespace.path("serviceaccounts", "robot") + "/token"
    token = hooks.namespace.server.request("POST", path, {"spec": {}}).json["status"]["token"]
    assert (
        hooks.namespace.server.request("POST", hooks.namespace.path("configmaps"), CONFIG_MAP, token=token).code == 403
    )
    review = {"spec": {"token": token}}
    assert hooks.namespace.server.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).code == 201
    text = json.dumps([hooks.server.reviews, hooks.server.headers])
    assert token not in text
    assert "Authorization" not in text
