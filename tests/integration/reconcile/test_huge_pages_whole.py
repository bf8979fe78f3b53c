"""Huge pages from the machine's number to a pod's volume: counted, scheduled, limited, planned and given back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.reconcile.conftest import IMAGE, Cluster
from tests.support.huge_pages import SIZE, set_aside

RESOURCE = "hugepages-2Mi"


@pytest.fixture(scope="module")
def huge(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose node knows of four pages more; it is told when the reconciler begins."""
    with set_aside(4):
        again(cluster)
        cluster.until(lambda: has(cluster) >= 4 * SIZE, 120)
        yield cluster


def again(cluster: Cluster) -> None:
    """Have the reconciler ask the node once more what it has."""
    cluster.daemons["reconcile"].stop()
    cluster.daemons["reconcile"].start()


def has(cluster: Cluster) -> int:
    """Return the bytes that the Node has for pods."""
    allocatable = objects.status(cluster.admin.get(NODE, cluster.node.name)).get("allocatable") or {}
    return quantities.to_bytes(allocatable.get(RESOURCE) or "0")


def asking(size: str, **more: Any) -> dict[str, Any]:
    """Return the spec of a pod that asks for huge pages, and has a volume on them."""
    amounts = {"memory": "16Mi", RESOURCE: size}
    app = {
        "name": "app",
        "image": IMAGE,
        "command": ["sleep", "3600"],
        "resources": {"limits": amounts},
        "volumeMounts": [{"name": "huge", "mountPath": "/huge"}],
    }
    return {"containers": [app], "volumes": [{"name": "huge", "emptyDir": {"medium": "HugePages"}}], **more}


def fallocate(cluster: Cluster, name: str, size: int, file: str) -> subprocess.CompletedProcess[str]:
    """Have a file of the pod's volume take pages."""
    (found,) = cluster.node.docker.containers({labels.POD_UID: objects.uid(cluster.pod(name)), labels.TYPE: "app"})
    argv = [*cluster.node.inside(found["Id"]), "fallocate", "-l", str(size), f"/huge/{file}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_pod_gets_the_huge_pages_that_it_requests(huge: Cluster) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big", "namespace": "default"},
        "spec": asking("4Mi"),
    }
    planned = str(huge.plan(objects=[body]))
    assert "'medium': 'HugePages'" in planned or '"medium": "HugePages"' in planned or "hugetlbfs" in planned, planned
    huge.create("big", **asking("4Mi"))
    huge.until(lambda: huge.ready("big"), 120)
    assert huge.pod("big")["spec"]["containers"][0]["resources"]["requests"][RESOURCE] == "4Mi"
    assert fallocate(huge, "big", 2 * SIZE, "two").returncode == 0
    refused = fallocate(huge, "big", SIZE, "third")
    assert refused.returncode != 0
    assert "No space" in refused.stderr or "Cannot allocate" in refused.stderr
    described = huge.kubectl("describe", "node", huge.node.name).stdout
    (row,) = [line.split() for line in described.splitlines() if line.split()[:2] == [RESOURCE, "4Mi"]]
    assert row[3] == "4Mi"  # limits, after requests and their share


def test_more_than_the_node_has_waits_and_with_a_node_name_fails(huge: Cluster) -> None:
    huge.create("huge", **asking("64Gi"))
    text = f"Insufficient {RESOURCE}"
    huge.until(lambda: text in str(objects.condition(huge.pod("huge"), "PodScheduled") or {}), 120)
    huge.create("placed", **asking("64Gi", nodeName=huge.node.name))
    huge.until(lambda: huge.pod("placed")["status"].get("reason") == f"OutOf{RESOURCE}", 120)
    for name in ("huge", "placed"):
        huge.admin.delete(POD, name, "default", grace_s=0)


def test_a_medium_that_the_pod_requests_no_pages_of_is_why_it_waits(huge: Cluster) -> None:
    spec = asking("2Mi")
    spec["volumes"][0]["emptyDir"]["medium"] = "HugePages-1Gi"
    huge.create("wrong", **spec)
    text = "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"
    huge.until(lambda: any(text in event for event in huge.events("wrong")), 120)
    huge.delete("wrong", grace_s=0)
