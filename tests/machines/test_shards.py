"""Nodes in two shards: each has a reconciler and a gateway of its own, and what the inventory says of a node counts.

One machine is control plane and a node of the shard ``default``, the other a node of the shard ``far``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import LabCluster

HERE, THERE = "control1", "worker1"
IMAGE = "minik8s/busybox:1"
OF_FAR = ["minik8s-gateway-far", "minik8s-streams-far", "minik8s-reconciler-far"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabCluster]:
    """The cluster; MINIK8S_SHARDS in the environment names a lab to use again, and to keep."""
    kept = os.environ.get("MINIK8S_SHARDS", "")
    made = LabCluster(
        kept or f"h{uuid.uuid4().hex[:7]}",
        workers=1,
        control_is_node=True,
        host_variables={THERE: {"minik8s_shard": "far"}},
    )
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
            made.load_image(IMAGE)
        yield made
    finally:
        if not kept:
            made.close()


def pod(name: str, node: str) -> JsonObject:
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "36000"]}
    spec = {"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def leases(cluster: LabCluster) -> set[str]:
    """Return the shards that somebody leads."""
    found = cluster.get("leases", "-n", "kube-system")["items"]
    led = [one["metadata"]["name"] for one in found if one["spec"].get("holderIdentity")]
    return {name.removeprefix("minik8s-reconciler-") for name in led if name.startswith("minik8s-reconciler-")}


def planned(cluster: LabCluster, *pods: str) -> str:
    """Return what ``minik8s plan`` says of removing pods."""
    argv = ["env", "KUBECONFIG=/etc/minik8s/admin.kubeconfig", "minik8s", "plan", "--delete", "-f", "-"]
    return cluster.on(
        HERE, argv, text="---\n".join(f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}\n" for name in pods)
    )


def test_each_shard_runs_its_nodes_and_one_plan_shows_all(cluster: LabCluster) -> None:
    assert {"default", "far"} <= leases(cluster)
    cluster.apply(pod("here", HERE), pod("there", THERE))
    cluster.until(lambda: cluster.ready("here") and cluster.ready("there"))
    assert cluster.inside("there", "hostname").strip() == "there", "streams go through the shard's own gateway"
    result = planned(cluster, "here", "there")
    assert HERE in result, result
    assert THERE in result, result


def test_a_shard_whose_reconciler_is_gone_waits_and_the_other_goes_on(cluster: LabCluster) -> None:
    cluster.on(HERE, ["systemctl", "stop", OF_FAR[-1]])
    try:
        cluster.apply(pod("waits", THERE), pod("runs", HERE))
        cluster.until(lambda: cluster.ready("runs"))
        for _ in range(10):
            assert not cluster.ready("waits"), "somebody else serves the shard"
            time.sleep(0.5)
    finally:
        cluster.on(HERE, ["systemctl", "start", OF_FAR[-1]])
    cluster.until(lambda: cluster.ready("waits"))


def test_a_node_moves_to_another_shard_with_its_containers(cluster: LabCluster) -> None:
    cluster.apply(pod("stays", THERE))
    cluster.until(lambda: cluster.ready("stays"))
    before = running(cluster, "stays")
    del cluster.host_variables[THERE]["minik8s_shard"]
    cluster.write_inventory()
    cluster.play("site.yml")
    assert not any(cluster.on(HERE, ["sh", "-c", "ls /etc/minik8s /etc/systemd/system | grep -e -far || true"]).split())
    cluster.apply(pod("later", THERE))
    cluster.until(lambda: cluster.ready("later"))
    assert running(cluster, "stays") == before
    cluster.host_variables[THERE] = {"minik8s_shard": "far"}
    cluster.write_inventory()
    cluster.play("site.yml")
    cluster.apply(pod("back", THERE))
    cluster.until(lambda: cluster.ready("back"))
    assert running(cluster, "stays") == before
    assert cluster.play("site.yml").changed == 0


def running(cluster: LabCluster, name: str) -> set[str]:
    """Return the running containers of a pod on the far node."""
    argv = ["docker", "ps", "--no-trunc", "-q", "--filter", f"label=minik8s.io/pod-name={name}"]
    found = set(cluster.on(THERE, argv).split())
    assert found
    return found
