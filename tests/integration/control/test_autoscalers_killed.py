"""Controllers that are killed while autoscalers scale, on the real API server: every target ends where it is to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, EVENT, HORIZONTAL_POD_AUTOSCALER
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.informer import Informer
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import PlayingNode
from tests.support.waiting import until

AUTOSCALERS, PATIENCE_S = 20, 120.0


@pytest.fixture
def controllers(cluster: Cluster) -> Iterator[Daemon]:
    daemon = cluster.daemon("controllers").start()
    yield daemon
    assert daemon.stop() == 0


class Seen:
    """Which numbers of replicas each deployment of a namespace was ever given."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        self.replicas: defaultdict[str, list[int]] = defaultdict(list)
        self._informer = Informer(cluster.admin, DEPLOYMENT, space)
        self._informer.add_handler(self._on)
        self._informer.start()

    def _on(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        found, count = self.replicas[objects.name(new or {})], objects.spec(new or {}).get("replicas", 0)
        if found[-1:] != [count]:
            found.append(count)

    def stop(self) -> None:
        """End."""
        self._informer.stop()


def scaled(cluster: Cluster, space: str, replicas: int) -> int:
    found = cluster.admin.list(DEPLOYMENT, space).items
    return sum(objects.spec(one)["replicas"] == replicas for one in found)


def all_scaled(cluster: Cluster, space: str, replicas: int) -> bool:
    return scaled(cluster, space, replicas) == AUTOSCALERS


def bounds(cluster: Cluster, space: str, least: int, most: int) -> None:
    for number in range(AUTOSCALERS):
        body: Any = {"spec": {"minReplicas": least, "maxReplicas": most}}
        cluster.admin.patch(HORIZONTAL_POD_AUTOSCALER, f"h{number}", space, body)


def test_killed_while_they_scale_each_target_ends_within_its_bounds(
    cluster: Cluster, controllers: Daemon, node: PlayingNode
):
    space = cluster.namespace()
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    for number in range(AUTOSCALERS):
        meta = {"name": f"w{number}", "namespace": space}
        labels = {"matchLabels": {"app": "x", "number": str(number)}}
        own = {**template, "metadata": {"labels": labels["matchLabels"]}}
        cluster.admin.create(
            DEPLOYMENT, {"metadata": meta, "spec": {"replicas": 1, "selector": labels, "template": own}}
        )
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"w{number}"}
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2}
        cluster.admin.create(HORIZONTAL_POD_AUTOSCALER, {"metadata": {**meta, "name": f"h{number}"}, "spec": spec})
    seen = Seen(cluster, space)
    try:
        for least, most, wanted in ((3, 4, 3), (1, 2, 2)):
            bounds(cluster, space, least, most)
            until(partial(scaled, cluster, space, wanted), PATIENCE_S)
            controllers.kill9()
            controllers.start()
            until(partial(all_scaled, cluster, space, wanted), PATIENCE_S)
        # Without metrics, what is desired is not written again after a kill between the scale and the status.
        until(lambda: all(status.get("currentReplicas") == 2 for status in statuses(cluster, space)), PATIENCE_S)
    finally:
        seen.stop()
    assert {tuple(found) for found in seen.replicas.values()} == {(1, 3, 2)}
    assert {one["reason"] for one in cluster.admin.list(EVENT, space).items} >= {"SuccessfulRescale"}


def statuses(cluster: Cluster, space: str) -> list[JsonObject]:
    return [objects.status(one) for one in cluster.admin.list(HORIZONTAL_POD_AUTOSCALER, space).items]
