"""Quotas: the controllers as a process, two real API servers on one etcd, twenty who create and delete at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, Invalid, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, POD, RESOURCE_QUOTA
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.waiting import until

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, cluster: Cluster) -> Iterator[ApiClient]:
    """A client of another API server on the same etcd."""
    server = ApiServerProcess(tmp_path_factory.mktemp("second") / "api", etcd.endpoint).start()
    client = ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key)
    yield client
    client.close()
    server.stop()


def limited(cluster: Cluster, **hard: str) -> str:
    space = cluster.namespace()
    declared = {"hard": {name.replace("_", "/"): amount for name, amount in hard.items()}}
    cluster.admin.create(RESOURCE_QUOTA, {"metadata": {"name": "q", "namespace": space}, "spec": declared})
    until(lambda: status(cluster, space).get("hard"), PATIENCE_S)
    return space


def status(cluster: Cluster, space: str) -> dict[str, Any]:
    return objects.status(cluster.admin.get(RESOURCE_QUOTA, "q", space))


def test_twenty_creators_never_exceed_a_quota(cluster: Cluster, daemon: Daemon, second: ApiClient):
    space = limited(cluster, pods="10")
    most: list[int] = []

    def attempt(number: int) -> bool:
        client = (cluster.admin, second)[number % 2]
        name = f"p-{uuid.uuid4().hex[:8]}"
        try:
            client.create(POD, pod(name, space))
        except Forbidden:
            return False
        most.append(len(cluster.admin.list(POD, space).items))
        if number % 4 == 0:  # some go again, and the controller counts meanwhile
            client.delete(POD, name, space, grace_s=0)
        return True

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(attempt, range(120)))
    assert max(most) <= 10
    assert sum(done) >= 10
    left = len(cluster.admin.list(POD, space).items)
    until(lambda: status(cluster, space)["used"] == {"pods": str(left)}, PATIENCE_S)


def test_what_is_deleted_or_ends_frees_its_share(cluster: Cluster, daemon: Daemon):
    space = limited(cluster, pods="2", count_configmaps="2")
    # kube-root-ca.crt counts, too
    until(lambda: status(cluster, space)["used"]["count/configmaps"] == "1", PATIENCE_S)
    cluster.admin.create(CONFIG_MAP, {"metadata": {"name": "a", "namespace": space}})
    for name in ("a", "b"):
        cluster.admin.create(POD, pod(name, space))
    done = cluster.server.kubectl("-n", space, "describe", "quota", "q").stdout
    assert [line.split() for line in done.splitlines() if line.startswith(("count/", "pods"))] == [
        ["count/configmaps", "2", "2"],
        ["pods", "2", "2"],
    ]
    for kind, obj in ((POD, pod("c", space)), (CONFIG_MAP, {"metadata": {"name": "b", "namespace": space}})):
        with pytest.raises(Forbidden, match="exceeded quota"):
            cluster.admin.create(kind, obj)
    cluster.admin.patch(POD, "a", space, {"status": {"phase": "Failed"}}, subresource="status")
    cluster.admin.delete(CONFIG_MAP, "a", space)
    until(lambda: status(cluster, space)["used"] == {"pods": "1", "count/configmaps": "1"}, PATIENCE_S)
    cluster.admin.create(POD, pod("c", space))


def test_a_controller_that_was_away_counts_what_went_meanwhile(cluster: Cluster, daemon: Daemon):
    space = limited(cluster, pods="2")
    cluster.admin.create(POD, pod("a", space))
    daemon.kill9()
    cluster.admin.delete(POD, "a", space, grace_s=0)
    assert status(cluster, space)["used"] == {"pods": "1"}
    cluster.admin.patch(RESOURCE_QUOTA, "q", space, {"spec": {"hard": {"pods": "3"}}})
    daemon.start()
    until(lambda: status(cluster, space) == {"hard": {"pods": "3"}, "used": {"pods": "0"}}, PATIENCE_S)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hard": {"pods": "1.5"}}, "spec.hard"),
        ({"hard": {"bananas": "1"}}, "must be a standard resource for quota"),
        ({"hard": {"secrets": "1"}, "scopes": ["BestEffort"]}, "unsupported scope applied to resource"),
        ({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
        (
            {
                "hard": {"pods": "1"},
                "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
            },
            "must be at least one value",
        ),
    ],
)
def test_bad_quotas_are_refused_with_their_field(cluster: Cluster, spec: dict[str, Any], field: str):
    with pytest.raises(Invalid, match=field):
        cluster.admin.create(RESOURCE_QUOTA, {"metadata": {"name": "bad", "namespace": "default"}, "spec": spec})
    with pytest.raises(StatusError):
        cluster.admin.get(RESOURCE_QUOTA, "bad", "default")
