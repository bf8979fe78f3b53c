"""Virtual machines in plans, and what their controllers say of what was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.informer import Informer
from minik8s_modules.controllers.core.acting import Owner
from minik8s_modules.controllers.core.steps import Create
from minik8s_modules.controllers.simulation import extended
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from minik8s_virtual_machines import installation, simulation
from minik8s_virtual_machines.api.defaults import with_defaults
from minik8s_virtual_machines.api.kinds import VM, VMI
from minik8s_virtual_machines.controllers.asking import Reports
from minik8s_virtual_machines.controllers.machines import decide_machine, instance_of
from minik8s_virtual_machines.controllers.shells import InstanceController, MachineController, ReplicaSetController
from tests.support.machines_world import machine
from tests.support.workloads import NOW
from tests.unit.extensions.test_machine_decisions import READY, status, vm, vmi


def test_a_plan_shows_the_pod_that_a_machine_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extended, "entry_points", lambda group: [Point()] if group == extended.GROUP else [])
    extended._found.cache_clear()
    try:
        made = with_defaults(machine("one"))
        status = {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}
        found = simulated_rollout([Change("create", made)], [], [], [node], NOW)
        (pod_made,) = [each for each in found.pods.values() if each is not None]
        assert pod_made["metadata"]["name"].startswith("virt-launcher-one-")
        assert pod_made["spec"]["nodeName"] == "n1"
        assert [each["workload"] for each in found.order] == ["VirtualMachine/one"]
        assert not simulated_rollout([Change("create", {**made, "spec": {**made["spec"], "runStrategy": "Halted"}})],
                            [], [], [node], NOW).pods  # fmt: skip
    finally:
        extended._found.cache_clear()


class Point:
    """An entry point as an installed package has one."""

    name = value = "virtual-machines"

    def load(self) -> Callable[[], Any]:
        """Return what it names."""
        return simulation.deciders


def test_deciders_that_cannot_be_loaded_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Point):
        """One whose package is broken."""

        def load(self) -> Callable[[], Any]:
            raise ImportError("no such module")

    monkeypatch.setattr(extended, "entry_points", lambda **_asked: [Broken()])
    extended._found.cache_clear()
    try:
        assert extended.extended() == {}
    finally:
        extended._found.cache_clear()


def test_objects_of_other_custom_kinds_are_none_of_ours() -> None:
    knative = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "a"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
    asked = parse_question({"objects": [{"operation": "create", "object": each} for each in (knative, service)]})
    assert [each.object for each in asked.operations] == [service]


def test_that_an_instance_could_not_be_made_is_said_and_taken_back() -> None:
    refusing = Refusing()
    refusing.create(VM, vm())
    context = Context(refusing, EventRecorder(refusing, "test"), Informers(refusing))
    controller = MachineController(context)
    owner = Owner(VM, refusing.get(VM, "one", "default"))
    step = Create(VMI, instance_of(owner.obj))
    with pytest.raises(StatusError, match="quota"):
        controller.failed(owner, controller.take(owner, [step]))
    said = refusing.get(VM, "one", "default")
    assert "quota" in (objects.condition(said, "Failure") or {})["message"]
    assert said["status"]["printableStatus"] == "Starting"
    after = status(decide_machine(said, vmi(said, "Running", conditions=[READY]), NOW))
    assert "Failure" not in {each["type"] for each in after["conditions"]}


class Refusing(FakeApi):
    """An API that makes no instances."""

    def create(self, kind: Any, obj: Any, **options: Any) -> JsonObject:
        """Refuse an instance."""
        if kind == VMI:
            raise StatusError(403, "Forbidden", "exceeded quota")
        return super().create(kind, obj, **options)


class Copies(Informers):
    """Informers that note of what they are."""

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api)
        self.kinds: set[Kind] = set()

    def of(self, kind: Kind, *indexes: str) -> Informer:
        """Return the informer."""
        self.kinds.add(kind)
        return super().of(kind, *indexes)

    def metadata_of(self, kind: Kind, *indexes: str) -> Informer:
        """Return the informer."""
        self.kinds.add(kind)
        return super().metadata_of(kind, *indexes)


def test_the_daemon_may_follow_whatever_its_controllers_keep_copies_of() -> None:
    """What it may not follow, it would ask for every second."""
    api = FakeApi()
    copies = Copies(api)
    context = Context(api, EventRecorder(api, "test"), copies)
    reports = Reports(lambda _where: None, context.clock)
    MachineController(context)
    InstanceController(context, lambda *_: {}, lambda _instance: [], reports)
    ReplicaSetController(context)
    rules = [
        rule
        for role in installation.roles()
        if (role["kind"], objects.name(role)) == ("ClusterRole", "minik8s-virtual-machines")
        for rule in role["rules"]
        if {"list", "watch"} <= {*rule["verbs"]}
    ]
    may = {(group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]}
    assert {(kind.group, kind.plural) for kind in copies.kinds} <= may
