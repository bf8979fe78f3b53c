"""A node's identity: it gets at what its pods need and at nothing of other nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.pki import Certificate


class Node:
    """A node's certificate and the two pods of a namespace: ``mine`` on it, ``other`` on another node."""

    def __init__(self, namespace: Namespace) -> None:
        self.server, self.namespace = namespace.server, namespace
        self.name, self.stranger = f"n1-{namespace.name}", f"n2-{namespace.name}"
        self.certificate: Certificate = self.server.identity(f"system:node:{self.name}", "system:nodes")
        for name, node in (("mine", self.name), ("other", self.stranger)):
            self.server.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            self.server.request("POST", namespace.path("secrets"), {"metadata": {"name": name}})
            self.server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": name}})
            volumes = [{"name": "s", "secret": {"secretName": name}}]
            body = pod(name, nodeName=node, volumes=volumes, serviceAccountName=name)
            assert self.server.request("POST", namespace.path("pods"), body).code == 201

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request as the node."""
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.server.request(method, path, body, client=self.certificate, headers=sent)

    def code(self, method: str, path: str, body: Any = None) -> int:
        """Return the status of a request as the node."""
        return self(method, path, body).code


@pytest.fixture
def node(namespace: Namespace) -> Node:
    return Node(namespace)


def test_a_node_reads_what_its_pods_name(node: Node):
    path = node.namespace.path
    for plural in ("pods", "secrets", "serviceaccounts"):
        assert node.code("GET", path(plural, "mine")) == 200
        assert node.code("GET", path(plural, "other")) == 403
        assert node.code("GET", path(plural)) == 403
    assert node.code("GET", f"{path('secrets')}?fieldSelector=metadata.name=mine") == 200
    assert node.code("GET", f"{path('secrets')}?fieldSelector=metadata.name=other") == 403


def test_lists_of_pods_and_nodes_must_select_its_own(node: Node):
    listed = node("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}")
    assert [each["metadata"]["name"] for each in listed.json["items"]] == ["mine"]
    assert node.code("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node.stranger}") == 403
    assert node.code("GET", f"/api/v1/pods?fieldSelector=spec.nodeName!={node.name}") == 403
    assert node.code("GET", "/api/v1/pods") == 403
    assert node.code("GET", f"/api/v1/nodes?fieldSelector=metadata.name={node.name}") == 200
    assert node.code("GET", f"/api/v1/nodes/{node.stranger}") == 403
    assert node.code("GET", "/api/v1/services") == 200


def patched(node: Node, path: str, change: Any) -> Answer:
    return node("PATCH", path, change, Content_Type="application/merge-patch+json")


def test_a_node_reports_itself_and_its_pods_only(node: Node):
    status = {"status": {"message": "told"}}
    assert patched(node, node.namespace.path("pods", "mine", "status"), status).code == 200
    assert patched(node, node.namespace.path("pods", "other", "status"), status).code == 403
    own = f"/api/v1/nodes/{node.name}"
    assert patched(node, f"{own}/status", {"status": {"capacity": {"cpu": "1"}}}).code == 200
    assert patched(node, f"/api/v1/nodes/{node.stranger}/status", status).code == 403
    assert patched(node, own, {"metadata": {"labels": {"disk": "ssd", "kubernetes.io/os": "linux"}}}).code == 200
    for label in ("node-restriction.kubernetes.io/a", "node-role.kubernetes.io/master", "x.k8s.io/y"):
        told = patched(node, own, {"metadata": {"labels": {label: "x"}}})
        assert (told.code, label in told.json["message"]) == (403, True)
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert "is not allowed to modify taints" in patched(node, own, taints).json["message"]
    assert node.code("DELETE", own) == 403


def test_a_node_makes_no_pods_and_ends_only_its_own(node: Node):
    assert node.code("POST", node.namespace.path("pods"), pod("new", nodeName=node.name)) == 403
    assert node.code("DELETE", node.namespace.path("pods", "other")) == 403
    assert node.code("DELETE", node.namespace.path("pods", "mine")) == 200


def test_a_node_registers_itself_and_no_other(node: Node):
    node.server.request("DELETE", f"/api/v1/nodes/{node.name}")
    assert node.code("POST", "/api/v1/nodes", {"metadata": {"name": f"x-{node.name}"}}) == 403
    assert node.code("POST", "/api/v1/nodes", {"metadata": {"name": node.name}}) == 201


def test_a_node_renews_its_own_lease(node: Node):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert node.code("POST", leases, {"metadata": {"name": node.name}}) == 201
    assert node.code("GET", f"{leases}/{node.name}") == 200
    assert node.code("POST", leases, {"metadata": {"name": node.stranger}}) == 403
    assert node.code("GET", leases) == 403


def test_a_node_asks_for_tokens_of_its_pods_only(node: Node):
    def asked(account: str, ref: Any) -> int:
        path = node.namespace.path("serviceaccounts", account, "token")
        return node.code("POST", path, {"spec": {"boundObjectRef": ref}})

    def ref(name: str) -> Any:
        uid = node.namespace.get(name, "pods").json["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}

    assert asked("mine", ref("mine")) == 201
    assert asked("mine", None) == 403
    assert asked("mine", {**ref("mine"), "uid": ""}) == 403
    assert asked("other", ref("other")) == 403


def test_the_name_alone_makes_no_node(server: ApiServerProcess, namespace: Namespace):
    node = Node(namespace)
    alone = server.identity(f"system:node:{node.name}")
    assert server.request("GET", f"/api/v1/nodes/{node.name}", client=alone).code == 403
