"""Which pods a pod that names its node must fit beside: those the node took, and of those that come, the older ones."""

from __future__ import annotations

from typing import Any

from minik8s_modules.reconcile.pods.node_admission import arriving_beside

SCHEDULED = [{"type": "PodScheduled", "status": "True"}]


def pod(name: str, second: int = 0, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "a", "uid": name, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    return {"metadata": {**meta, **more.pop("metadata", {})}, "spec": {"nodeName": "n"}, "status": more}


def beside(one: dict[str, Any], *others: dict[str, Any], taken: tuple[str, ...] = ()) -> list[str] | None:
    found = arriving_beside(one, lambda: [one, *others], lambda uid: uid in taken)
    return None if found is None else [each["metadata"]["name"] for each in found]


def test_of_pods_that_come_at_once_the_older_one_is_taken():
    assert beside(pod("a", 1), pod("b", 2)) == []
    assert beside(pod("b", 2), pod("a", 1)) == ["a"]


def test_what_the_node_has_taken_counts_whatever_its_age():
    assert beside(pod("a", 1), pod("b", 2), taken=("b",)) == ["b"]
    assert beside(pod("a", 1), pod("b", 2, conditions=SCHEDULED)) == ["b"]


def test_what_is_over_leaves_its_room():
    assert beside(pod("b", 2), pod("a", 1, phase="Failed", conditions=SCHEDULED)) == []


def test_a_pod_that_was_taken_or_bound_by_a_scheduler_or_is_static_is_not_asked_about():
    assert beside(pod("b", 2), pod("a", 1), taken=("b",)) is None
    assert beside(pod("b", 2, conditions=SCHEDULED), pod("a", 1)) is None
    assert beside(pod("b", 2, metadata={"annotations": {"kubernetes.io/config.mirror": "u"}}), pod("a", 1)) is None
