"""Pods that come and go cost no daemon a file descriptor."""

from __future__ import annotations

from minik8s_modules.api.kinds import POD
from tests.support.clusters.installed import Installed, is_ready
from tests.support.clusters.orphans import descriptors

PODS = 8
MOST = 3  # a connection that is just being made anew


def come_and_go(cluster: Installed, namespace: str) -> None:
    """Start some pods at once and remove them."""
    for number in range(PODS):
        cluster.pod(f"pod-{number}", namespace)
    cluster.until(lambda: all(is_ready(pod) for pod in cluster.pods(namespace).values()), 120)
    for name in cluster.pods(namespace):
        cluster.admin.delete(POD, name, namespace, grace_s=0)
    cluster.until(lambda: not any(f"_{namespace}_" in name for name in cluster.containers()))


def test_the_second_round_of_pods_needs_no_more_descriptors_than_the_first(cluster: Installed, namespace: str) -> None:
    come_and_go(cluster, namespace)
    before = descriptors(cluster)
    come_and_go(cluster, namespace)

    def same() -> bool:
        now = descriptors(cluster)
        return now.keys() == before.keys() and all(count <= before[name] + MOST for name, count in now.items())

    cluster.until(same, 60, f"before: {before}")
