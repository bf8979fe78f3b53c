"""Whoever attacks likes to leave no trace: a request that the audit log cannot write is one.

Tried: a body that is 255 levels deep is never logged, and takes the other events of its batch with it; so does a number
beyond 64 bits in YAML, or a kind that is no text. A service account makes and deletes Leases unseen, and Events.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.access.test_audit_log import events
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer, ApiServerProcess

JSON, YAML, MERGE = "application/json", "application/yaml", "application/merge-patch+json"
HIDING: dict[str, tuple[str, bytes]] = {
    "127 levels": (JSON, b'{"metadata": {"name": "a"}, "x": ' + b"[" * 126 + b"]" * 126 + b"}"),
    "255 levels": (JSON, b'{"metadata": {"name": "a"}, "x": ' + b"[" * 254 + b"]" * 254 + b"}"),
    "900 levels": (JSON, b'{"metadata": {"name": "a"}, "x": ' + b"[" * 899 + b"]" * 899 + b"}"),
    "255 levels of YAML": (YAML, b"metadata: {name: a}\nx: " + b"[" * 254 + b"]" * 254),
    "a number beyond 64 bits": (YAML, b"metadata: {name: a}\nx: 99999999999999999999999999"),
    "a kind that is an object": (JSON, b'{"kind": {}, "metadata": {"name": "a"}}'),
    "a kind that is a list": (JSON, b'{"kind": [], "metadata": {"name": "a"}}'),
    "a patch's kind that is an object": (MERGE, b'{"kind": {}}'),
    "a lone surrogate": (JSON, b'{"metadata": {"name": "a", "annotations": {"a": "\\ud800"}}}'),
    "no JSON": (JSON, b"{"),
    "no UTF-8": (JSON, b'{"metadata": {"name": "\xff"}}'),
    "a body too long to be told": (JSON, b'{"metadata": {"name": "a"}}' + b" " * 40_000),
}
TOLD_WITH_BODY = {"127 levels", "a kind that is an object", "a kind that is a list", "a patch's kind that is an object"}


@pytest.mark.parametrize("case", HIDING)
def test_no_body_keeps_its_request_or_others_from_the_log(namespace: Namespace, case: str):
    media, body = HIDING[case]
    server, path, headers = namespace.server, namespace.path("configmaps"), {"Content-Type": media}
    before = [server.request("GET", path) for _ in range(3)]
    method, path = ("PATCH", f"{path}/a") if media == MERGE else ("POST", path)
    hidden = server.request(method, path, body, headers=headers)
    after = [server.request("GET", namespace.path("configmaps")) for _ in range(3)]
    assert hidden.code < 500, hidden.body
    for answer in (*before, hidden, *after):
        (found,) = events(server, answer.headers["audit-id"])
        assert found["responseStatus"]["code"] == answer.code
    (found,) = events(server, hidden.headers["audit-id"])
    assert found["user"]["username"] == "minik8s-admin"
    if case in TOLD_WITH_BODY:
        assert "requestObject" in found
    if case == "a body too long to be told":
        assert found["annotations"]["audit.k8s.io/truncated"] == "true"
    assert "apiserver_audit_error_total{" not in server.request("GET", "/metrics").body.decode()


def test_headers_and_paths_cannot_write_lines_of_their_own(namespace: Namespace):
    headers = {"User-Agent": 'x\t"}{"auditID":"forged"} \x7f\xff'}
    answer = namespace.server.request("GET", namespace.path("configmaps") + "/a%0a%00%22%7b", headers=headers)
    (found,) = events(namespace.server, answer.headers["audit-id"])
    assert found["userAgent"].startswith('x\t"}')
    assert all(json.loads(line)["auditID"] != "forged" for line in namespace.server.audit.read_bytes().splitlines())


def _robot(namespace: Namespace) -> str:
    """Return the token of a service account that may do everything in the namespace."""
    server, name = namespace.server, namespace.name
    server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    binding = {
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": name}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    assert server.request("POST", bindings, binding).code == 201
    return server.kubectl("create", "token", "robot", f"--namespace={name}").stdout.strip()


def _event_of(server: ApiServerProcess, answer: Answer) -> Any:
    assert answer.code < 300, answer.body
    (found,) = events(server, answer.headers["audit-id"])
    return found


def test_leases_and_events_of_service_accounts_are_told(namespace: Namespace):
    server, token = namespace.server, _robot(namespace)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.name}/leases"
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "robot"}}
    involved = {"kind": "Pod", "name": "p", "namespace": namespace.name}
    occurred = {"metadata": {"name": "e"}, "involvedObject": involved}
    asked = [
        ("POST", leases, lease),
        ("PUT", f"{leases}/leader", lease),
        ("GET", f"{leases}/leader", None),
        ("DELETE", f"{leases}/leader", None),
        ("POST", namespace.path("events"), occurred),
        ("DELETE", namespace.path("events"), None),
    ]
    for method, path, body in asked:
        found = _event_of(server, server.request(method, path, body, token=token))
        assert found["user"]["username"] == f"system:serviceaccount:{namespace.name}:robot"


def test_what_was_refused_before_anybody_was_known_is_told(server: ApiServerProcess):
    for path in ("/api/v1/secrets", "/nothing", "/api/v1/namespaces/x/pods/..%2f"):
        answer = server.request("GET", path, anonymous=True)
        (found,) = events(server, answer.headers["audit-id"])
        assert (found["responseStatus"]["code"], found["user"]) == (401, {})
