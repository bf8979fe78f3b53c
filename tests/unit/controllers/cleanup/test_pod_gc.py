"""Pod collection: each file of tests/cases/decide_pod_gc, also cut off after every step; and its shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD, REPLICA_SET
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.cleanup.pod_gc import PodGc, decide_pod_gc
from minik8s_modules.controllers.core.steps import Step
from minik8s_modules.controllers.nodes.orphans import QUARANTINE_S, OrphanController
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, pod, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_pod_gc").glob("*.yml"))


class Case:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.case = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.pods = [self._pod(each) for each in self.case["pods"]]
        self.nodes = {name: self._node(name, each) for name, each in self.case.get("nodes", {}).items()}

    @staticmethod
    def _pod(fields: dict[str, Any]) -> dict[str, Any]:
        made = pod(fields, REPLICA_SET, workload(REPLICA_SET, {}))
        if "deleting" in fields:
            made["metadata"]["deletionGracePeriodSeconds"] = 30
        if "reason" in fields:
            made["status"]["reason"] = fields["reason"]
        return made

    @staticmethod
    def _node(name: str, fields: dict[str, Any]) -> dict[str, Any]:
        taints = [{"key": fields["taint"], "effect": "NoExecute"}] if "taint" in fields else []
        status = {"conditions": [{"type": "Ready", "status": fields["ready"]}]}
        return {"metadata": {"name": name}, "spec": {"taints": taints}, "status": status}

    def steps(self, world: World) -> list[Step]:
        """Decide in a world."""
        return decide_pod_gc(world.all(POD), self.nodes, self.case["keep"], NOW)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_pod_gc(path: Path):
    case = Case(path)
    steps = case.steps(World(case.pods, NOW))
    assert [words(step) for step in steps] == case.case["steps"]
    ends = set()
    for cut in range(len(steps) + 1):
        world = World(case.pods, NOW)
        for step in [*steps[:cut]]:
            world.take(POD, case.pods[0], step)
        for step in case.steps(world):
            world.take(POD, case.pods[0], step)
        assert case.steps(world) == []
        ends.add(str(sorted(objects.name(each) for each in world.all(POD))))
    assert len(ends) == 1


def test_ended_pods_beyond_the_number_go_when_one_more_ends():
    api = FakeApi()
    context = Context(api, EventRecorder(api, "c"), Informers(api))
    controller = PodGc(context, terminated_pods=2)
    for number in range(4):
        made = {"metadata": {"name": f"p{number}", "namespace": "x"}, "status": {"phase": "Running"}}
        api.create(POD, made)
    context.informers.start()
    controller.start()
    try:
        for number in range(4):
            api.patch(POD, f"p{number}", "x", {"status": {"phase": "Succeeded"}}, subresource="status")
        until(lambda: len(api.list(POD).items) == 2)
    finally:
        controller.stop()
        context.informers.stop()
        context.pool.shutdown()


def test_a_pod_of_a_node_that_is_gone_is_said_to_have_failed_by_that():
    clock, api = FakeClock(), FakeApi(FakeClock())
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    controller = OrphanController(context)
    meta = {"name": "p", "namespace": "x", "finalizers": ["batch.kubernetes.io/job-tracking"]}
    api.create(POD, {"metadata": meta, "spec": {"nodeName": "gone"}, "status": {"phase": "Running"}})
    context.informers.start()
    try:
        until(lambda: context.informers.of(POD).list())
        controller.sync(objects.Key("", "gone"))
        clock.advance(QUARANTINE_S)
        controller.sync(objects.Key("", "gone"))
        left = api.get(POD, "p", "x")
        assert objects.is_deleting(left)
        assert objects.status(left)["phase"] == "Failed"
        condition = objects.condition(left, "DisruptionTarget") or {}
        assert (condition["reason"], condition["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")
        with pytest.raises(NotFound):
            api.get(NODE, "gone")
    finally:
        context.informers.stop()
        context.pool.shutdown()
