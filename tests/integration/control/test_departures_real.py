"""Nodes that leave, on a real API server with the controllers as a process: their pods, their ranges (S-19)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import CONTROLLER_REVISION, NODE, POD, POD_ADDRESS, POD_CIDR, REPLICA_SET
from minik8s_modules.api.nodes.leaving import LEAVING
from minik8s_modules.runtime.pod_cidrs import claim_cidr
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.waiting import until

PATIENCE_S = 120.0  # a node that was deleted is missed for 40 s


def bare(cluster: Cluster, space: str, node: str, name: str, *, original: bool) -> str:
    made = pod(name, space, nodeName=node)
    made["metadata"]["labels"] = {"kept": "yes"}
    if original:
        made["metadata"]["annotations"] = {"minik8s.io/dialect": "original"}
    return objects.uid(cluster.admin.create(POD, made))


def uid_of(cluster: Cluster, space: str, name: str) -> str:
    try:
        return objects.uid(cluster.admin.get(POD, name, space))
    except NotFound:
        return ""


def annotate(cluster: Cluster, node: str) -> None:
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {LEAVING: "departed"}}})


def delete(cluster: Cluster, node: str) -> None:
    cluster.admin.delete(NODE, node)


@pytest.mark.parametrize("leave", [annotate, delete], ids=["departed", "deleted"])
def test_s_19_pods_of_a_node_that_leaves(cluster: Cluster, daemon: Daemon, leave: Callable[[Cluster, str], None]):
    space, node = cluster.namespace(), cluster.node()
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeName": node, "containers": pod("", "")["spec"]["containers"]},
    }
    declared = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    cluster.admin.create(REPLICA_SET, {"metadata": {"name": "web", "namespace": space}, "spec": declared})
    original = bare(cluster, space, node, "original", original=True)
    bare(cluster, space, node, "plain", original=False)
    until(lambda: len(cluster.admin.list(POD, space).items) == 4)
    before = {objects.uid(each) for each in cluster.admin.list(POD, space).items}
    free = {"spec": {"template": {"spec": {"nodeName": None}}}}
    cluster.admin.patch(REPLICA_SET, "web", space, free)  # what replaces them is not bound to the node again

    leave(cluster, node)

    until(lambda: not any(objects.name(each) == node for each in cluster.admin.list(NODE).items), PATIENCE_S)
    until(lambda: uid_of(cluster, space, "original") not in {"", original}, PATIENCE_S)
    until(lambda: not uid_of(cluster, space, "plain"), PATIENCE_S)
    until(lambda: not before & {objects.uid(each) for each in cluster.admin.list(POD, space).items}, PATIENCE_S)
    until(lambda: len(cluster.admin.list(POD, space).items) == 3, PATIENCE_S)  # two of the set, and the original's
    back = cluster.admin.get(POD, "original", space)
    assert "nodeName" not in back["spec"]
    assert back["metadata"]["labels"] == {"kept": "yes"}
    until(lambda: not cluster.admin.list(CONTROLLER_REVISION, space).items)


def phase(cluster: Cluster, name: str) -> str:
    try:
        return str(objects.status(cluster.admin.get(POD_CIDR, name)).get("phase") or "")
    except NotFound:
        return "free"


def test_a_range_is_claimed_quarantined_and_freed(cluster: Cluster, daemon: Daemon):
    reconciler = cluster.client("reconciler")
    node = "n-of-ranges"
    cidr = claim_cidr(reconciler, "10.77.0.0/16", node)
    name = cidr.replace("/", "-")
    assert claim_cidr(reconciler, "10.77.0.0/16", node) == cidr
    assert claim_cidr(reconciler, "10.77.0.0/16", "n-another") != cidr
    cluster.admin.create(NODE, {"metadata": {"name": node}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr]}})
    until(lambda: phase(cluster, name) == "Assigned")
    address = {"podUID": "u", "podName": "p", "podNamespace": "default", "nodeName": node}
    cluster.admin.create(POD_ADDRESS, {"metadata": {"name": "10.77.0.2"}, "spec": address})
    cluster.admin.delete(NODE, node)
    until(lambda: phase(cluster, name) == "Quarantined")
    with pytest.raises(Forbidden):
        reconciler.delete(POD_CIDR, name)
    assert claim_cidr(reconciler, "10.77.0.0/16", "n-third") != cidr
    assert "10.77.0.2" in [objects.name(each) for each in cluster.admin.list(POD_ADDRESS).items]
    cluster.admin.delete(POD_CIDR, name)
    until(lambda: "10.77.0.2" not in [objects.name(each) for each in cluster.admin.list(POD_ADDRESS).items])
    assert claim_cidr(reconciler, "10.77.0.0/16", "n-fourth") == cidr
    reconciler.close()
