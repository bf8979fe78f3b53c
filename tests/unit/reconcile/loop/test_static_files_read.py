"""A node's folder of static Pods is read when the node was just observed: what runs its modules is there already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.reconcile.housekeeping.policies import Policies
from tests.unit.reconcile.loop.test_drifts import observed
from tests.unit.reconcile.loop.test_loop import Cluster, until

OBSERVED, READ = ("ingress", "full"), ("static_pods", "")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.policies = Policies(manifests="/m")
    made.start()
    yield made
    made.stop()


def is_read_after(cluster: Cluster, observations: int) -> bool:
    """Return whether there were as many observations, and a look into the folder after the last one."""
    calls = [*cluster.node.calls]
    return calls.count(OBSERVED) >= observations and READ in calls[len(calls) - calls[::-1].index(OBSERVED) :]


def test_each_observation_of_a_node_is_followed_by_a_look_into_its_folder(cluster: Cluster) -> None:
    until(lambda: is_read_after(cluster, 1))
    before = cluster.node.calls.count(OBSERVED)
    observed(cluster)
    until(lambda: is_read_after(cluster, before + 1))
