"""Random rollouts: what a plan says comes and goes is what the real controllers make and delete: pods, claims, volumes.

Controllers run on an API in memory beside a scheduler and a node that makes pods ready. Some workloads have an
autoscaler, which decides once they are rolled out. ``MINIK8S_PLAN_SCENARIOS`` says how many rollouts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    LEGACY_JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    ROLLING_UPDATE,
    STATEFUL_SET,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.base import metrics
from minik8s_modules.base.clock import FakeClock, SystemClock, rfc3339
from minik8s_modules.controllers.autoscaling.controller import AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.controllers.batch.job_controller import JobController
from minik8s_modules.controllers.core.pods import is_active, is_ready
from minik8s_modules.controllers.simulation.deciders import DECIDERS, LOOKED_AT
from minik8s_modules.controllers.storage.controllers import ClaimController, VolumeController
from minik8s_modules.controllers.workloads.daemonsets import DaemonSetController
from minik8s_modules.controllers.workloads.deployments import DeploymentController
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController
from minik8s_modules.controllers.workloads.statefulsets import StatefulSetController
from minik8s_modules.reconcile.planning.simulated_admission import Admitting
from minik8s_modules.reconcile.planning.simulated_autoscalers import simulated_scaling
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, SimulatedRollout, simulated_rollout
from minik8s_modules.runtime.controller import Context
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.plugins.volume_binding import reserved
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene
from tests.support.load.storms import Manager, Readier, StormyApi
from tests.support.servers.autoscaled import Server
from tests.support.waiting import until
from tests.support.workloads import SPACE, workload

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "40"))
CONTROLLERS: Mapping[Kind, tuple[Any, ...]] = {
    DEPLOYMENT: (ReplicaSetController, DeploymentController),
    REPLICA_SET: (ReplicaSetController,),
    DAEMON_SET: (DaemonSetController,),
    STATEFUL_SET: (StatefulSetController, ClaimController, VolumeController),
    JOB: (JobController,),
}
# what is due is a matter of the time; a ReplicationController is decided as a ReplicaSet; a RollingUpdate has a file
# of its own (test_random_rolling_updates.py), as have Jobs of the original (test_random_original_jobs.py)
STORAGE = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)
MADE = "minik8s.io/hostpath"
_MOST_PODS = 14
ELSEWHERE = {CRON_JOB, LEGACY_JOB, REPLICATION_CONTROLLER, ROLLING_UPDATE}


def test_every_kind_that_makes_pods_is_rolled():
    assert set(DECIDERS) <= CONTROLLERS.keys() | ELSEWHERE


def node(name: str, pods: int) -> JsonObject:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": str(pods)}
    conditions = [{"type": "Ready", "status": "True"}]
    labels = {"kubernetes.io/hostname": name}
    status = {"allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def storage_class(mode: str, policy: str) -> JsonObject:
    parameters = {"parameters": {"node": "n0"}} if mode == "Immediate" else {}
    made = {"metadata": {"name": "disk"}, "provisioner": MADE, "reclaimPolicy": policy, "volumeBindingMode": mode}
    return made | parameters


def volume(number: int) -> JsonObject:
    spec = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    return {"metadata": {"name": f"v{number}"}, "spec": spec | {"hostPath": {"path": f"/data/{number}"}}}


def _bounds(dice: random.Random) -> tuple[int, int] | None:
    """Return the bounds of an autoscaler, or None."""
    least = dice.randint(1, 4)
    return (least, least + dice.randint(0, 2)) if dice.random() < 0.5 else None


class Scenario:
    """A workload as it is made first, and as it is changed to, from one seed."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.kind = dice.choice([*CONTROLLERS])
        self.nodes = [node(f"n{number}", dice.choice([3, 20])) for number in range(dice.randint(1, 3))]
        self.storage: list[tuple[Kind, JsonObject]] = []
        fields: dict[str, Any] = {}
        if self.kind in {DEPLOYMENT, REPLICA_SET, STATEFUL_SET}:
            fields["replicas"] = dice.randint(0, 5)
        if self.kind is DEPLOYMENT:
            surge = dice.randint(0, 2)
            rolling = {"maxSurge": surge, "maxUnavailable": dice.randint(0 if surge else 1, 2)}
            ways = [{"type": "RollingUpdate", "rollingUpdate": rolling}, {"type": "Recreate"}]
            fields |= {"strategy": dice.choice(ways), "minReadySeconds": 0}
        if self.kind is STATEFUL_SET:
            fields |= {"serviceName": "peers", "podManagementPolicy": dice.choice(["OrderedReady", "Parallel"])}
            fields |= {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": dice.randint(0, 2)}}}
        if self.kind is DAEMON_SET:
            fields |= {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}
            fields |= {"revisionHistoryLimit": 10}
        if self.kind is STATEFUL_SET:
            fields |= {"revisionHistoryLimit": 10} | self._claims(
                dice, at_once=fields["podManagementPolicy"] == "Parallel"
            )
        if self.kind is JOB:
            fields |= {"completions": dice.randint(1, 6), "parallelism": dice.randint(0, 4), "backoffLimit": 6}
        self.first, self.then = dict(fields), dict(fields)
        if "replicas" in fields and dice.random() < 0.7:
            self.then["replicas"] = dice.randint(0, 5)
        if self.kind is JOB:
            self.then["parallelism"] = dice.randint(0, 4)
        elif dice.random() < 0.7:
            self.then["image"] = "web:2"
        self.bounds = _bounds(dice) if "replicas" in fields else None

    def _claims(self, dice: random.Random, *, at_once: bool) -> dict[str, Any]:
        """Return what a StatefulSet says of claims, and decide what there is for them: a class, volumes, neither.

        Of claims that are made at once any may get the last volume: there are volumes for all of them, or for none.
        """
        if dice.random() < 0.3:
            return {}
        if dice.random() < 0.8:
            self.storage.append(
                (
                    STORAGE_CLASS,
                    storage_class(
                        dice.choice(["Immediate", "WaitForFirstConsumer"]), dice.choice(["Retain", "Delete"])
                    ),
                )
            )
        self.storage += [
            (PERSISTENT_VOLUME, volume(number))
            for number in range(dice.choice([0, 5]) if at_once else dice.randint(0, 3))
        ]
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        template = {"metadata": {"name": "data"}, "spec": {**asked, "storageClassName": "disk"}}
        policy = {when: dice.choice(["Retain", "Delete"]) for when in ("whenScaled", "whenDeleted")}
        return {"volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy}

    def make_room(self) -> None:
        """Have a place for all pods at every moment: where some have none, timing decides which.

        Volumes that are made at once are all on the first node. Pods that come one after the other wait for it in
        their order; of those that come together, any may be first.
        """
        first = self.nodes[0]["status"]["allocatable"]
        together = self.first.get("podManagementPolicy") == "Parallel" and "volumeClaimTemplates" in self.first
        if together and any(one.get("volumeBindingMode") == "Immediate" for _, one in self.storage):
            first["pods"] = "20"
        room = sum(int(one["status"]["allocatable"]["pods"]) for one in self.nodes)
        if room < _MOST_PODS and self.kind is not DAEMON_SET:
            self.nodes.append(node("room", 20))


class Steered(AutoscalerController):
    """Decides when it is told to, and not by itself."""

    def start(self) -> None:
        """Begin nothing."""

    def stop(self) -> None:
        """End nothing."""


class Machines(Readier):
    """Plays scheduler and nodes: binds pods, makes them ready a while later, and removes those that are deleted."""

    def __init__(self, api: StormyApi, nodes: Iterable[JsonObject]) -> None:
        self._nodes = [*nodes]
        self._chosen: dict[str, str] = {}
        """Nodes of pods by uid, which stay as they were chosen."""
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
            self._collect()

    def _bind(self, pod: JsonObject) -> None:
        storage = Storage.of(*(self._api.list(kind).items for kind in STORAGE))
        scene = Scene(Profiles(), storage=storage)
        decision = scene.profiles.decide(pod, scene.snapshot(pod, self._nodes, self._placed(pod)))
        node = self._chosen.get(objects.uid(pod)) or decision.node
        if not node:
            return
        self._chosen[objects.uid(pod)] = node
        claimed = reserved(decision.state, node) if decision.node == node else ()
        for kind, obj in claimed:
            _tried(partial(self._api.update, kind, obj))
        if not claimed and self._has_volumes(pod):
            _tried(lambda: self._api.patch(POD, objects.name(pod), SPACE, {"spec": {"nodeName": node}}))

    def _placed(self, pod: JsonObject) -> list[JsonObject]:
        """Return the pods that have a node, or will have one once their claims are bound."""
        others = [one for one in self._api.list(POD).items if objects.uid(one) != objects.uid(pod)]
        found = [(one, objects.spec(one).get("nodeName") or self._chosen.get(objects.uid(one))) for one in others]
        return [{**one, "spec": {**objects.spec(one), "nodeName": node}} for one, node in found if node]

    def _has_volumes(self, pod: JsonObject) -> bool:
        """Return whether all claims of a pod are bound."""
        bound = {objects.name(one) for one in self._api.list(PERSISTENT_VOLUME_CLAIM).items if claims.is_bound(one)}
        return {*PodInfo.of(pod).claims} <= bound

    def _collect(self) -> None:
        """Play the garbage collector: what is owned goes with the last of its owners."""
        there = {objects.uid(one) for kind in (POD, *DECIDERS) for one in self._api.list(kind).items}
        for kind in (REPLICA_SET, POD, PERSISTENT_VOLUME_CLAIM):
            for one in self._api.list(kind).items:
                owners = {each["uid"] for each in objects.owner_references(one)}
                if owners and not owners & there:
                    _tried(partial(self._api.delete, kind, objects.name(one), SPACE))

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


def _is_kept(pod: JsonObject, owners: Mapping[str, JsonObject]) -> bool:
    """Return whether what makes a pod in the end is there: a controller that has not heard of its end may go on."""
    above = objects.controller_of(pod)
    while above is not None and above["uid"] in owners:
        above = objects.controller_of(owners[above["uid"]])
    return above is None


def is_placed(pod: JsonObject) -> bool:
    """Return whether a pod has a node: without a volume for its claim it gets none."""
    return bool(objects.spec(pod).get("nodeName"))


def stored(found: Iterable[JsonObject]) -> Counter[str]:
    """Return claims with their phases, and what becomes of volumes: which claim gets which of several is open."""
    counted: Counter[str] = Counter()
    for one in found:
        if one["kind"] != STORAGE_CLASS.kind:
            name = objects.name(one) if one["kind"] == PERSISTENT_VOLUME_CLAIM.kind else ""
            owned = [owner["kind"] for owner in objects.owner_references(one)]
            phase = objects.status(one).get("phase") or "Pending"
            counted[f"{one['kind']} {name} {phase} {claims.holder(one) is not None} {owned}"] += 1
    return counted


def _stand(planned: SimulatedRollout, before: Mapping[str, JsonObject]) -> Counter[str]:
    """Return how many pods of each owner there are to be."""
    gone = {uid for uid, pod in planned.pods.items() if pod is None}
    made = [pod for pod in planned.pods.values() if pod is not None]
    stays = [pod for uid, pod in before.items() if uid not in gone and is_placed(pod)]
    return Counter(owner(pod) for pod in [*made, *stays])


class Reading:
    """What a plan reads with: lists of the API, and raw requests."""

    def __init__(self, api: StormyApi, server: Server) -> None:
        self.list, self.raw = api.list, server.raw


class Rolled:
    """The cluster of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.api = self.made_api()
        for kind, one in [*((NODE, one) for one in scenario.nodes), *scenario.storage]:
            self.api.create(kind, one)
        self.api.seen = self._seen
        self.pods: dict[str, JsonObject] = {}
        self.known: set[str] = set()
        self.server = Server(self.api, FakeClock(), scenario.kind)
        self._manager = Manager(self.api, *CONTROLLERS[scenario.kind], self._autoscaling)
        self._scale()
        self._manager.start()
        self._machines = Machines(self.api, scenario.nodes)
        if scenario.storage:
            self._have_volumes()

    def made_api(self) -> StormyApi:
        """Return the API."""
        return StormyApi(1, stormy=False)

    def admitting(self) -> Admitting | None:
        """Return what new pods are admitted by, None where all are as declared."""
        return None

    def _have_volumes(self) -> None:
        """Wait until the volumes are available, and controllers know: claims that come before get new ones."""
        until(lambda: all(objects.status(one).get("phase") for one in self.api.list(PERSISTENT_VOLUME).items))
        revisions = [int(objects.resource_version(one)) for one in self.api.list(PERSISTENT_VOLUME).items]
        until(partial(self._manager.context.informers.of(PERSISTENT_VOLUME).has_reached, max(revisions, default=0)))

    def stop(self) -> None:
        """End."""
        self._machines.stop()
        self._manager.stop()

    def _autoscaling(self, context: Context) -> Steered:
        figures = AutoscalerFigures(metrics.Registry())
        self._autoscalers = Steered(context, self.server, Readings(self.server, context.clock), figures)
        return self._autoscalers

    def _scale(self) -> None:
        """Make the autoscaler of the scenario, if it has one; nobody serves its metric."""
        if self.scenario.bounds is None:
            return
        least, most = self.scenario.bounds
        external = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}
        target = {"apiVersion": self.scenario.kind.api_version, "kind": self.scenario.kind.kind, "name": "web"}
        spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
        spec["metrics"] = [{"type": "External", "external": external}]
        self.api.create(HORIZONTAL_POD_AUTOSCALER, {"metadata": {"name": "web", "namespace": SPACE}, "spec": spec})

    def _autoscale(self) -> None:
        """Have the autoscaler decide, on copies that show all that was written."""
        informers = self._manager.context.informers
        for kind in (HORIZONTAL_POD_AUTOSCALER, self.scenario.kind, POD):
            revision = max((int(objects.resource_version(one)) for one in self.api.list(kind).items), default=0)
            until(partial(informers.of(kind).has_reached, revision))
        self._autoscalers.sync(objects.Key(SPACE, "web"))

    def _seen(self, kind: Kind, verb: str) -> None:
        if kind == POD and verb != "delete":
            found = {objects.uid(pod): pod for pod in self.api.list(POD).items}
            owners = {objects.uid(one): one for one in self.api.list(self.scenario.kind).items}
            owners |= {objects.uid(one): one for one in self.api.list(REPLICA_SET).items}
            self.pods |= {uid: pod for uid, pod in found.items() if _is_kept(pod, owners)}

    def active(self) -> list[JsonObject]:
        """Return the pods there are."""
        return [pod for pod in self.api.list(POD).items if is_active(pod)]

    def plan(self, change: Change) -> SimulatedRollout:
        """Return what a plan says."""
        known = [obj for kind in (*DECIDERS, *LOOKED_AT) for obj in self.api.list(kind).items]
        reading: Any = Reading(self.api, self.server)
        applied, gone = ([], [change.object]) if change.operation == "delete" else ([change.object], [])
        scaled = simulated_scaling(applied, gone, self.active(), reading, SystemClock()).scaled
        later = [Change("update", one) for one in scaled]
        assert not later or self.scenario.bounds
        result, storage = ([change], known, self.active(), self.scenario.nodes, SystemClock().now()), self.storage()
        self._unscaled = simulated_rollout(*result, storage=storage, admitting=self.admitting())
        return simulated_rollout(*result, storage=storage, later=later, admitting=self.admitting())

    def storage(self) -> list[JsonObject]:
        """Return claims, volumes and classes, as a plan reads them."""
        kinds = [(kind, one) for kind in STORAGE for one in self.api.list(kind).items]
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **one} for kind, one in kinds]

    def follow(self, planned: SimulatedRollout, change: Callable[[], object]) -> None:
        """Have it so, and expect the pods that were planned to come and go."""
        before = {objects.uid(pod): pod for pod in self.active()}
        comes = [step["pod"] for step in planned.order if step["action"] == "create"]
        # one that goes again before anything is ready is not made at all where controllers are slow
        passing = {step["pod"] for step in planned.order if step["action"] == "delete" and step["pod"] in comes}
        passing &= {step["pod"] for step in planned.order if step.get("nameUnknown")}
        there = {objects.uid(pod) for pod in self.api.list(POD).items}  # some of them go since the last change
        unscaled = self._unscaled
        change()
        self._until(unscaled, before)
        if self.scenario.bounds is not None:
            self._autoscale()
            self._until(planned, before)
        # one that gets no node is not among those that stand
        until(lambda: 0 <= len(comes) - len(self.pods.keys() - self.known - there) <= len(passing), 60)
        self.known |= self.pods.keys()
        if not self.api.list(self.scenario.kind).items:
            return
        assert self.plan(Change("update", self.live())).order == (), "and nothing more follows"

    def _until(self, planned: SimulatedRollout, before: Mapping[str, JsonObject]) -> None:
        """Wait for the pods, claims and volumes of a plan."""
        stand = _stand(planned, before)
        try:
            until(lambda: self._is(stand), 60)
            until(lambda: stored(self.storage()) == stored(planned.storage), 60)
        except AssertionError as error:
            pods, claims = (
                Counter(map(owner, self.active())),
                [stored(one) for one in (planned.storage, self.storage())],
            )
            raise AssertionError(f"planned {stand}, found {pods}; planned {claims[0]}, found {claims[1]}") from error

    def _is(self, stand: Counter[str]) -> bool:
        pods = [pod for pod in self.active() if is_placed(pod)]
        return Counter(map(owner, pods)) == stand and all(map(is_ready, pods))

    def live(self) -> JsonObject:
        """Return the workload."""
        return self.api.get(self.scenario.kind, "web", SPACE)


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_what_a_plan_says_of_pods_is_what_happens(seed: int):
    scenario = Scenario(seed)
    scenario.make_room()
    follow(Rolled(scenario))


def follow(rolled: Rolled) -> None:
    """Plan and do: a workload is made, changed and deleted."""
    scenario, kind = rolled.scenario, rolled.scenario.kind
    try:
        first = workload(kind, scenario.first)
        rolled.follow(rolled.plan(Change("create", first)), lambda: rolled.api.create(kind, first))
        then = {**rolled.live(), "spec": workload(kind, scenario.then)["spec"]}
        then["metadata"] = {**then["metadata"], "generation": objects.generation(then) + 1}
        body = {"metadata": {"generation": objects.generation(then)}, "spec": then["spec"]}
        rolled.follow(rolled.plan(Change("update", then)), lambda: rolled.api.patch(kind, "web", SPACE, body))
        rolled.follow(rolled.plan(Change("delete", rolled.live())), lambda: rolled.api.delete(kind, "web", SPACE))
    finally:
        rolled.stop()
