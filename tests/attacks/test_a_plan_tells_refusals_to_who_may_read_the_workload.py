"""What admission says of a planned workload's Pods is told to who may read it, as it would stand in its status.

The attacks: with the right to create Deployments and plans, and to read nothing, somebody plans a Deployment to learn
of the namespace's quota, what is used of it, and what webhooks say to controllers. He may name what he can read as the
Deployment's controller, whatever that is. Of a ReplicaSet he may name a Deployment, which is told in its ReplicaSet's
place where it is there.
"""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, REPLICA_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.nodes.plan_view import shown
from minik8s_modules.controllers.core.steps import controller_reference
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulation import planned_state
from tests.support.workloads import NOW, SPACE, workload
from tests.unit.reconcile.planning.test_simulated_rollouts import deployment, node

QUOTA: JsonObject = {
    "metadata": {"name": "hidden-quota", "namespace": SPACE},
    "spec": {"hard": {"pods": "1"}},
}
SAID: list[JsonObject] = [
    {"refused": "admission webhook hidden-hook denied the request"},
    {"unknown": "admission webhook hidden-hook does not support dry run"},
]


def told(
    answers: Any,
    quotas: list[JsonObject],
    kind: str,
    controller: str = "",
    planned: JsonObject | None = None,
    *there: JsonObject,
) -> JsonObject:
    """Return what is shown to somebody who may read all objects of a kind."""
    planned = planned or deployment(3)
    if controller:
        reference = {"apiVersion": "v1", "kind": controller, "name": "mine", "uid": "u", "controller": True}
        planned["metadata"] = {**planned["metadata"], "ownerReferences": [reference]}
    body: JsonObject = {"objects": [{"operation": "create", "object": planned}]}
    made = planned_state(parse_question({**body, "admits": True}), [], [node("a")], NOW, there).made
    admission = {"pods": {key: answers or _as_declared(pod) for key, pod in made.items()}, "quotas": quotas}
    found = planned_state(parse_question({**body, "admission": admission}), [], [node("a")], NOW, there)
    answer: JsonObject = {"nodes": {}, "messages": [each.row() for each in found.messages], "order": [*found.order]}
    return shown(answer, lambda row: all(one["kind"] == kind for one in row["about"]))


def _as_declared(pod: JsonObject) -> JsonObject:
    return {"pod": pod}


@pytest.mark.parametrize(("answers", "quotas"), [*((each, []) for each in SAID), (None, [QUOTA])])
def test_who_may_not_read_the_workload_is_told_no_refusal(answers: Any, quotas: list[JsonObject]):
    assert "hidden-" in str(told(answers, quotas, "Deployment")["messages"])
    for kind, controller in (("Pod", ""), ("ReplicaSet", ""), ("ConfigMap", ""), ("ConfigMap", "ConfigMap")):
        seen = told(answers, quotas, kind, controller)
        assert "hidden-" not in str(seen)
        assert seen["hidden"]["messages"] == 1


@pytest.mark.parametrize(("answers", "quotas"), [*((each, []) for each in SAID), (None, [QUOTA])])
@pytest.mark.parametrize(
    ("reference", "is_told"),
    [
        ({}, True),
        ({"uid": "bogus"}, False),
        ({"name": "mine"}, False),
        ({"apiVersion": "v1"}, False),
        ({"kind": "DaemonSet"}, False),
    ],
)
def test_who_names_a_deployment_is_told_its_replica_sets_refusals_where_it_is_there(
    answers: Any, quotas: list[JsonObject], reference: JsonObject, *, is_told: bool
):
    above = deployment(0)
    owner = controller_reference(DEPLOYMENT, above) | reference
    below = workload(REPLICA_SET, {"replicas": 3}, "below")
    below["metadata"]["ownerReferences"] = [owner]
    seen = told(answers, quotas, "Deployment", "", below, above)
    assert ("hidden-" in str(seen)) == is_told
