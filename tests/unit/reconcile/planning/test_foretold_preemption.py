"""A plan tells who would have to go for a pod that fits nowhere."""

from __future__ import annotations

from datetime import UTC, datetime

from minik8s_modules.reconcile.planning.simulation import Operation, Question, hypothesis
from tests.unit.scheduler.worlds import node, placed, pod


def test_a_plan_names_the_pods_that_would_be_preempted():
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    urgent = {"apiVersion": "v1", "kind": "Pod", **pod("urgent", containers=containers, priority=10)}
    low = placed(1, {"node": "a", "requests": {"cpu": "1"}})
    low["metadata"]["uid"] = "low"
    question = Question((Operation("create", urgent),), frozenset())
    found = hypothesis(question, [low], [node("a", cpu="1")], datetime(2026, 1, 1, tzinfo=UTC))
    assert [note.text for note in found.messages] == [
        "Pod default/urgent: 0/1 nodes are available: 1 Insufficient cpu.",
        "Pod default/urgent: it would preempt default/placed-1 on node a",
    ]
    # who may not read a victim does not hear of it
    assert [about.name for about in found.messages[1].about] == ["urgent", "placed-1"]
