"""Random rollouts: the pods that a plan says come and go are those that the real controllers make and delete.

Controllers run on an API in memory beside a scheduler and a node that makes pods ready. ``MINIK8S_PLAN_SCENARIOS``
says how many rollouts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock, rfc3339
from minik8s_modules.controllers.batch.job_controller import JobController
from minik8s_modules.controllers.core.pods import is_active, is_ready
from minik8s_modules.controllers.simulation.deciders import DECIDERS, LOOKED_AT
from minik8s_modules.controllers.workloads.daemonsets import DaemonSetController
from minik8s_modules.controllers.workloads.deployments import DeploymentController
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController
from minik8s_modules.controllers.workloads.statefulsets import StatefulSetController
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, Unrolled, unrolled
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.deciding import decide_node
from tests.support.load.storms import Manager, Readier, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE, workload

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "40"))
CONTROLLERS: Mapping[Kind, tuple[Any, ...]] = {
    DEPLOYMENT: (ReplicaSetController, DeploymentController),
    REPLICA_SET: (ReplicaSetController,),
    DAEMON_SET: (DaemonSetController,),
    STATEFUL_SET: (StatefulSetController,),
    JOB: (JobController,),
}
# what is due is a matter of the time; a ReplicationController is decided as a ReplicaSet
ELSEWHERE = {CRON_JOB, REPLICATION_CONTROLLER}


def test_every_kind_that_makes_pods_is_rolled():
    assert set(DECIDERS) <= CONTROLLERS.keys() | ELSEWHERE


def node(name: str, pods: int) -> JsonObject:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": str(pods)}
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": amounts, "conditions": conditions}}


class Scenario:
    """A workload as it is made first, and as it is changed to, from one seed."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.kind = dice.choice([*CONTROLLERS])
        self.nodes = [node(f"n{number}", dice.choice([3, 20])) for number in range(dice.randint(1, 3))]
        told: dict[str, Any] = {}
        if self.kind in {DEPLOYMENT, REPLICA_SET, STATEFUL_SET}:
            told["replicas"] = dice.randint(0, 5)
        if self.kind is DEPLOYMENT:
            surge = dice.randint(0, 2)
            rolling = {"maxSurge": surge, "maxUnavailable": dice.randint(0 if surge else 1, 2)}
            ways = [{"type": "RollingUpdate", "rollingUpdate": rolling}, {"type": "Recreate"}]
            told |= {"strategy": dice.choice(ways), "minReadySeconds": 0}
        if self.kind is STATEFUL_SET:
            told |= {"serviceName": "peers", "podManagementPolicy": dice.choice(["OrderedReady", "Parallel"])}
            told |= {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": dice.randint(0, 2)}}}
        if self.kind is DAEMON_SET:
            told |= {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}
            told |= {"revisionHistoryLimit": 10}
        if self.kind is STATEFUL_SET:
            told |= {"revisionHistoryLimit": 10}
        if self.kind is JOB:
            told |= {"completions": dice.randint(1, 6), "parallelism": dice.randint(0, 4), "backoffLimit": 6}
        self.first, self.then = dict(told), dict(told)
        if "replicas" in told and dice.random() < 0.7:
            self.then["replicas"] = dice.randint(0, 5)
        if self.kind is JOB:
            self.then["parallelism"] = dice.randint(0, 4)
        elif dice.random() < 0.7:
            self.then["image"] = "web:2"

    def fits(self) -> bool:
        """Return whether all pods find a place at every moment: where some do not, timing decides which."""
        room = sum(int(one["status"]["allocatable"]["pods"]) for one in self.nodes)
        return room >= 14 or self.kind is DAEMON_SET


class Machines(Readier):
    """Plays scheduler and nodes: binds pods, makes them ready a while later, and removes those that are deleted."""

    def __init__(self, api: StormyApi, nodes: Iterable[JsonObject]) -> None:
        self._nodes = [*nodes]
        super().__init__(api)

    def _run(self) -> None:
        while not self._over.wait(0.05):
            bound = [pod for pod in self._api.list(POD).items if objects.spec(pod).get("nodeName")]
            for pod in bound:
                if objects.is_deleting(pod):
                    self._remove(pod)
                elif not objects.status(pod):
                    self._ready(pod)
            for pod in self._api.list(POD).items:
                if not objects.spec(pod).get("nodeName"):
                    self._bind(pod)

    def _bind(self, pod: JsonObject) -> None:
        bound = [each for each in self._api.list(POD).items if objects.spec(each).get("nodeName")]
        name = decide_node(pod, Snapshot.of(self._nodes, bound, len(bound))).node
        if name:
            _tried(lambda: self._api.patch(POD, objects.name(pod), SPACE, {"spec": {"nodeName": name}}))

    def _remove(self, pod: JsonObject) -> None:
        _tried(lambda: self._api.delete(POD, objects.name(pod), SPACE, grace_s=0, uid=objects.uid(pod)))

    def _ready(self, pod: JsonObject) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(SystemClock().now())}
        body = {"status": {"phase": "Running", "conditions": [ready]}}
        _tried(lambda: self._api.patch(POD, objects.name(pod), SPACE, body, subresource="status"))


