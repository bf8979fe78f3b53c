"""Helm with a local chart, and stern on a running pod: both built from the Go module proxy, unmodified."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.conftest import Running
from tests.support.apiserver import ApiServerProcess
from tests.support.clusters.installed import KUBECONFIG
from tests.support.gotools import tool

CHARTS = Path(__file__).parent / "charts"
CHART = CHARTS / "hello"
Helm = Callable[..., str]


@pytest.fixture
def helm(server: ApiServerProcess, namespace: str, tmp_path: Path) -> Helm:
    """Runs Helm in a namespace of its own."""
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        argv = [str(tool("helm")), "--namespace", namespace, *arguments]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    return run


def test_a_release_of_a_local_chart(helm: Helm, server: ApiServerProcess, namespace: str):
    def greeting() -> str:
        path = f"/api/v1/namespaces/{namespace}/configmaps/r"
        return str(server.request("GET", path).json["data"]["greeting"])

    assert "STATUS: deployed" in helm("install", "r", str(CHART))
    assert greeting() == "hello"
    upgraded = helm("upgrade", "r", str(CHART), "--set", "greeting=hi", "--set", "replicas=3")
    assert "REVISION: 2" in upgraded
    assert greeting() == "hi"
    assert "REVISION: 3" in helm("upgrade", "--install", "r", str(CHART), "--dry-run=server", "--set", "greeting=no")
    assert greeting() == "hi"
    assert helm("rollback", "r", "1").startswith("Rollback was a success")
    assert greeting() == "hello"
    assert [one["revision"] for one in json.loads(helm("history", "r", "-o", "json"))] == [1, 2, 3]
    assert [one["status"] for one in json.loads(helm("list", "-o", "json"))] == ["deployed"]
    assert "kind: PodDisruptionBudget" in helm("get", "manifest", "r")
    assert "RESOURCES" in helm("status", "r", "--show-resources")
    assert 'release "r" uninstalled' in helm("uninstall", "r")
    assert server.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments").json["items"] == []
    assert json.loads(helm("list", "-a", "-o", "json")) == []


def test_a_chart_with_a_kind_of_its_own(helm: Helm, server: ApiServerProcess, namespace: str):
    """Helm makes the definition first and leaves it behind; what somebody else set stays through an upgrade."""
    path = f"/apis/helm.example.org/v1/namespaces/{namespace}/shops"

    def spec() -> Any:
        return server.request("GET", f"{path}/r").json["spec"]

    assert "STATUS: deployed" in helm("install", "r", str(CHARTS / "shops"), "--wait")
    assert spec() == {"colour": "red", "open": True, "ports": [{"name": "web", "number": 80}]}
    server.kubectl("patch", "shop", "r", "-n", namespace, "--type=merge", "-p", '{"spec":{"open":false}}')
    ports = '--set-json=ports=[{"name":"tls","number":443}]'
    assert "REVISION: 2" in helm("upgrade", "r", str(CHARTS / "shops"), "--set", "colour=blue", ports)
    assert spec() == {"colour": "blue", "open": False, "ports": [{"name": "tls", "number": 443}]}
    with pytest.raises(AssertionError, match="Unsupported value"):
        helm("upgrade", "r", str(CHARTS / "shops"), "--set", "colour=green")
    assert helm("rollback", "r", "1").startswith("Rollback was a success")
    assert spec()["colour"] == "red"
    helm("uninstall", "r", "--wait")
    assert server.request("GET", path).json["items"] == []
    server.kubectl("delete", "crd", "shops.helm.example.org")


def test_stern_follows_a_pod(running: Running):
    argv = [str(tool("stern")), "--kubeconfig", str(KUBECONFIG), "-n", running.namespace, "talk", "--color", "never"]
    process = subprocess.Popen([*argv, "--tail", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        lines = [process.stdout.readline().split() for _ in range(3)]
    finally:
        process.terminate()  # SIGINT is ignored by what runs below a background job
        _, result = process.communicate(timeout=60)
    assert [line[:3] for line in lines] == [[running.pod, "app", "tick"]] * 3, result
    numbers = [int(line[3]) for line in lines]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
