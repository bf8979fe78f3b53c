"""``kubectl cordon``, ``drain`` and ``uncordon`` on workers with real pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.membership.members import Members
from tests.support.clusters import standing
from tests.support.clusters.standing import NAMESPACE

APP = "app=moved"


@pytest.fixture
def schedulable(members: Members) -> Iterator[Members]:
    """The cluster, whose nodes take pods again afterwards, and have none of the test."""
    yield members
    members.cluster.kubectl("uncordon", *members.cluster.ready_nodes())
    members.clear()


def places(members: Members) -> dict[str, str]:
    """Return the nodes of the test's pods by uid."""
    return {one["metadata"]["uid"]: one["spec"].get("nodeName", "") for one in standing.pods(members.cluster, APP)}


def test_a_cordoned_node_gets_no_pod_and_a_drained_one_loses_its_pods_to_others(schedulable: Members):
    cluster = schedulable.cluster
    first, *others = sorted(cluster.ready_nodes(), reverse=True)
    spread = standing.deployment("moved", 3, standing.server_spec(), kind="ReplicaSet")

    cluster.kubectl("cordon", *others)
    cluster.apply(spread)
    cluster.until(lambda: standing.all_ready(cluster, 3, APP))
    crowded = places(schedulable)
    assert set(crowded.values()) == {first}, "its pods would be spread, were the others not cordoned"
    assert "SchedulingDisabled" in cluster.kubectl("get", "node", others[0])

    cluster.kubectl("uncordon", *others)
    done = cluster.kubectl("drain", first, "--ignore-daemonsets", "--timeout=80s")
    assert done.count("evicted") == 3, done
    cluster.until(lambda: standing.all_ready(cluster, 3, APP) and len(places(schedulable)) == 3)
    moved = places(schedulable)
    assert not moved.keys() & crowded.keys()
    assert first not in moved.values()

    cluster.kubectl("uncordon", first)
    cluster.kubectl("scale", "replicaset/moved", "--replicas=5", "-n", NAMESPACE)
    cluster.until(lambda: standing.all_ready(cluster, 5, APP))
    assert standing.ready_on(cluster, APP, first) >= 1, "it is the emptiest, and takes pods again"
    assert moved.items() <= places(schedulable).items(), "nobody was moved back"
