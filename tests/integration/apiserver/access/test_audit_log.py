"""The audit log of a running server: every request is there with its id, and no secret's value."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess


def events(server: ApiServerProcess, audit_id: str) -> list[Any]:
    """Return the events of one request; waits for the writer."""
    deadline = time.monotonic() + 60
    found: list[Any] = []
    while not found and time.monotonic() < deadline:
        lines = server.audit.read_bytes().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if audit_id.encode() in line and line.endswith(b"\n")]
        time.sleep(0.02)
    return found


def test_a_write_is_told_with_its_body(server: ApiServerProcess, namespace: Namespace):
    answer = server.request("POST", namespace.path("pods"), pod("web"))
    (found,) = events(server, answer.headers["audit-id"])
    assert (found["verb"], found["responseStatus"]["code"], found["level"]) == ("create", 201, "Request")
    assert found["requestObject"]["spec"]["containers"][0]["name"] == "c"
    assert found["user"]["username"] == "minik8s-admin"
    assert found["annotations"]["authorization.k8s.io/decision"] == "allow"


def test_a_refusal_is_told(server: ApiServerProcess, namespace: Namespace):
    answer = server.request("GET", namespace.path("pods"), headers={"Impersonate-User": "nobody"})
    (found,) = events(server, answer.headers["audit-id"])
    assert (found["responseStatus"]["code"], found["impersonatedUser"]["username"]) == (403, "nobody")
    assert found["annotations"]["authorization.k8s.io/decision"] == "forbid"
    answer = server.request("GET", namespace.path("pods"), token="x")
    (found,) = events(server, answer.headers["audit-id"])
    assert (found["responseStatus"]["code"], found["user"]) == (401, {})


def test_no_secret_and_no_token_is_in_the_log(server: ApiServerProcess, namespace: Namespace):
    value = base64.b64encode(b"canary-in-audit").decode()
    body = {"metadata": {"name": "s"}, "data": {"a": value}}
    assert server.request("POST", namespace.path("secrets"), body).code == 201
    server.request("POST", namespace.path("configmaps"), {"kind": "Secret", **body})
    server.request("POST", namespace.path("secrets"), {**body, "data": {"a": "canary-in-audit"}})
    patch = {"stringData": {"b": "canary-in-audit"}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert server.request("PATCH", namespace.path("secrets", "s"), patch, headers=merge).code == 200
    server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    token = server.kubectl("create", "token", "robot", f"--namespace={namespace.name}").stdout.strip()
    server.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    last = server.request("GET", namespace.path("pods"), token=token)
    assert events(server, last.headers["audit-id"])
    written = server.audit.read_text()
    assert "canary-in-audit" not in written
    assert value not in written
    assert token not in written
    assert server.audit.stat().st_mode & 0o777 == 0o600


def test_a_pod_below_the_audited_level_is_noted(server: ApiServerProcess, namespace: Namespace):
    server.kubectl("label", "ns", namespace.name, "pod-security.kubernetes.io/audit=restricted")
    answer = server.request("POST", namespace.path("pods"), pod("web"))
    (found,) = events(server, answer.headers["audit-id"])
    assert "would violate PodSecurity" in found["annotations"]["pod-security.kubernetes.io/audit-violations"]
