"""The pressure of a pod's resources from its cgroup to the API: a kubelet's summary and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.memory_events import ROOT
from tests.integration.reconcile.conftest import IMAGE, Cluster

TOLD = [Path(ROOT, "cgroup.controllers"), Path(ROOT, "unified", "cgroup.controllers")]


@pytest.mark.skipif(not any(path.exists() for path in TOLD), reason="cgroups of version 1 tell no pressure")
@pytest.mark.skipif(not Path("/proc/pressure").exists(), reason="this kernel tells no pressure")
def test_the_pressure_of_a_pod_reaches_the_summary_and_the_metrics_of_its_node(cluster: Cluster) -> None:
    busy = {"name": "app", "image": IMAGE, "command": ["sh", "-c", "while :; do :; done"]}
    cluster.create("busy", containers=[{**busy, "resources": {"limits": {"cpu": "10m", "memory": "32Mi"}}}])
    cluster.until(lambda: cluster.ready("busy"), 120)

    def told(path: str) -> str:
        return cluster.kubectl("get", "--raw", f"/api/v1/nodes/{cluster.node.name}/proxy/{path}", check=False).stdout

    def waited() -> int:
        answer = told("stats/summary")  # none before the gateway has measured twice
        pods = json.loads(answer)["pods"] if answer else []
        found = next((one for one in pods if one["podRef"]["name"] == "busy" and "psi" in one["cpu"]), None)
        return int(found["cpu"]["psi"]["some"]["total"]) if found and "psi" in found["io"] else 0

    cluster.until(waited, 180)
    labels = 'container="",namespace="default",pod="busy"'
    assert f"container_pressure_cpu_waiting_seconds_total{{{labels}}}" in told("metrics/cadvisor")
