"""Any daemon may die at any time: containers stay, pods under way run, statuses are right afterwards."""

from __future__ import annotations

import pytest

from tests.integration.reconcile.conftest import Cluster


@pytest.mark.parametrize("room", ["gateway", "reconcile", "scheduler"])
def test_a_daemon_killed_while_pods_start(cluster: Cluster, room: str):
    names = [f"{room}-{number}" for number in range(4)]
    cluster.create(f"{room}-before")
    cluster.until(lambda: cluster.ready(f"{room}-before"), 120)
    before = cluster.container(f"{room}-before")["containerID"]
    for name in names:
        cluster.create(name)
    cluster.until(cluster.node.ids)
    cluster.daemons[room].kill()
    cluster.daemons[room].start()
    cluster.until(lambda: all(cluster.ready(name) for name in names), 60)
    assert cluster.container(f"{room}-before")["containerID"] == before
    assert [cluster.container(name)["restartCount"] for name in names] == [0] * 4
    assert len(cluster.node.ids()) == 10
    for name in [*names, f"{room}-before"]:
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])
    cluster.until(lambda: cluster.addresses() == [])


def test_an_api_server_that_restarts_loses_no_status(cluster: Cluster):
    cluster.create("status")
    cluster.until(cluster.node.ids)
    cluster.server.stop()
    cluster.server.start()
    cluster.until(lambda: cluster.ready("status"), 120)
    cluster.server.stop()
    app = next(one for one in cluster.node.ids() if one not in cluster.node.ids("sandbox"))
    cluster.node.docker.kill(app, "SIGKILL")
    cluster.server.start()
    cluster.until(lambda: cluster.container("status")["restartCount"] >= 1 and cluster.ready("status"), 120)
    cluster.delete("status", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_reconciler_stops_cleanly_and_containers_stay(cluster: Cluster):
    cluster.create("stays")
    cluster.until(lambda: cluster.ready("stays"), 120)
    before = cluster.node.ids()
    assert cluster.daemons["reconcile"].stop() == 0
    assert cluster.node.ids() == before
    cluster.daemons["reconcile"].start()
    cluster.create("after")
    cluster.until(lambda: cluster.ready("after"), 120)
    for name in ("stays", "after"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])
