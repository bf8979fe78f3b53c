"""Every namespace gets its account and its authorities from a real controller process, killed or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from minik8s_modules.api.objects import uid
from minik8s_modules.api.pods.account_volumes import ROOT_CA
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.waiting import until


@pytest.fixture
def controllers(cluster: Cluster) -> Iterator[Daemon]:
    daemon = cluster.daemon("controllers").start()
    yield daemon
    daemon.stop()


def published(cluster: Cluster, namespace: str) -> str:
    """Return the authorities the namespace publishes, "" while account or authorities are missing."""
    try:
        cluster.admin.get(SERVICE_ACCOUNT, "default", namespace)
        return str(cluster.admin.get(CONFIG_MAP, ROOT_CA, namespace)["data"]["ca.crt"])
    except NotFound:
        return ""


def test_what_a_namespace_needs_is_made_and_comes_back(cluster: Cluster, controllers: Daemon):
    trusted = cluster.server.authority.ca.read_text()
    name = cluster.namespace()
    assert until(lambda: published(cluster, name)) == trusted
    former = uid(cluster.admin.get(SERVICE_ACCOUNT, "default", name))
    cluster.admin.delete(SERVICE_ACCOUNT, "default", name)
    cluster.admin.patch(CONFIG_MAP, ROOT_CA, name, {"data": {"ca.crt": "forged"}})
    until(lambda: published(cluster, name) == trusted)
    assert uid(cluster.admin.get(SERVICE_ACCOUNT, "default", name)) != former
    cluster.admin.delete(NAMESPACE, name)
    until(lambda: name not in [each["metadata"]["name"] for each in cluster.admin.list(NAMESPACE).items])


def test_a_large_namespace_goes_though_api_server_and_controllers_are_killed_meanwhile(
    cluster: Cluster, controllers: Daemon
):
    name, many = cluster.namespace(), 300  # three requests of the controllers'
    for number in range(many):
        cluster.admin.create(CONFIG_MAP, {"metadata": {"name": f"c{number}", "namespace": name}})

    def left() -> int:
        return len(cluster.admin.list(CONFIG_MAP, name).items)

    cluster.admin.delete(NAMESPACE, name)
    until(lambda: left() < many)
    cluster.server.kill9()
    cluster.server.start()
    controllers.kill9()
    controllers.start()
    until(lambda: name not in [each["metadata"]["name"] for each in cluster.admin.list(NAMESPACE).items], 120)
    assert left() == 0


def test_a_killed_controller_leaves_nothing_half_done(cluster: Cluster, controllers: Daemon):
    trusted = cluster.server.authority.ca.read_text()
    names = [cluster.namespace() for _ in range(10)]
    controllers.kill9()
    controllers.start()
    until(lambda: all(published(cluster, name) == trusted for name in names), 60)
