"""Cascades: the controllers as a process, kubectl, a real API server; a thread plays the node."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, DEPLOYMENT, NODE, POD, REPLICA_SET
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0


def deployment(cluster: Cluster, space: str, replicas: int = 3) -> None:
    labels = {"app": "web"}
    spec = {"containers": [{"name": "app", "image": "minik8s/busybox:1"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    declared = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "web", "namespace": space}, "spec": declared})
    until(lambda: len(cluster.admin.list(POD, space).items) == replicas, PATIENCE_S)


def count(cluster: Cluster, kind: Any, space: str) -> int:
    return len(cluster.admin.list(kind, space).items)


@pytest.mark.parametrize("cascade", ["foreground", "background", "orphan"])
def test_cascades_of_kubectl(cluster: Cluster, daemon: Daemon, node: PlayingNode, cascade: str):
    space = cluster.namespace()
    deployment(cluster, space)
    kubectl = cluster.server.kubectl
    kubectl("-n", space, "delete", "deployment/web", f"--cascade={cascade}", f"--timeout={PATIENCE_S:.0f}s")
    if cascade == "orphan":
        [orphan] = cluster.admin.list(REPLICA_SET, space).items
        assert objects.owner_references(orphan) == []
        assert count(cluster, POD, space) == 3
        kubectl("-n", space, "delete", "rs", "--all", "--cascade=orphan", f"--timeout={PATIENCE_S:.0f}s")
        assert all(not objects.owner_references(pod) for pod in cluster.admin.list(POD, space).items)
        assert count(cluster, POD, space) == 3
        return
    if cascade == "foreground":
        assert count(cluster, POD, space) == 0, "kubectl waits for the owner, and the owner for its pods"
        assert count(cluster, REPLICA_SET, space) == 0
    until(lambda: count(cluster, POD, space) == count(cluster, REPLICA_SET, space) == 0, PATIENCE_S)


def test_killed_in_the_middle_it_goes_on(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    deployment(cluster, space, 12)
    cluster.admin.delete(DEPLOYMENT, "web", space, propagation="Foreground")
    daemon.kill9()
    daemon.start()
    until(lambda: count(cluster, POD, space) == count(cluster, DEPLOYMENT, space) == 0, PATIENCE_S)


def test_a_namespace_goes_in_the_foreground_too(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    deployment(cluster, space)
    cluster.server.kubectl("delete", "namespace", space, "--cascade=foreground", f"--timeout={PATIENCE_S:.0f}s")
    assert count(cluster, POD, space) == 0


def owned(name: str, space: str, owner: dict[str, Any], kind: str) -> dict[str, Any]:
    named = {"apiVersion": "v1", "kind": kind, "name": objects.name(owner), "uid": objects.uid(owner)}
    return {"metadata": {"name": name, "namespace": space, "ownerReferences": [named]}}


def test_a_cluster_scoped_owner_and_one_that_never_was(cluster: Cluster, daemon: Daemon):
    space = cluster.namespace()
    named = cluster.node()
    owner = cluster.admin.get(NODE, named)
    cluster.admin.create(CONFIG_MAP, owned("of-node", space, owner, "Node"))
    cluster.admin.create(CONFIG_MAP, owned("of-nobody", space, {"metadata": {"name": "x", "uid": "y"}}, "ConfigMap"))
    until(lambda: not exists(cluster, "of-nobody", space), PATIENCE_S)
    assert exists(cluster, "of-node", space)
    cluster.admin.delete(NODE, named)
    until(lambda: not exists(cluster, "of-node", space), PATIENCE_S)


def exists(cluster: Cluster, name: str, space: str) -> bool:
    try:
        cluster.admin.get(CONFIG_MAP, name, space)
    except NotFound:
        return False
    return True
