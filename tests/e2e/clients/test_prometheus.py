"""Prometheus 2.53 finds targets in our API server, by every role of kubernetes_sd, and scrapes the server itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.apiserver import ApiServerProcess
from tests.support.servers.prometheus import Prometheus

ORIGINALS = Path(__file__).resolve().parents[3] / "tests" / "cases" / "original_prometheus"
ROLES = ("node", "pod", "service", "endpoints", "endpointslice", "ingress")
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "pods", "services", "endpoints"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["get", "list", "watch"]},
    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
]
NOWHERE = "127.0.0.1:9"  # what is found is not scraped: every target goes to a closed port
BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
# where, what is made there, and the label that tells it in Prometheus
OBJECTS: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "node": (
        "/api/v1/nodes",
        {},
        ("__meta_kubernetes_node_name", "{name}"),
    ),
    "pod": (
        "/api/v1/namespaces/{ns}/pods",
        {"spec": {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80}]}]}},
        ("__meta_kubernetes_pod_ip", "127.0.0.8"),
    ),
    "service": (
        "/api/v1/namespaces/{ns}/services",
        {"spec": {"ports": [{"port": 80}]}},
        ("__address__", "{name}.{ns}.svc:80"),
    ),
    "endpoints": (
        "/api/v1/namespaces/{ns}/endpoints",
        {"subsets": [{"addresses": [{"ip": "10.0.0.7"}], "ports": [{"port": 80}]}]},
        ("__address__", "10.0.0.7:80"),
    ),
    "endpointslice": (
        "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.8"]}], "ports": [{"port": 80}]},
        ("__address__", "10.0.0.8:80"),
    ),
    "ingress": (
        "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
        {"spec": {"rules": [{"host": "a.test", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": BACKEND}]}}]}},
        ("__meta_kubernetes_ingress_host", "a.test"),
    ),
}  # fmt: skip
STATUSES = {
    "node": {"addresses": [{"type": "InternalIP", "address": "127.0.0.9"}]},
    "pod": {"podIP": "127.0.0.8", "phase": "Running"},
}


@pytest.fixture(scope="module")
def found(server: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that finds targets with a service account's token."""
    folder = tmp_path_factory.mktemp("prometheus")
    tls = {"ca_file": str(server.authority.ca)}
    authorization = {"credentials_file": str(_token(server, folder))}
    discovery = {"api_server": server.url, "tls_config": tls, "authorization": authorization}
    jobs: list[dict[str, Any]] = [
        {
            "job_name": role,
            "kubernetes_sd_configs": [{"role": role, **discovery}],
            # Without a label of their own, targets that all lead nowhere would count as one.
            "relabel_configs": [
                {"source_labels": ["__address__"], "target_label": "found_at"},
                {"target_label": "__address__", "replacement": NOWHERE},
            ],
        }
        for role in ROLES
    ]
    itself = {"static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}], "scheme": "https"}
    jobs.append({"job_name": "apiserver", "tls_config": tls, "authorization": authorization, **itself})
    process = Prometheus(folder, jobs).start()
    yield process
    process.stop()


def _token(server: ApiServerProcess, folder: Path) -> Path:
    account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prometheus"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    made: list[tuple[str, dict[str, Any]]] = [
        (accounts, {}),
        (f"{rbac}/clusterroles", {"rules": RULES}),
        (f"{rbac}/clusterrolebindings", {"roleRef": reference, "subjects": [account]}),
    ]
    for path, body in made:
        assert server.request("POST", path, {"metadata": {"name": "prometheus"}, **body}).code == 201
    answer = server.request("POST", f"{accounts}/prometheus/token", {"spec": {"expirationSeconds": 3600}})
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(answer.json["status"]["token"], encoding="utf-8")
    return file


def until(condition: Callable[[], object], prometheus: Prometheus) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, prometheus.log()[-3000:]
        time.sleep(0.2)


def test_targets_appear_and_vanish(server: ApiServerProcess, namespace: str, found: Prometheus):
    name = f"x-{namespace}"
    paths = {role: OBJECTS[role][0].format(ns=namespace) for role in ROLES}
    for role, path in paths.items():
        assert server.request("POST", path, {"metadata": {"name": name}, **OBJECTS[role][1]}).code == 201
    merge = {"Content-Type": "application/merge-patch+json"}
    for role, status in STATUSES.items():
        path = f"{paths[role]}/{name}/status"
        assert server.request("PATCH", path, {"status": status}, headers=merge).code == 200

    def there() -> set[str]:
        """The roles whose object is a target now."""
        seen = set()
        for role, (_, _, (label, wanted)) in OBJECTS.items():
            value = wanted.format(ns=namespace, name=name)
            if any(target["discoveredLabels"].get(label) == value for target in found.targets(role)):
                seen.add(role)
        return seen

    until(lambda: there() == set(ROLES), found)
    for path in paths.values():
        assert server.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0}).code == 200
    until(lambda: not there(), found)


def test_the_originals_configuration_and_targets_are_read(tmp_path: Path):
    """The original's manifests 13 and 14: a configuration, and the file of targets that it finds by a pattern."""
    (tmp_path / "nodes.yml").write_bytes((ORIGINALS / "14-prometheus-targets.yml").read_bytes())
    jobs = yaml.safe_load((ORIGINALS / "13-prometheus-config.yml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["cadvisor", "diy"]
    for job in jobs:
        job["file_sd_configs"][0]["files"] = [str(tmp_path / "*.yml")]  # its own folder is the original's
        job["relabel_configs"] = [{"target_label": "__address__", "replacement": NOWHERE}]
    process = Prometheus(tmp_path / "prometheus", jobs).start()
    try:
        for job in jobs:
            until(partial(process.targets, job["job_name"]), process)
            labels = process.targets(job["job_name"])[0]["discoveredLabels"]
            assert labels["__address__"] == "192.168.1.10:8090"
    finally:
        process.stop()


def test_the_api_server_is_scraped(found: Prometheus):
    until(lambda: [target["health"] for target in found.targets("apiserver")] == ["up"], found)
    until(lambda: found.query('sum(apiserver_request_total{job="apiserver"}) > 0'), found)
    until(lambda: found.query('up{job="apiserver"} == 1'), found)
