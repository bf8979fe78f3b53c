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


def test_lists_of_pods_must_select_its_own(node: Node):
    listed = node("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node.name}")
    assert [each["metadata"]["name"] for each in listed.json["items"]] == ["mine"]
    assert node.code("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node.stranger}") == 403
    assert node.code("GET", f"/api/v1/pods?fieldSelector=spec.nodeName!={node.name}") == 403
    assert node.code("GET", "/api/v1/pods") == 403
    for read in ("nodes", f"nodes/{node.stranger}", "services", "dns"):  # its overlay and its rules lead there
        assert node.code("GET", f"/api/v1/{read}") == 200


def test_a_node_reads_the_certificates_of_hosts_and_no_other_secrets(node: Node):
    space = f"/apis/networking.k8s.io/v1/namespaces/{node.namespace.name}/ingresses"
    secret = node.namespace.path("secrets", "other")
    assert node.code("GET", secret) == 403
    spec = {"tls": [{"secretName": "other", "hosts": ["a.test"]}], "rules": [{"host": f"{node.namespace.name}.test"}]}
    assert node.server.request("POST", space, {"metadata": {"name": "tls"}, "spec": spec}).code == 201
    assert node.code("GET", secret) == 200
    node.server.request("DELETE", f"{space}/tls")


def test_a_node_gives_back_its_own_range_of_addresses(node: Node):
    path = "/apis/minik8s.io/v1/podcidrs"
    number = int(node.namespace.name[2:], 16) % 250

    def claim(part: int, owner: str) -> tuple[str, int]:
        name, cidr = f"10.{part}.{number}.0-24", f"10.{part}.{number}.0/24"
        return name, node.code("POST", path, {"metadata": {"name": name}, "spec": {"cidr": cidr, "nodeName": owner}})

    (mine, own), (_, foreign) = claim(77, node.name), claim(78, node.stranger)
    assert (own, foreign) == (201, 403)
    others = f"10.79.{number}.0-24"
    spec = {"cidr": f"10.79.{number}.0/24", "nodeName": node.stranger}
    node.server.request("POST", path, {"metadata": {"name": others}, "spec": spec})
    assert node.code("DELETE", f"{path}/{others}") == 403
    assert node.code("DELETE", f"{path}/{mine}") == 200
    node.server.request("DELETE", f"{path}/{others}")


def test_a_node_holds_the_lease_of_its_own_reconciler(node: Node):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert node.code("POST", leases, {"metadata": {"name": f"minik8s-reconciler-node.{node.name}"}}) == 201
    assert node.code("POST", leases, {"metadata": {"name": f"minik8s-reconciler-node.{node.stranger}"}}) == 403
    assert node.code("POST", leases, {"metadata": {"name": "minik8s-reconciler-default"}}) == 403
    assert node.code("DELETE", f"{leases}/minik8s-reconciler-node.{node.name}") == 200


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
        result = patched(node, own, {"metadata": {"labels": {label: "x"}}})
        assert (result.code, label in result.json["message"]) == (403, True)
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert "is not allowed to modify taints" in patched(node, own, taints).json["message"]
    pressure = {"spec": {"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]}}
    assert patched(node, own, pressure).code == 200
    assert node.code("DELETE", f"/api/v1/nodes/{node.stranger}") == 403
    assert node.code("DELETE", own) == 200


def test_a_node_makes_no_pods_and_ends_only_its_own(node: Node):
    assert node.code("POST", node.namespace.path("pods"), pod("new", nodeName=node.name)) == 403
    assert node.code("DELETE", node.namespace.path("pods", "other")) == 403
    assert node.code("DELETE", node.namespace.path("pods", "mine")) == 200


def test_a_node_makes_mirrors_of_its_own_static_pods_which_open_nothing_to_it(node: Node):
    def mirror(name: str, **spec: Any) -> Any:
        placed = {"nodeName": node.name, **spec}
        made: Any = pod(f"{name}-{placed['nodeName']}", **placed)
        made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0123456789abcdef" * 2}
        return made

    def refused(body: Any) -> str:
        result = node("POST", node.namespace.path("pods"), body)
        assert result.code == 403, result.body
        return str(result.json["message"])

    volumes = [{"name": "s", "secret": {"secretName": "other"}}]
    assert "can not create pods that reference secrets/other" in refused(mirror("reads", volumes=volumes))
    assert "reference serviceaccounts/other" in refused(mirror("acts", serviceAccountName="other"))
    assert "with spec.nodeName set to itself" in refused(mirror("far", nodeName=node.stranger))
    owned = mirror("owned")
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]
    assert "with an owner" in refused(owned)
    assert node.code("POST", node.namespace.path("pods"), mirror("shown")) == 201
    shown = f"shown-{node.name}"
    found = node.namespace.get(shown, "pods").json
    assert not [one for one in found["spec"].get("volumes") or [] if one["name"].startswith("kube-api-access")]
    # the account every pod has stays closed, and so do its tokens
    node.server.request("POST", node.namespace.path("serviceaccounts"), {"metadata": {"name": "default"}})
    assert node.code("GET", node.namespace.path("serviceaccounts", "default")) == 403
    ref = {"apiVersion": "v1", "kind": "Pod", "name": shown, "uid": found["metadata"]["uid"]}
    token = node.namespace.path("serviceaccounts", "default", "token")
    assert node.code("POST", token, {"spec": {"boundObjectRef": ref}}) == 403
    assert patched(node, node.namespace.path("pods", shown, "status"), {"status": {"message": "x"}}).code == 200
    assert node.code("DELETE", f"{node.namespace.path('pods', shown)}?gracePeriodSeconds=0") == 200


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


def test_a_node_reads_the_volumes_that_its_pods_claims_hold(node: Node):
    path, space = node.namespace.path, node.namespace.name
    for name, machine in (("near", node.name), ("far", node.stranger)):
        reference = {"name": name, "namespace": space}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": reference,
            "nfs": {"server": "192.0.2.9", "path": "/srv"},
        }
        volume = {"metadata": {"name": f"{name}-{space}"}, "spec": spec}
        assert node.server.request("POST", "/api/v1/persistentvolumes", volume).code == 201
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        body = pod(f"has-{name}", nodeName=machine, volumes=volumes)
        assert node.server.request("POST", path("pods"), body).code == 201
    volumes_at = "/api/v1/persistentvolumes"
    assert node.code("GET", f"{volumes_at}/near-{space}") == 200
    assert node.code("GET", f"{volumes_at}?fieldSelector=metadata.name=near-{space}") == 200
    assert node.code("GET", f"{volumes_at}/far-{space}") == 403
    assert node.code("GET", volumes_at) == 403
    assert node.code("DELETE", f"{volumes_at}/near-{space}") == 403
    for name in ("near", "far"):
        node.server.request("DELETE", f"{volumes_at}/{name}-{space}")
