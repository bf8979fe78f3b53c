"""Attack: with what Prometheus holds, or the daemon that tells it of targets, read logs, Secrets, or become somebody.

Prometheus' token lies in a file, and whoever gets it reads figures: of the daemons, and of nodes through the host names
of their kubelets, and nothing beside them, however the path is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.monitored import objects

NODE = "/api/v1/nodes/n1"
HOST = "192.0.2.1:10250"
DAEMON = "system:minik8s:monitoring"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path_factory.mktemp("scraper"), kubelet_port=10250) as api:
        for each in objects():
            api.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(each))
        assert api.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}).code == 201
        addresses = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
        merge = {"Content-Type": "application/merge-patch+json"}
        assert api.request("PATCH", f"{NODE}/status", addresses, headers=merge).code == 200
        yield api


@pytest.fixture(scope="module")
def token(server: ApiServerProcess) -> str:
    path = "/api/v1/namespaces/monitoring/serviceaccounts/prometheus/token"
    answer = server.request("POST", path, {"spec": {"expirationSeconds": 3600}}, client=server.identity(DAEMON))
    assert answer.code == 201, answer.body
    return str(answer.json["status"]["token"])


def ask(server: ApiServerProcess, token: str, method: str, path: str, host: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} | ({"Host": host} if host else {})
    return server.request(method, path, headers=headers, anonymous=True).code


def test_prometheus_reads_metrics(server: ApiServerProcess, token: str):
    assert ask(server, token, "GET", "/metrics") == 200
    assert ask(server, token, "GET", "/metrics", HOST) == 200


@pytest.mark.parametrize(
    "path", ["/pods", "/configz", "/stats/summary", "/containerLogs/default/p/c", "/metrics/../pods"]
)
def test_it_reads_nothing_else_of_a_node(server: ApiServerProcess, token: str, path: str):
    assert ask(server, token, "GET", path, HOST) in {403, 404}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{NODE}/proxy/metrics"),
        ("GET", f"{NODE}/proxy/pods"),
        ("GET", f"{NODE}/proxy/configz"),
        ("GET", f"{NODE}/proxy/stats/summary"),
        ("GET", f"{NODE}/proxy/containerLogs/default/p/c"),
        ("GET", f"{NODE}/proxy/metrics/../pods"),
        ("GET", f"{NODE}/proxy/metrics/%2e%2e/pods"),
        ("GET", f"{NODE}/proxy/metrics%2f..%2fpods"),
        ("GET", f"{NODE}/proxy/pods?/metrics"),
        ("GET", f"{NODE}/proxy/pods/metrics"),
        ("GET", f"{NODE}/proxy/metrics/probes"),
        ("POST", f"{NODE}/proxy/metrics"),
        ("GET", NODE),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/namespaces/monitoring/secrets"),
        ("POST", "/api/v1/namespaces/monitoring/serviceaccounts/prometheus/token"),
    ],
)
def test_prometheus_reads_nothing_else(server: ApiServerProcess, token: str, method: str, path: str):
    assert ask(server, token, method, path) == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/namespaces/default/pods/p/log"),
        ("GET", f"{NODE}/proxy/pods"),
        ("POST", "/api/v1/namespaces/monitoring/serviceaccounts/default/token"),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/prometheus/token"),
        ("POST", "/api/v1/namespaces/default/pods"),
        ("PATCH", "/api/v1/nodes/n1"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ],
)
def test_who_tells_of_targets_makes_one_token_and_changes_nothing(server: ApiServerProcess, method: str, path: str):
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    body: dict[str, object] | None = {"spec": {}} if method != "GET" else None
    assert server.request(method, path, body, client=server.identity(DAEMON), headers=headers).code == 403