def _tried(write: Callable[[], Any]) -> None:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - the pod may be gone
        assert "not found" in str(error)  # noqa: PT017 - whatever else it is


def owner(pod: JsonObject) -> str:
    """Return what tells pods apart that a plan tells apart: owner, image, and their name where they have one."""
    found = objects.controller_of(pod) or {}
    named = objects.name(pod) if found.get("kind") == "StatefulSet" else ""
    place = objects.spec(pod).get("nodeName", "") if found.get("kind") == "DaemonSet" else ""
    image = objects.spec(pod)["containers"][0]["image"]
    return f"{found.get('kind')}/{found.get('name')} {named}{place} {image}"


class Rolled:
    """The cluster of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.api = StormyApi(1, stormy=False)
        for one in scenario.nodes:
            self.api.create(NODE, one)
        self.api.seen = self._seen
        self.pods: dict[str, JsonObject] = {}
        self._manager = Manager(self.api, *CONTROLLERS[scenario.kind])
        self._manager.start()
        self._machines = Machines(self.api, scenario.nodes)

    def stop(self) -> None:
        """End."""
        self._machines.stop()
        self._manager.stop()

    def _seen(self, kind: Kind, verb: str) -> None:
        if kind == POD and verb != "delete":
            self.pods |= {objects.uid(pod): pod for pod in self.api.list(POD).items}

    def active(self) -> list[JsonObject]:
        """Return the pods there are."""
        return [pod for pod in self.api.list(POD).items if is_active(pod)]

    def plan(self, change: Change) -> Unrolled:
        """Return what a plan says."""
        known = [obj for kind in (*DECIDERS, *LOOKED_AT) for obj in self.api.list(kind).items]
        return unrolled([change], known, self.active(), self.scenario.nodes, SystemClock().now())

    def follow(self, planned: Unrolled, change: Callable[[], object]) -> None:
        """Have it so, and expect the pods that were planned to come and go."""
        before = {objects.uid(pod): pod for pod in self.active()}
        gone = {uid for uid, pod in planned.pods.items() if pod is None}
        made = [pod for pod in planned.pods.values() if pod is not None]
        stand = Counter(owner(pod) for pod in [*made, *(pod for uid, pod in before.items() if uid not in gone)])
        comes = [step["pod"] for step in planned.order if step["action"] == "create"]
        # one that goes again before anything is ready is not made at all where controllers are slow
        passing = {step["pod"] for step in planned.order if step["action"] == "delete" and step["pod"] in comes}
        passing &= {step["pod"] for step in planned.order if step.get("nameUnknown")}
        change()
        try:
            until(lambda: self._is(stand), 60)
        except AssertionError as error:
            raise AssertionError(f"planned {stand}, found {Counter(map(owner, self.active()))}") from error
        assert 0 <= len(comes) - len(self.pods.keys() - before) <= len(passing), "as many come as were planned"
        assert self.plan(Change("update", self.live())).order == (), "and nothing more follows"

    def _is(self, stand: Counter[str]) -> bool:
        pods = self.active()
        return Counter(map(owner, pods)) == stand and all(map(is_ready, pods))

    def live(self) -> JsonObject:
        """Return the workload."""
        return self.api.get(self.scenario.kind, "web", SPACE)


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_what_a_plan_says_of_pods_is_what_happens(seed: int):
    scenario = Scenario(seed)
    if not scenario.fits():
        scenario.nodes.append(node("room", 20))
    rolled, kind = Rolled(scenario), scenario.kind
    try:
        first = workload(kind, scenario.first)
        rolled.follow(rolled.plan(Change("create", first)), lambda: rolled.api.create(kind, first))
        then = {**rolled.live(), "spec": workload(kind, scenario.then)["spec"]}
        then["metadata"] = {**then["metadata"], "generation": objects.generation(then) + 1}
        body = {"metadata": {"generation": objects.generation(then)}, "spec": then["spec"]}
        rolled.follow(rolled.plan(Change("update", then)), lambda: rolled.api.patch(kind, "web", SPACE, body))
    finally:
        rolled.stop()
