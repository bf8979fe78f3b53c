"""The first NetworkPolicy of a cluster: Namespaces and all Pods are listed before anything is decided again."""

from __future__ import annotations

import threading
from typing import Any

from minik8s_modules.api.kinds import NAMESPACE, NETWORK_POLICY, Kind
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, rests, running, until


def test_a_pod_that_comes_before_the_lists_are_there_runs_though_they_bring_nothing(monkeypatch: Any) -> None:
    cluster, may_answer = Cluster(), threading.Event()
    cluster.start()
    try:
        until(lambda: cluster.service is not None and cluster.service.loop.basis(NAME) is not None)
        listed = cluster.api.list

        def late(kind: Kind, *rest: Any, **options: Any) -> Any:
            found = listed(kind, *rest, **options)
            if kind == NAMESPACE:
                may_answer.wait(60)
            return found

        monkeypatch.setattr(cluster.api, "list", late)
        cluster.api.create(NETWORK_POLICY, {"metadata": {"name": "wall", "namespace": "default"}, "spec": {}})
        assert cluster.service is not None
        known = cluster.service.shard.objects
        until(lambda: not known.synced())
        cluster.create()
        until(lambda: known.pods_of(NAME))
        assert rests(cluster)
        assert cluster.pod()["status"] == {"phase": "Pending"}
        may_answer.set()
        until(lambda: running(cluster))
    finally:
        may_answer.set()
        cluster.stop()
