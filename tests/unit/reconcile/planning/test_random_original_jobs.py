"""Random Jobs of the original: the Pods that a plan says will be made are those that the controller makes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEGACY_JOB, NODE, POD
from minik8s_modules.api.nodes.virtual_nodes import TYPE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.controllers.batch.original_jobs import PROVIDER_TAINT, OriginalJobController
from minik8s_modules.controllers.simulation.deciders import DECIDERS, LOOKED_AT
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from minik8s_modules.reconcile.planning.virtual_pods import on_virtual_nodes
from tests.support.load.storms import Manager, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE
from tests.unit.reconcile.planning.test_random_rollouts import node


def job(dice: random.Random, name: str) -> JsonObject:
    spec = {
        "partition": "batch",
        "threadNum": dice.randint(1, 4),
        "cpu_per_task": dice.randint(1, 4),
        "gpu-num": dice.randint(0, 2),
        "file": "result",
        "codePath": dice.choice(["a.cu", "a.c", "a.sh"]),
        "source": "int main() {}",
    }
    metadata = {"name": name, "namespace": SPACE, "generation": 1}
    return {"apiVersion": "v1", "kind": "Job", "metadata": metadata, "spec": spec}


def asked(pods: Iterable[JsonObject]) -> Counter[str]:
    """Return how many Pods of each Job ask for what."""
    found = ((objects.labels(pod), objects.containers(pod)[0]["resources"]["limits"]) for pod in pods)
    return Counter(f"{labels['slurm.minik8s.io/job-name']} {sorted(limits.items())}" for labels, limits in found)


@pytest.mark.parametrize("seed", range(10))
def test_the_pods_of_a_plan_are_those_that_are_made(seed: int):
    dice = random.Random(seed)
    api = StormyApi(seed, stormy=False)
    machine = node("batch", 20)  # a Slurm partition is a virtual node, which only Pods of its own kind tolerate
    machine["metadata"]["labels"] |= {"slurm.minik8s.io/partition": "batch", TYPE: "virtual-kubelet"}
    machine["spec"]["taints"] = [{"key": PROVIDER_TAINT, "value": "slurm", "effect": "NoSchedule"}]
    machine["status"]["allocatable"]["nvidia.com/gpu"] = "64"
    api.create(NODE, machine)
    jobs = [job(dice, f"job-{number}") for number in range(dice.randint(1, 4))]
    known = [obj for kind in (*DECIDERS, *LOOKED_AT) for obj in api.list(kind).items]
    plan = simulated_rollout([Change("create", each) for each in jobs], known, [], [machine], SystemClock().now())
    pods = [pod for pod in plan.pods.values() if pod is not None]
    planned = asked(pods)
    assert {objects.spec(pod).get("nodeName") for pod in pods} == {"batch"}
    (note,) = on_virtual_nodes(plan.pods, [machine])
    assert "node batch is virtual" in note.text
    manager = Manager(api, OriginalJobController)
    manager.start()
    try:
        for each in jobs:
            api.create(LEGACY_JOB, each)
        until(lambda: len(api.list(POD).items) == len(jobs))
        until(lambda: all(objects.status(each) for each in api.list(LEGACY_JOB).items))
    finally:
        manager.stop()
    assert asked(api.list(POD).items) == planned
