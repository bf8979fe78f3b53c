"""Clusters of machines with Debian 12 and Debian 13, either as the control plane, each with a kernel of its own.

What differs: systemd 252 and 257, Python 3.11 and 3.13, Docker 20.10 and 26.1; both with cgroup version 2 and Docker's
systemd driver. The environment for Python 3.13 is made where the playbook runs, with Python 3.11.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.lab.records import Release
from tests.machines.test_ipvs_whole import QUICK, lend
from tests.support.clusters.labcluster import LabCluster, is_true

MEMORY_MIB = 1536
CONTROL, WORKER = "control1", "worker1"
INSTALLED_S = 2400.0


@pytest.fixture(scope="module", params=[("bookworm", "trixie"), ("trixie", "bookworm")], ids=["node", "control-plane"])
def mixed(request: pytest.FixtureRequest) -> Iterator[LabCluster]:
    """A cluster whose control plane, which is a node too, has one release, and its other node the other."""
    of_control, of_worker = request.param
    releases: dict[str, Release] = {CONTROL: of_control, WORKER: of_worker}
    cluster = LabCluster(
        f"d{of_control[0]}13", workers=1, kind="uml", memory_mib=MEMORY_MIB, releases=releases, variables=QUICK,
        control_is_node=True, install=False,
    )  # fmt: skip
    with cluster:
        for machine in (CONTROL, WORKER):
            lend(cluster, machine)
        cluster.play("site.yml", timeout_s=INSTALLED_S)
        cluster.fetch_kubeconfig()
        yield cluster


def pod(name: str, node: str) -> JsonObject:
    """Return a pod of a node with limits and a probe."""
    container = {
        "name": "app",
        "image": "minik8s/busybox:1",
        "command": ["sh", "-c", "echo $HOSTNAME > /tmp/index.html; exec httpd -f -p 1024 -h /tmp"],
        "readinessProbe": {"tcpSocket": {"port": 1024}, "periodSeconds": 1},
        "resources": {"limits": {"cpu": "200m", "memory": "32Mi"}},
    }
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def test_pods_are_ready_on_both_and_reach_one_another(mixed: LabCluster) -> None:
    fields = {one["metadata"]["name"]: one["status"]["nodeInfo"]["osImage"] for one in mixed.get("nodes")["items"]}
    releases = {"bookworm": "Debian GNU/Linux 12 (bookworm)", "trixie": "Debian GNU/Linux 13 (trixie)"}
    assert fields == {name: releases[release] for name, release in mixed.releases.items()}
    mixed.apply(pod("near", CONTROL), pod("far", WORKER))
    ports = [{"port": 80, "targetPort": 1024}]
    mixed.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": ports},
        }
    )
    for name in ("near", "far"):
        mixed.until(functools.partial(mixed.ready, name), 400)
    script = "for i in 1 2 3 4; do timeout 20 wget -q -O- http://web; done"
    for name in ("near", "far"):
        mixed.until(lambda asked=name: set(mixed.inside(asked, "sh", "-c", script).split()) == {"near", "far"}, 200)  # type: ignore[misc]


def test_a_container_killed_for_memory_says_so_on_both(mixed: LabCluster) -> None:
    for name in (CONTROL, WORKER):
        limits = {"limits": {"memory": "16Mi"}}
        container = {"name": "app", "image": "minik8s/busybox:1", "command": ["tail", "/dev/zero"], "resources": limits}
        spec = {"nodeName": name, "containers": [container], "restartPolicy": "Never"}
        mixed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"hungry-{name}"}, "spec": spec})
    for name in (CONTROL, WORKER):
        found = mixed.until(lambda name=name: _ended(mixed, f"hungry-{name}"), 400)  # type: ignore[misc]
        assert (found["reason"], found["exitCode"]) == ("OOMKilled", 137)


def _ended(cluster: LabCluster, name: str) -> JsonObject:
    found: JsonObject = cluster.get("pod", name)["status"]["containerStatuses"][0]["state"].get("terminated") or {}
    return found


def test_a_second_run_changes_nothing(mixed: LabCluster) -> None:
    again = mixed.play("site.yml", timeout_s=INSTALLED_S)
    assert {name: counts["changed"] for name, counts in again.recap.items()} == dict.fromkeys(again.recap, 0), (
        again.output
    )
    assert all(is_true(node, "Ready") for node in mixed.get("nodes")["items"])
