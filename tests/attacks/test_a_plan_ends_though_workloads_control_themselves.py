"""Attack: a workload that names itself as its controller, so that whoever plans its Pods keeps a reconciler busy."""

from __future__ import annotations

import threading

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, SimulatedRollout, simulated_rollout
from tests.support.workloads import NOW
from tests.unit.reconcile.planning.test_simulated_rollouts import deployment, node, running


def _controlled(obj: JsonObject, by: JsonObject) -> JsonObject:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": objects.name(by), "uid": objects.uid(by)}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [{**reference, "controller": True}]}}


def _other() -> JsonObject:
    made = deployment(0)
    made["metadata"] = {**made["metadata"], "name": "other", "uid": "uid-other"}
    return made


@pytest.mark.parametrize("by", ["itself", "another"])
def test_a_plan_ends(by: str):
    nodes = [node("a")]
    known, pods = running(2, nodes)
    changed, other = deployment(2, "web:2"), _other()
    above = changed if by == "itself" else other
    known = [_controlled(each, above) if each["kind"] == "Deployment" else each for each in known]
    changed, known = _controlled(changed, above), [*known, _controlled(other, changed)]
    found = list[SimulatedRollout]()

    def plan() -> None:
        found.append(simulated_rollout([Change("update", changed)], known, pods, nodes, NOW))

    thread = threading.Thread(target=plan, daemon=True)
    thread.start()
    thread.join(60)
    assert [step["action"] for step in found[0].order] == ["create", "delete", "create", "delete"]
