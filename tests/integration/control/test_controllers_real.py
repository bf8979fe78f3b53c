"""The controllers as a process on the real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.errors import Forbidden, NotFound, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE, NAMESPACE, POD, SECRET
from minik8s_modules.client.api import ApiClient
from minik8s_modules.controllers.cleanup.events import EventController
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.waiting import until


@pytest.fixture(scope="module")
def daemon(cluster: Cluster) -> Iterator[Daemon]:
    daemon = cluster.daemon("controllers").start()
    yield daemon
    assert daemon.stop() == 0


def gone(client: ApiClient, name: str) -> bool:
    try:
        client.get(NAMESPACE, name)
    except NotFound:
        return True
    return False


def fill(client: ApiClient, space: str) -> None:
    for number in range(3):
        client.create(CONFIG_MAP, {"metadata": {"name": f"c{number}", "namespace": space}})
    client.create(SECRET, {"metadata": {"name": "s", "namespace": space}, "stringData": {"k": "v"}})
    client.create(LEASE, {"metadata": {"name": "l", "namespace": space}, "spec": {}})
    client.create(POD, pod("unbound", space))


def test_a_deleted_namespace_goes_with_everything_in_it(cluster: Cluster, daemon: Daemon):
    client, space, other = cluster.admin, cluster.namespace(), cluster.namespace()
    fill(client, space)
    fill(client, other)
    client.delete(NAMESPACE, space)
    until(lambda: gone(client, space))
    for kind in (CONFIG_MAP, SECRET, LEASE, POD):
        assert client.list(kind, space).items == []
        assert client.list(kind, other).items


def test_a_terminating_namespace_takes_nothing_new_and_waits_for_its_pods(cluster: Cluster, daemon: Daemon):
    client, space, node = cluster.admin, cluster.namespace(), cluster.node()
    client.create(POD, pod("p", space, nodeName=node))
    client.create(CONFIG_MAP, {"metadata": {"name": "kept", "namespace": space}})
    client.delete(NAMESPACE, space)
    until(lambda: client.get(POD, "p", space)["metadata"].get("deletionTimestamp"))
    with pytest.raises(Forbidden, match="being terminated"):
        client.create(CONFIG_MAP, {"metadata": {"name": "late", "namespace": space}})
    conditions = until(lambda: client.get(NAMESPACE, space)["status"].get("conditions"))
    remaining = next(each for each in conditions if each["type"] == "NamespaceContentRemaining")
    assert "pods has 1 resource instances" in remaining["message"]
    assert client.get(CONFIG_MAP, "kept", space)
    client.delete(POD, "p", space, grace_s=0)
    until(lambda: gone(client, space))


def test_killed_in_the_middle_its_successor_goes_on(cluster: Cluster, daemon: Daemon):
    client, space = cluster.admin, cluster.namespace()
    fill(client, space)
    held = {"metadata": {"name": "held", "namespace": space, "finalizers": ["example.com/keep"]}}
    client.create(CONFIG_MAP, held)
    client.delete(NAMESPACE, space)
    until(lambda: len(client.list(CONFIG_MAP, space).items) == 1)
    daemon.kill9()
    daemon.start()
    client.patch(CONFIG_MAP, "held", space, {"metadata": {"finalizers": None}})
    until(lambda: gone(client, space))


def test_the_system_namespaces_cannot_be_deleted(cluster: Cluster, daemon: Daemon):
    for name in ("default", "kube-system"):
        with pytest.raises(StatusError):
            cluster.admin.delete(NAMESPACE, name)
        assert not gone(cluster.admin, name)


def test_a_sweep_of_events_is_allowed(cluster: Cluster):
    assert EventController(cluster.client("controllers")).sweep() == 0
