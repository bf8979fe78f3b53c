"""Admission webhooks: a real HTTPS server is asked about writes, and its word counts as in Kubernetes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer
from tests.support.webhook import WebhookServer, machine_address, patch, send

GROUP = "/apis/admissionregistration.k8s.io/v1"
MERGE = {"Content-Type": "application/merge-patch+json"}
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}


class Hooks:
    """A webhook server, and configurations that concern one namespace alone."""

    def __init__(self, namespace: Namespace, server: WebhookServer) -> None:
        self.namespace, self.server = namespace, server
        self._made: list[str] = []

    def hook(self, path: str, **fields: Any) -> dict[str, Any]:
        """A webhook at a path; it is named after it."""
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace.name}}
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": {"url": self.server.url(path), "caBundle": self.server.ca_bundle},
            "rules": [EVERYTHING],
            "namespaceSelector": selector,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }

    def make(self, kind: str, *hooks: dict[str, Any], name: str = "") -> Answer:
        """Create a configuration, ``validating`` or ``mutating``."""
        path = f"{GROUP}/{kind}webhookconfigurations"
        called = f"{self.namespace.name}{name}"
        answer = self.namespace.server.request("POST", path, {"metadata": {"name": called}, "webhooks": list(hooks)})
        if answer.code == 201:
            self._made.append(f"{path}/{called}")
        return answer

    def validating(self, path: str, respond: Any, **fields: Any) -> None:
        """Make one validating webhook."""
        self.server.answers[path] = respond
        assert self.make("validating", self.hook(path, **fields)).code == 201

    def mutating(self, path: str, respond: Any, **fields: Any) -> None:
        """Make one mutating webhook."""
        self.server.answers[path] = respond
        assert self.make("mutating", self.hook(path, **fields)).code == 201

    def remove(self) -> None:
        """Delete what was made."""
        for path in self._made:
            assert self.namespace.server.request("DELETE", path).code in {200, 404}


@pytest.fixture
def hooks(namespace: Namespace, tmp_path: Path) -> Iterator[Hooks]:
    """Webhooks for the namespace."""
    with WebhookServer(tmp_path) as server:
        found = Hooks(namespace, server)
        yield found
        found.remove()


def allow(_request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


def deny(_request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": False, "status": {"message": "not on a Friday", "code": 403, "reason": "Forbidden"}}


def add_label(key: str, value: str = "yes") -> Any:
    def respond(request: dict[str, Any]) -> dict[str, Any]:
        labels = {**(request["object"]["metadata"].get("labels") or {}), key: value}
        return patch({"op": "add", "path": "/metadata/labels", "value": labels})

    return respond


def metrics(namespace: Namespace) -> str:
    return namespace.server.request("GET", "/metrics").body.decode()


def test_a_webhook_refuses_in_its_own_words(hooks: Hooks) -> None:
    hooks.validating("/deny", deny)
    answer = hooks.namespace.create("a")
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == 'admission webhook "deny.example.com" denied the request: not on a Friday'
    assert hooks.namespace.get("a").code == 404
    shown = hooks.namespace.server.kubectl("create", "configmap", "a", "-n", hooks.namespace.name, check=False).stderr
    assert 'admission webhook "deny.example.com" denied the request: not on a Friday' in shown
    counted = 'apiserver_admission_webhook_rejection_count{error_type="no_error",name="deny.example.com"'
    assert counted in metrics(hooks.namespace)


def test_a_webhook_is_told_what_a_review_holds(hooks: Hooks) -> None:
    hooks.validating("/allow", allow)
    assert hooks.namespace.create("a", data={"k": "v"}).code == 201
    assert hooks.namespace.server.request("DELETE", hooks.namespace.path("configmaps", "a")).code == 200
    created, deleted = (review["request"] for review in hooks.server.reviews)
    assert hooks.server.reviews[0]["apiVersion"] == "admission.k8s.io/v1"
    assert created["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert created["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (created["operation"], created["name"], created["namespace"]) == ("CREATE", "a", hooks.namespace.name)
    assert created["userInfo"]["username"] == "minik8s-admin"
    assert created["object"]["data"] == {"k": "v"}
    assert created["oldObject"] is None
    assert created["options"]["kind"] == "CreateOptions"
    assert created["dryRun"] is False
    assert (deleted["operation"], deleted["object"]) == ("DELETE", None)
    assert deleted["oldObject"]["data"] == {"k": "v"}
    assert hooks.server.paths[0] == "/allow?timeout=10s"
    assert not {"Authorization", "Cookie"} & hooks.server.headers[0].keys()


def test_a_mutating_webhook_changes_the_object(hooks: Hooks) -> None:
    hooks.mutating("/label", add_label("injected"))
    path = hooks.namespace.path("configmaps") + "?fieldManager=me"
    made = hooks.namespace.server.request("POST", path, {"metadata": {"name": "a"}, "data": {"k": "v"}}).json
    assert made["metadata"]["labels"] == {"injected": "yes"}
    assert [each["manager"] for each in made["metadata"]["managedFields"]] == ["me"]
    assert hooks.namespace.get("a").json["metadata"]["labels"] == {"injected": "yes"}
    assert all("f:injected" not in json.dumps(each) for each in made["metadata"]["managedFields"])


def test_what_a_webhook_adds_is_defaulted_and_validated_anew(hooks: Hooks) -> None:
    sidecar = {"name": "proxy", "image": "busybox"}
    hooks.mutating("/inject", lambda _: patch({"op": "add", "path": "/spec/containers/-", "value": sidecar}))
    path = hooks.namespace.path("pods")
    made = hooks.namespace.server.request("POST", path, pod("web")).json
    _, injected = made["spec"]["containers"]
    assert injected["terminationMessagePath"] == "/dev/termination-log"
    # the ServiceAccount plugin has looked once more
    assert injected["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    volumes = [each["name"] for each in made["spec"]["volumes"]]
    assert len(volumes) == len({*volumes}) == 1
    sidecar["name"] = "Not A Name"
    answer = hooks.namespace.server.request("POST", path, pod("other"))
    assert answer.code == 422
    assert "spec.containers[1].name" in answer.json["message"]


def test_webhooks_are_asked_in_the_order_of_their_configurations_and_places(hooks: Hooks) -> None:
    def append(letter: str) -> Any:
        def respond(request: dict[str, Any]) -> dict[str, Any]:
            data = request["object"].get("data") or {}
            return patch({"op": "add", "path": "/data", "value": {"order": data.get("order", "") + letter}})

        return respond

    for letter in "abc":
        hooks.server.answers[f"/{letter}"] = append(letter)
    assert hooks.make("mutating", hooks.hook("/c"), name="-2").code == 201
    assert hooks.make("mutating", hooks.hook("/b"), hooks.hook("/a"), name="-1").code == 201
    assert hooks.namespace.create("x").json["data"] == {"order": "bac"}


def test_a_webhook_is_asked_again_when_a_later_one_changes_the_object(hooks: Hooks) -> None:
    hooks.server.answers |= {"/first": allow, "/second": add_label("a"), "/never": allow}
    again = {"reinvocationPolicy": "IfNeeded"}
    made = hooks.make("mutating", hooks.hook("/first", **again), hooks.hook("/never"), hooks.hook("/second", **again))
    assert made.code == 201
    hooks.namespace.create("x")
    asked = [path.partition("?")[0] for path in hooks.server.paths]
    assert asked == ["/first", "/never", "/second", "/first"]
    assert hooks.server.reviews[3]["request"]["object"]["metadata"]["labels"] == {"a": "yes"}


def test_a_dry_run_is_told_to_webhooks(hooks: Hooks) -> None:
    hooks.mutating("/label", add_label("injected"))
    path = hooks.namespace.path("configmaps") + "?dryRun=All"
    made = hooks.namespace.server.request("POST", path, {"metadata": {"name": "a"}}).json
    assert made["metadata"]["labels"] == {"injected": "yes"}
    assert hooks.server.reviews[0]["request"]["dryRun"] is True
    assert hooks.server.reviews[0]["request"]["options"]["dryRun"] == ["All"]
    answer = hooks.make("validating", hooks.hook("/some", sideEffects="Some"))
    assert 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"' in answer.json["message"]


def test_warnings_and_annotations_reach_client_and_audit_log(hooks: Hooks) -> None:
    fields = {"allowed": True, "warnings": ["this is deprecated"], "auditAnnotations": {"why": "because"}}
    hooks.validating("/warn", lambda _: dict(fields))
    answer = hooks.namespace.create("a")
    assert answer.headers["warning"] == '299 - "this is deprecated"'
    wanted = '"warn.example.com/why":"because"'
    deadline = time.monotonic() + 60
    while wanted not in hooks.namespace.server.audit.read_text():
        assert time.monotonic() < deadline, "the audit log lacks the annotation"
        time.sleep(0.05)


def test_a_webhook_that_fails_is_passed_over_or_not(hooks: Hooks) -> None:
    def broken(handler: BaseHTTPRequestHandler, _review: dict[str, Any]) -> None:
        send(handler, b"secret details of the failure", 500)

    hooks.server.raw["/broken"] = broken
    hooks.make("validating", hooks.hook("/broken"))
    answer = hooks.namespace.create("a")
    assert answer.code == 500
    url = hooks.server.url("/broken")
    why = f'failed to call webhook: Post "{url}?timeout=10s": the server answered 500 Internal Server Error'
    assert answer.json["message"] == f'Internal error occurred: failed calling webhook "broken.example.com": {why}'
    assert "secret details" not in hooks.namespace.server.log.read_text()
    path = f"{GROUP}/validatingwebhookconfigurations/{hooks.namespace.name}"
    ignored = {"webhooks": [hooks.hook("/broken", failurePolicy="Ignore")]}
    assert hooks.namespace.server.request("PATCH", path, ignored, headers=MERGE).code == 200
    assert hooks.namespace.create("a").code == 201
    opened = 'apiserver_admission_webhook_fail_open_count{name="broken.example.com",type="validating"}'
    assert opened in metrics(hooks.namespace)


def test_a_webhook_that_hangs_ends_with_its_deadline(hooks: Hooks) -> None:
    gate = threading.Event()

    def drip(handler: BaseHTTPRequestHandler, _review: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not gate.wait(0.1):
            handler.wfile.write(b"X: y\r\n")

    hooks.server.raw["/drip"] = drip
    hooks.make("validating", hooks.hook("/drip", timeoutSeconds=1))
    try:
        answer = hooks.namespace.create("a")
    finally:
        gate.set()
    assert answer.json["message"].endswith('/drip?timeout=1s": context deadline exceeded')
    assert hooks.namespace.server.request("GET", "/readyz").code == 200


def _raw(body: bytes, code: int = 200, **headers: str) -> Any:
    return lambda handler, _review: send(handler, body, code, **headers)


def hang_up(connection: socket.socket) -> None:
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("respond", "message"),
    [
        pytest.param(_raw(b"<html>"), "the answer is not valid JSON", id="garbage"),
        pytest.param(_raw(b"[]"), "the answer is not an AdmissionReview object", id="list"),
        pytest.param(_raw(b"{}"), "webhook response was absent", id="empty"),
        pytest.param(_raw(b'{"response": {"uid": "x", "allowed": true}}'), "expected response.uid=", id="uid"),
        pytest.param(_raw(b"x" * (10 << 20)), "the answer is longer than 3145728 bytes", id="10-MB"),
        pytest.param(_raw(b"[" * 100_000), "received invalid webhook response", id="deep"),
        pytest.param(_raw(b"", 302, Location="http://127.0.0.1/"), "redirects are not followed", id="redirect"),
        pytest.param(lambda handler, _: handler.wfile.write(b"SSH-2.0\r\n\r\n"), "malformed HTTP", id="protocol"),
        pytest.param(lambda handler, _: hang_up(handler.connection), "EOF", id="hangs-up"),
    ],
)
def test_a_wrong_answer_is_no_permission(hooks: Hooks, respond: Any, message: str) -> None:
    hooks.server.raw["/wrong"] = respond
    hooks.make("validating", hooks.hook("/wrong"))
    answer = hooks.namespace.create("a")
    assert answer.code == 500
    assert 'failed calling webhook "wrong.example.com"' in answer.json["message"]
    assert message in answer.json["message"]
    assert hooks.namespace.get("a").code == 404


def test_a_webhook_of_another_authority_is_not_trusted(hooks: Hooks, tmp_path: Path) -> None:
    hooks.server.answers["/allow"] = allow
    with WebhookServer(tmp_path / "other") as other:
        config = {"url": hooks.server.url("/allow"), "caBundle": other.ca_bundle}
        hooks.make("validating", hooks.hook("/allow", clientConfig=config))
        answer = hooks.namespace.create("a")
    assert "tls: failed to verify certificate: x509: " in answer.json["message"]
    assert hooks.server.reviews == []


def test_connections_are_kept(hooks: Hooks) -> None:
    hooks.validating("/allow", allow)
    for number in range(10):
        assert hooks.namespace.create(f"a{number}").code == 201
    assert len(hooks.server.reviews) == 10
    assert hooks.server.connections == 1


def test_a_service_is_reached_by_its_endpoints(namespace: Namespace, tmp_path: Path) -> None:
    with WebhookServer(tmp_path, names=(f"hook.{namespace.name}.svc",)) as server:
        hooks = Hooks(namespace, server)
        server.answers["/deny"] = deny
        service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 8443, "name": "https"}]}}
        assert namespace.server.request("POST", namespace.path("services"), service).code == 201
        config = {"service": {"namespace": namespace.name, "name": "hook", "port": 8443, "path": "/deny"}}
        config["caBundle"] = server.ca_bundle  # type: ignore[assignment]
        only = {"rules": [{**EVERYTHING, "resources": ["configmaps"]}]}
        assert hooks.make("validating", hooks.hook("/deny", clientConfig=config, **only)).code == 201
        try:
            assert 'no endpoints available for service "hook"' in namespace.create("a").json["message"]
            endpoints = {
                "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
                "addressType": "IPv4",
                "ports": [{"name": "https", "port": server.port}],
                "endpoints": [{"addresses": [machine_address()]}],
            }
            path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace.name}/endpointslices"
            assert namespace.server.request("POST", path, endpoints).code == 201
            assert "not on a Friday" in namespace.create("a").json["message"]
        finally:
            hooks.remove()


def test_configurations_are_shown_counted_and_defaulted(hooks: Hooks) -> None:
    hooks.validating("/allow", allow)
    shown = hooks.namespace.server.kubectl("get", "validatingwebhookconfiguration", hooks.namespace.name).stdout
    assert shown.split()[:5] == ["NAME", "WEBHOOKS", "AGE", hooks.namespace.name, "1"]
    path = f"{GROUP}/validatingwebhookconfigurations/{hooks.namespace.name}"
    found = hooks.namespace.server.request("GET", path).json
    hook = found["webhooks"][0]
    assert (hook["failurePolicy"], hook["matchPolicy"], hook["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert found["metadata"]["generation"] == 1
    changed = {"webhooks": [hooks.hook("/allow", timeoutSeconds=3)]}
    answer = hooks.namespace.server.request("PATCH", path, changed, headers=MERGE).json
    assert answer["metadata"]["generation"] == 2


def test_conditions_keep_writes_from_a_webhook(hooks: Hooks) -> None:
    def condition(name: str, expression: str) -> dict[str, str]:
        return {"name": name, "expression": expression}

    conditions = [
        condition("not-mine", "request.userInfo.username != 'minik8s-admin' || object.metadata.name.startsWith('x')"),
        condition("may-delete", "authorizer.group('').resource('nodes').check('delete').allowed()"),
    ]
    hooks.server.answers["/deny"] = deny
    rules = [{**EVERYTHING, "resources": ["configmaps"]}]
    assert hooks.make("validating", hooks.hook("/deny", matchConditions=conditions, rules=rules)).code == 201
    assert hooks.namespace.create("a").code == 201
    assert "denied the request" in hooks.namespace.create("x").json["message"]
    assert len(hooks.server.reviews) == 1


def test_a_condition_that_cannot_be_evaluated_counts_as_the_failure_policy_says(hooks: Hooks) -> None:
    hooks.server.answers["/deny"] = deny
    missing = [{"name": "size", "expression": "int(object.data.size) > 3"}]
    rules = [{**EVERYTHING, "resources": ["configmaps"]}]
    assert hooks.make("validating", hooks.hook("/deny", matchConditions=missing, rules=rules)).code == 201
    answer = hooks.namespace.create("a")
    text = "expression 'int(object.data.size) > 3' resulted in error: no such key: data"
    assert (answer.code, answer.json["message"]) == (403, f'configmaps "a" is forbidden: {text}')
    hooks.remove()
    ignoring = hooks.hook("/deny", matchConditions=missing, rules=rules, failurePolicy="Ignore")
    assert hooks.make("validating", ignoring).code == 201
    assert hooks.namespace.create("a").code == 201
    assert hooks.server.reviews == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("object.", "compilation failed: ERROR: <input>:1:8: Syntax error"),
        ("nothing == 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing'"),
        ("'text'", "must evaluate to bool"),
        ("", "Required value"),
    ],
)
def test_a_condition_is_an_expression_that_is_true_or_false(hooks: Hooks, expression: str, message: str) -> None:
    answer = hooks.make("validating", hooks.hook("/deny", matchConditions=[{"name": "a", "expression": expression}]))
    assert answer.code == 422
    assert "webhooks[0].matchConditions[0].expression" in answer.json["message"]
    assert message in answer.json["message"]
