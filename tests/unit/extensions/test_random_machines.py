"""Random machines: a plan shows just the pod that the real controllers make, if they make one.

Controllers run on an API in memory, beside a scheduler and nodes that make pods ready; launchers say nothing.
``MINIK8S_PLAN_SCENARIOS`` says how many.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.controllers.simulation import extended
from minik8s_modules.controllers.storage.controllers import ClaimController, VolumeController
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from minik8s_virtual_machines.api.defaults import with_defaults
from minik8s_virtual_machines.api.kinds import REPLICA_SET, VM, VMI
from minik8s_virtual_machines.controllers.asking import Reports
from minik8s_virtual_machines.controllers.conditions import Report
from minik8s_virtual_machines.controllers.shells import InstanceController, MachineController, ReplicaSetController
from minik8s_virtual_machines.main import pod_of
from minik8s_virtual_machines.pods import Settings, launcher_secrets
from minik8s_virtual_machines.pods.settings import KVM
from tests.support.load.storms import Manager, StormyApi
from tests.support.machines_world import machine
from tests.support.waiting import nap, until
from tests.support.workloads import NOW, SPACE
from tests.unit.extensions.test_machine_shells import Point
from tests.unit.reconcile.planning.test_random_rollouts import Machines, is_placed

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "14"))


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans find the extension's deciders, as where it is installed."""
    monkeypatch.setattr(extended, "entry_points", lambda group: [Point()] if group == extended.GROUP else [])
    extended._found.cache_clear()
    yield
    extended._found.cache_clear()


def node(name: str, *, kvm: bool) -> JsonObject:
    """Return a node that is ready."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "20", **({KVM: "2"} if kvm else {})}
    conditions = [{"type": "Ready", "status": "True"}]
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions},
    }  # fmt: skip


def bound(name: str) -> list[tuple[Kind, JsonObject]]:
    """Return a claim with its volume, which any node can mount."""
    modes, size = {"accessModes": ["ReadWriteOnce"]}, {"storage": "2Gi"}
    reference = {"kind": "PersistentVolumeClaim", "namespace": SPACE, "name": name}
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", "uid": "uid-volume"},
        "spec": {**modes, "capacity": size, "nfs": {"server": "192.0.2.1", "path": "/v"}, "claimRef": reference},
        "status": {"phase": "Bound"},
    }  # fmt: skip
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": SPACE, "uid": "uid-claim"},
        "spec": {**modes, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v", "storageClassName": ""},
        "status": {"phase": "Bound", "capacity": size},
    }  # fmt: skip
    return [(PERSISTENT_VOLUME, volume), (PERSISTENT_VOLUME_CLAIM, claim)]


class Scenario:
    """A machine, and the cluster that it comes into, from one seed."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.nodes = [node(f"n{number}", kvm=dice.random() < 0.4) for number in range(dice.randint(1, 3))]
        made = machine("one", dice.choice(["Always", "RerunOnFailure", "Once", "Manual", "Halted"]))
        made["metadata"]["namespace"] = SPACE
        spec = made["spec"]["template"]["spec"]
        spec["domain"] |= {"machine": {"type": dice.choice(["uml", "q35", "q35"])}}
        spec["domain"]["memory"] = {"guest": dice.choice(["64Mi", "1Gi"])}
        spec["volumes"] = [{"name": "root", "containerDisk": {"image": "guest:1"}}]
        self.storage: list[tuple[Kind, JsonObject]] = []
        if dice.random() < 0.4:
            spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
            if dice.random() < 0.6:
                self.storage = bound("data")
        if dice.random() < 0.3:
            spec["volumes"].append({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}})
        if dice.random() < 0.3:
            spec["nodeSelector"] = {"kubernetes.io/hostname": dice.choice(["n0", "nowhere"])}
        self.vm = with_defaults(made)

    def planned(self) -> list[JsonObject]:
        """Return the pods that a plan shows."""
        storage = [one for _, one in self.storage]
        found = simulated_rollout([Change("create", self.vm)], [], [], self.nodes, NOW, storage=storage)
        return [pod for pod in found.pods.values() if pod is not None]


class Silent(Reports):
    """Launchers that are never asked."""

    def of(self, instance: JsonObject, pod: JsonObject | None) -> tuple[Report, float | None]:  # noqa: ARG002
        """Return nothing."""
        return Report(), None


class Nodes(Machines):
    """Scheduler and nodes; nothing is orphaned here."""

    def _collect(self) -> None:
        """Collect nothing."""


def brief(pods: Iterable[JsonObject]) -> list[Any]:
    """Return what tells pods apart for who reads a plan."""
    return [
        {
            "name": (pod["metadata"].get("generateName") or objects.name(pod)).rpartition("-")[0],
            "labels": {key: each for key, each in objects.labels(pod).items() if key != "kubevirt.io/created-by"},
            "node": objects.spec(pod).get("nodeName", ""),
            "resources": [each.get("resources") for each in objects.containers(pod)],
            "steps": [each["name"] for each in objects.init_containers(pod)],
            "volumes": [each["name"] for each in objects.spec(pod)["volumes"]],
        }
        for pod in pods
    ]


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_a_plan_of_a_machine_is_what_its_controllers_do(seed: int) -> None:
    scenario = Scenario(seed)
    planned = brief(scenario.planned())
    api = StormyApi(1, stormy=False)
    for kind, one in [*((NODE, one) for one in scenario.nodes), *scenario.storage]:
        api.create(kind, one)
        status = {"status": objects.status(one)}
        api.patch(kind, objects.name(one), objects.namespace(one), status, subresource="status")
    pods = partial(pod_of, Settings())

    def instances(context: Any) -> InstanceController:
        return InstanceController(context, pods, launcher_secrets, Silent(lambda _: None, SystemClock()))

    manager = Manager(api, MachineController, instances, ReplicaSetController, ClaimController, VolumeController)
    manager.start()
    machines = Nodes(api, scenario.nodes)
    try:
        api.create(VM, scenario.vm)
        until(lambda: objects.status(api.get(VM, "one", SPACE)).get("printableStatus"))

        def made() -> list[Any]:
            found = [pod for pod in api.list(POD).items if is_placed(pod)]  # a plan shows those that find a place
            for pod in found:
                apply_defaults(POD, pod)
            return brief(found)

        with contextlib.suppress(AssertionError):  # told with what there is instead
            until(lambda: made() == planned and settled(api, planned))
        assert made() == planned
    finally:
        machines.stop()
        manager.stop()


def settled(api: StormyApi, planned: list[Any]) -> bool:
    """Return whether nothing more comes: the instance says what it waits for, and stays so for a moment."""
    if planned and planned[0]["node"]:
        return all((objects.condition(one, "Ready") or {}).get("status") == "True" for one in api.list(VMI).items)
    before = [objects.resource_version(one) for kind in (VM, VMI, REPLICA_SET, POD) for one in api.list(kind).items]
    nap(0)
    nap(0)
    return before == [
        objects.resource_version(one) for kind in (VM, VMI, REPLICA_SET, POD) for one in api.list(kind).items
    ]
