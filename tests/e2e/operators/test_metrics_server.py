"""metrics-server as its own manifests install it takes metrics.k8s.io over, and gives it back when it is removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from tests.e2e.operators.conftest import built
from tests.support.clusters.installed import Installed
from tests.support.docker.program_image import program_image
from tests.support.gotools import TOOLS, module_path

TOOL = TOOLS["metrics-server"]
IMAGE = "gcr.io/k8s-staging-metrics-server/metrics-server:master"
PORT = 10250
CONFIGURATIONS = [Path(f"/etc/minik8s/{name}.yml") for name in ("apiserver", "reconciler")]
FLAG = (
    "--kubelet-insecure-tls"  # as on each cluster of kubeadm's: what answers has no certificate of the node's address
)
API_SERVICE = "v1beta1.metrics.k8s.io"


def daemons(cluster: Installed) -> None:
    for name in ("apiserver", "reconciler"):
        cluster.service("restart", name)
    cluster.until(cluster.whole)


@pytest.fixture(scope="module")
def kubelets(cluster: Installed) -> Iterator[Installed]:
    """The cluster with ``minik8s_kubelet_port``, as `make cluster` would write it."""
    before = {path: path.read_text() for path in CONFIGURATIONS}
    try:
        for path, text in before.items():
            path.write_text(yaml.safe_dump({**yaml.safe_load(text), "kubelet_port": PORT}))
        daemons(cluster)
        yield cluster
    finally:
        for path, text in before.items():
            path.write_text(text)
        daemons(cluster)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A kustomization of its base with the one flag more."""
    folder = tmp_path_factory.mktemp("metrics-server")
    base = module_path(TOOL.module, TOOL.version) / "manifests" / "base"
    for path in base.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text())
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    add = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": FLAG}]
    patch = {"target": {"kind": "Deployment"}, "patch": json.dumps(add)}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**kustomization, "patches": [patch]}))
    return str(folder)


def api_service(cluster: Installed) -> JsonObject:
    """The APIService; {} while it is made again."""
    done = cluster.kubectl("get", "apiservice", API_SERVICE, "-o", "json", "--ignore-not-found").stdout
    return dict(json.loads(done or "{}"))


def available(cluster: Installed) -> tuple[str, str]:
    conditions: list[Any] = (api_service(cluster).get("status") or {}).get("conditions") or []
    found: JsonObject = next((each for each in conditions if each["type"] == "Available"), {})
    return found.get("status", ""), found.get("reason", "")


def top(cluster: Installed) -> bool:
    """Whether kubectl top tells of the node and of some pod."""
    nodes = cluster.kubectl("top", "nodes", "--no-headers", check=False)
    pods = cluster.kubectl("top", "pods", "-A", "--no-headers", check=False)
    return nodes.stdout.startswith(cluster.node) and "m " in nodes.stdout and "Mi" in pods.stdout


def test_kubectl_top_works_with_it_and_without_it(kubelets: Installed, manifests: str):
    cluster = kubelets
    cluster.until(lambda: top(cluster))
    endpoint = cluster.kubectl("get", "node", cluster.node, "-o", "jsonpath={.status.daemonEndpoints}").stdout
    assert json.loads(endpoint) == {"kubeletEndpoint": {"Port": PORT}}
    with program_image(IMAGE, built("metrics-server"), "/metrics-server", 1000):
        try:
            cluster.kubectl("apply", "-k", manifests)
            cluster.kubectl("rollout", "status", "-n", "kube-system", "deployment/metrics-server", "--timeout=80s")
            cluster.until(lambda: available(cluster) == ("True", "Passed"))
            cluster.until(lambda: top(cluster))
            cluster.kubectl("scale", "-n", "kube-system", "deployment/metrics-server", "--replicas=0")
            cluster.until(lambda: available(cluster) == ("False", "MissingEndpoints"))
            assert not top(cluster)  # so it was not ours that answered
            cluster.kubectl("scale", "-n", "kube-system", "deployment/metrics-server", "--replicas=1")
            cluster.until(lambda: available(cluster) == ("True", "Passed") and top(cluster))
            log = cluster.kubectl("logs", "-n", "kube-system", "deployment/metrics-server").stdout
            assert "Failed to scrape" not in log
        finally:
            cluster.kubectl("delete", "-k", manifests, "--ignore-not-found", "--timeout=60s")
    cluster.until(lambda: available(cluster) == ("True", "Local"))
    assert not (api_service(cluster)["spec"]).get("service")
    cluster.until(lambda: top(cluster))
