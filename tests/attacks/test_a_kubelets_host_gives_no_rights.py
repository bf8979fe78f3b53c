"""Attack: read nodes through the host name of their kubelets without a kubelet's rights, or reach the API by it.

``kubelet_port`` makes nodes' addresses further hosts of the API server. Whoever asks must be somebody, and have what a
kubelet asks for: the open paths of the API server are not open there, a right to metrics is none to Pods, and nothing
below such a host is the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.apiserver import Answer, ApiServerProcess, own_server

PORT = 10250
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path_factory.mktemp("kubelets"), kubelet_port=PORT) as api:
        for name, address in (("n1", "192.0.2.1"), ("n2", "192.0.2.2"), ("twin", "192.0.2.3"), ("twin2", "192.0.2.3")):
            assert api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}}).code == 201
            addresses = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
            merge = {"Content-Type": "application/merge-patch+json"}
            assert api.request("PATCH", f"/api/v1/nodes/{name}/status", addresses, headers=merge).code == 200
        for name, resource in (("scraper", "nodes/metrics"), ("reader", "nodes/stats"), ("proxy", "nodes/proxy")):
            bind(api, name, resource)
        yield api


def bind(api: ApiServerProcess, user: str, resource: str) -> None:
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}
    assert api.request("POST", ROLES, {"metadata": {"name": user}, "rules": [rule]}).code == 201
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    assert api.request("POST", f"{ROLES[:-1]}bindings", binding).code == 201


def ask(api: ApiServerProcess, path: str, user: str = "", host: str = "192.0.2.1", **more: Any) -> Answer:
    headers = {"Host": f"{host}:{PORT}"}
    client = api.identity(user) if user else None
    return api.request(more.get("method", "GET"), path, headers=headers, client=client, anonymous=not user)


@pytest.mark.parametrize("path", ["/healthz", "/metrics/resource", "/pods", "/version", "/livez", "/api/v1/pods"])
def test_strangers_are_told_nothing(server: ApiServerProcess, path: str):
    assert ask(server, path).code == 401


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ("scraper", {"/metrics"}),
        ("reader", set()),
        ("proxy", {"/pods", "/configz"}),
        ("nobody", set()),
    ],
)
def test_each_path_needs_what_a_kubelet_asks_for(server: ApiServerProcess, user: str, allowed: set[str]):
    """What a gateway would have to tell is refused before, or answered 503 as there is none."""
    answers = {path: ask(server, path, user).code for path in ("/metrics", "/pods", "/configz")}
    assert answers == {path: 200 if path in allowed else 403 for path in answers}
    measured = {"/stats/summary": "reader", "/metrics/resource": "scraper"}
    for path, holder in measured.items():
        assert ask(server, path, user).code == (503 if user == holder else 403)


@pytest.mark.parametrize(
    "path", ["/metrics/../pods", "/metrics%2F..%2Fpods", "/%6Detrics/../pods", "/metrics/%2e%2e/pods"]
)
def test_a_path_that_only_begins_with_metrics_shows_no_pods(server: ApiServerProcess, path: str):
    found = ask(server, path, "scraper")
    assert found.code in {400, 403, 404}
    assert b"PodList" not in found.body


def test_writes_need_what_they_mean(server: ApiServerProcess):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(server, "/pods", "proxy", method=method).code == 403


def test_the_api_is_not_below_a_kubelets_host(server: ApiServerProcess):
    found = ask(server, "/api/v1/nodes", "minik8s-admin")
    assert found.code == 403  # a certificate without the group of administrators
    assert server.request("GET", "/api/v1/nodes", headers={"Host": f"192.0.2.1:{PORT}"}).code == 404


def test_a_right_to_metrics_by_a_kubelets_host_is_none_by_the_proxy(server: ApiServerProcess):
    for header in ({}, {"X-Minik8s-Kubelet": "metrics"}, {"Minik8s.Kubelet": "metrics"}):
        client = server.identity("scraper")
        assert server.request("GET", "/api/v1/nodes/n1/proxy/metrics", client=client, headers=header).code == 403


def test_an_address_that_two_nodes_claim_leads_to_neither(server: ApiServerProcess):
    assert server.request("GET", "/pods", headers={"Host": f"192.0.2.3:{PORT}"}).code == 404
