"""Silent nodes and taints: the controllers as a process, kubectl, a real API server; a thread plays the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT, NODE, POD
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.playing import PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0
UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.fixture(scope="module")
def playing(cluster: Cluster) -> Iterator[PlayingNode]:
    node = PlayingNode(cluster.admin).start()
    yield node
    node.stop()


def says(cluster: Cluster, node: str, status: str) -> None:
    ready = {"conditions": [{"type": "Ready", "status": status}]}
    cluster.admin.patch(NODE, node, "", {"status": ready}, subresource="status")


def taints(cluster: Cluster, node: str) -> set[tuple[str, str]]:
    return {(each["key"], each["effect"]) for each in objects.spec(cluster.admin.get(NODE, node)).get("taints") or []}


def left(cluster: Cluster, space: str) -> set[str]:
    return {objects.name(each) for each in cluster.admin.list(POD, space).items}


def reasons(cluster: Cluster, space: str) -> set[tuple[str, str]]:
    """Return the reasons of a namespace's Events, each with the object it is of."""
    return {(each["reason"], each["involvedObject"]["name"]) for each in cluster.admin.list(EVENT, space).items}


def test_a_silent_node_loses_its_pods_when_they_tolerate_it_no_more(
    cluster: Cluster, daemon: Daemon, playing: PlayingNode
):
    space, silent, other = cluster.namespace(), cluster.node(), cluster.node()
    soon: dict[str, Any] = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    cluster.admin.create(POD, pod("soon", space, nodeName=silent, tolerations=[soon]))
    cluster.admin.create(POD, pod("later", space, nodeName=silent))
    cluster.admin.create(POD, pod("elsewhere", space, nodeName=other, tolerations=[soon]))
    says(cluster, silent, "Unknown")
    until(lambda: taints(cluster, silent) == {(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")}, PATIENCE_S)
    until(lambda: left(cluster, space) == {"later", "elsewhere"}, PATIENCE_S)
    until(lambda: ("TaintManagerEviction", "soon") in reasons(cluster, space), PATIENCE_S)
    says(cluster, silent, "True")
    until(lambda: not taints(cluster, silent), PATIENCE_S)
    for name in (silent, other):
        cluster.admin.delete(NODE, name)


def test_kubectl_taint_drives_pods_out(cluster: Cluster, daemon: Daemon, playing: PlayingNode):
    space, node = cluster.namespace(), cluster.node()
    tolerated = {"key": "example.com/bad", "operator": "Exists"}
    cluster.admin.create(POD, pod("goes", space, nodeName=node))
    cluster.admin.create(POD, pod("stays", space, nodeName=node, tolerations=[tolerated]))
    cluster.server.kubectl("taint", "node", node, "example.com/bad=yes:NoExecute")
    until(lambda: left(cluster, space) == {"stays"}, PATIENCE_S)
    cluster.admin.delete(NODE, node)
