"""VirtualMachines and instances: what is decided, also when a decision is cut off after each of its steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Patch, Step, WriteStatus
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_virtual_machines.api.defaults import with_defaults
from minik8s_virtual_machines.api.kinds import REPLICA_SET, VM, VM_FINALIZER, VMI, VMI_FINALIZER
from minik8s_virtual_machines.controllers.conditions import Report
from minik8s_virtual_machines.controllers.instances import decide_instance
from minik8s_virtual_machines.controllers.machines import decide_machine, instance_of
from minik8s_virtual_machines.controllers.replicas import decide_replicas
from minik8s_virtual_machines.pods import Settings, launcher_pod
from tests.support.machines_world import machine
from tests.support.workloads import NOW

READY = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(NOW)}


def vm(strategy: str = "Always", **more: Any) -> JsonObject:
    """Return a machine that has its finalizer."""
    made = with_defaults(machine("one", strategy))
    made["metadata"] |= {"uid": "uid-vm", "generation": 1, "finalizers": [VM_FINALIZER], **more.pop("metadata", {})}
    made["status"] = more.pop("status", {})
    assert not more
    return made


def vmi(of: JsonObject, phase: str = "", **more: Any) -> JsonObject:
    """Return the instance of a machine."""
    made = instance_of(of)
    made["metadata"] |= {"uid": "uid-vmi", "generation": 1, **more.pop("metadata", {})}
    made["status"] = {"phase": phase, **more} if phase else {}
    return made


def ended(phase: str, ran_s: float) -> JsonObject:
    """Return the status of an instance that ran so long."""
    moments = [("Running", NOW - timedelta(seconds=ran_s)), (phase, NOW)]
    return {
        "phaseTransitionTimestamps": [
            {"phase": each, "phaseTransitionTimestamp": rfc3339(moment)} for each, moment in moments
        ]
    }


def kinds(steps: list[Step]) -> list[str]:
    return [type(each).__name__ for each in steps]


def status(steps: list[Step]) -> JsonObject:
    return next(each.status for each in steps if isinstance(each, WriteStatus))


@pytest.mark.parametrize(("strategy", "starts"), [
    ("Always", True), ("RerunOnFailure", True), ("Once", True), ("Manual", False), ("Halted", False),
])  # fmt: skip
def test_a_new_machine_starts_by_its_strategy(strategy: str, *, starts: bool) -> None:
    steps = decide_machine(vm(strategy), None, NOW)
    assert ("Create" in kinds(steps)) == starts
    assert status(steps)["printableStatus"] == ("Starting" if starts else "Stopped")


def test_running_is_the_older_form_of_a_strategy() -> None:
    old = vm()
    del old["spec"]["runStrategy"]
    old["spec"]["running"] = False
    assert "Create" not in kinds(decide_machine(old, None, NOW))
    old["spec"]["running"] = True
    assert "Create" in kinds(decide_machine(old, None, NOW))


@pytest.mark.parametrize(("strategy", "phase", "next_step"), [
    ("Always", "Failed", "Delete"), ("Always", "Succeeded", "Delete"),
    ("RerunOnFailure", "Failed", "WriteStatus"), ("RerunOnFailure", "Succeeded", "Delete"),
    ("Manual", "Failed", "WriteStatus"), ("Once", "Failed", "WriteStatus"), ("Halted", "Running", "Delete"),
])  # fmt: skip
def test_an_instance_that_ended_is_followed_by_the_strategy(strategy: str, phase: str, next_step: str) -> None:
    one = vm(strategy, status={"runStrategy": strategy})
    steps = decide_machine(one, vmi(one, phase, **ended(phase, 3600)), NOW)
    assert next(each for each in kinds(steps)) == next_step


def test_what_failed_is_asked_to_start_before_it_is_deleted() -> None:
    one = vm("RerunOnFailure", status={"runStrategy": "RerunOnFailure"})
    failed = vmi(one, "Failed", **ended("Failed", 3600))
    first = decide_machine(one, failed, NOW)
    assert kinds(first) == ["WriteStatus"]
    asked = {**one, "status": status(first)}
    assert kinds(decide_machine(asked, failed, NOW)) == ["Delete"]
    assert "Create" in kinds(decide_machine(asked, None, NOW))


def test_one_that_fails_soon_waits_longer_each_time() -> None:
    one = vm()
    pauses = []
    for count in range(1, 8):
        failed = vmi(one, "Failed", **ended("Failed", 1))
        failed["metadata"]["uid"] = f"uid-{count}"
        steps = decide_machine(one, failed, NOW)
        assert kinds(steps) == ["WriteStatus", "Delete"]  # it is counted before it goes
        one = {**one, "status": status(steps)}
        again = decide_machine(one, None, NOW)
        assert isinstance(again[0], Again)
        pauses.append(again[0].after_s)
        assert status(again)["printableStatus"] == "CrashLoopBackOff"
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    later = NOW + timedelta(seconds=301)
    assert "Create" in kinds(decide_machine(one, None, later))


def test_a_stop_and_a_start_are_done_one_after_the_other() -> None:
    asked = [{"action": "Stop", "uid": "uid-vmi"}, {"action": "Start"}]
    one = vm("Manual", status={"stateChangeRequests": asked, "runStrategy": "Manual"})
    steps = decide_machine(one, vmi(one, "Running"), NOW)
    assert "Delete" in kinds(steps)
    one["status"] = status(steps)
    assert one["status"]["stateChangeRequests"] == asked
    one["status"] = status(decide_machine(one, None, NOW))
    assert one["status"]["stateChangeRequests"] == asked[1:]
    assert "Create" in kinds(decide_machine(one, None, NOW))
    assert "stateChangeRequests" not in status(decide_machine(one, vmi(one, "Scheduling"), NOW))


def test_a_halted_machine_starts_paused_when_asked() -> None:
    asked = [{"action": "Start", "data": {"paused": "true"}}]
    one = vm("Halted", status={"stateChangeRequests": asked})
    (step, *_) = decide_machine(one, None, NOW)
    assert isinstance(step, Patch)
    assert step.body == {"spec": {"runStrategy": "Always"}}
    one["spec"]["runStrategy"] = "Always"
    made = next(each for each in decide_machine(one, None, NOW) if isinstance(each, Create))
    assert made.obj["spec"]["startStrategy"] == "Paused"


def test_no_second_instance_comes_while_the_first_is_going() -> None:
    going = vmi(vm(), "Running", metadata={"deletionTimestamp": rfc3339(NOW)})
    assert not {"Create", "Delete"} & set(kinds(decide_machine(vm(), going, NOW)))


def test_a_deleted_machine_keeps_its_finalizer_until_the_instance_is_gone() -> None:
    gone = vm(metadata={"deletionTimestamp": rfc3339(NOW)})
    steps = decide_machine(gone, vmi(gone, "Running"), NOW)
    assert kinds(steps)[0] == "Delete"
    assert status(steps)["printableStatus"] == "Terminating"
    (step,) = decide_machine(gone, None, NOW)
    assert isinstance(step, Patch)
    assert step.body["metadata"]["finalizers"] == []


def test_a_changed_template_asks_for_a_restart() -> None:
    one = vm()
    runs = vmi(one, "Running", conditions=[READY])
    one["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "1Gi"
    found = {each["type"]: each for each in status(decide_machine(one, runs, NOW))["conditions"]}
    assert found["RestartRequired"]["status"] == "True"
    assert found["Ready"]["status"] == "True"


# --- instances -------------------------------------------------------------------------------------------------------


def pod(of: JsonObject, phase: str = "Running", *, ready: bool = True, **meta: Any) -> JsonObject:
    """Return the launcher's pod of an instance."""
    made = launcher_pod(of, Settings())
    made["metadata"] |= {"name": "virt-launcher-one-abcde", "uid": "uid-pod", **meta}
    made["spec"]["nodeName"] = "n1"
    state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": int(phase == "Failed")}}
    made["status"] = {
        "phase": phase,
        "podIP": "10.244.0.7",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "compute", "state": state}],
    }
    return made


def decide(one: JsonObject, *pods: JsonObject, report: Report = Report(), missing: str = "") -> list[Step]:  # noqa: B008 - immutable
    return decide_instance(one, pods, launcher_pod(one, Settings()), report, missing, NOW)


def test_an_instance_gets_a_pod_and_says_so() -> None:
    steps = decide(vmi(vm()))
    assert kinds(steps) == ["Create", "WriteStatus"]
    assert status(steps)["phase"] == "Pending"
    assert isinstance(steps[0], Create)
    assert steps[0].obj["metadata"]["generateName"] == "virt-launcher-one-"
    assert steps[0].obj["metadata"]["ownerReferences"][0]["uid"] == "uid-vmi"


def test_phases_follow_the_pod() -> None:
    one = vmi(vm(), "Pending")
    assert status(decide(one, pod(one, "Running", ready=False)))["phase"] == "Scheduled"
    running = status(decide(one, pod(one)))
    assert running["phase"] == "Running"
    assert running["interfaces"][0]["ipAddress"] == "10.244.0.7"
    assert running["nodeName"] == "n1"
    assert status(decide(one, pod(one, "Succeeded")))["phase"] == "Succeeded"
    assert status(decide(one, pod(one, "Failed")))["phase"] == "Failed"


def test_a_guest_whose_pod_is_gone_has_failed_and_gets_no_other() -> None:
    steps = decide(vmi(vm(), "Running"))
    assert kinds(steps) == ["WriteStatus"]
    assert status(steps)["phase"] == "Failed"
    assert "gone" in next(e for e in status(steps)["conditions"] if e["type"] == "Ready")["message"]


def test_a_pod_that_is_evicted_ends_as_a_failure_so_that_the_guest_runs_elsewhere() -> None:
    one = vmi(vm(), "Running")
    going = pod(one, "Succeeded", deletionTimestamp=rfc3339(NOW))
    assert status(decide(one, going))["phase"] == "Running"
    assert status(decide(one))["phase"] == "Failed"


def test_a_deleted_instance_waits_until_its_pod_is_gone() -> None:
    gone = vmi(vm(), "Running", metadata={"deletionTimestamp": rfc3339(NOW)})
    assert kinds(decide(gone, pod(gone))) == ["Delete"]
    assert decide(gone, pod(gone, deletionTimestamp=rfc3339(NOW))) == []
    (step,) = decide(gone)
    assert isinstance(step, Patch)
    assert VMI_FINALIZER not in step.body["metadata"]["finalizers"]


def test_a_claim_that_is_missing_is_waited_for() -> None:
    steps = decide(vmi(vm()), missing="PersistentVolumeClaim disk not found")
    assert kinds(steps) == ["WriteStatus"]
    found = {each["type"]: each for each in status(steps)["conditions"]}
    assert found["Synchronized"]["reason"] == "FailedPvcNotFound"
    assert found["Ready"]["message"] == "PersistentVolumeClaim disk not found"


def test_conditions_say_what_the_launcher_says() -> None:
    one = vmi(vm(), "Scheduled")
    waiting = Report("Scheduled", "DiskLocked", "disk root is in use by another machine")
    found = status(decide(one, pod(one, ready=False), report=waiting))["conditions"]
    assert next(each for each in found if each["type"] == "Ready")["reason"] == "DiskLocked"
    found = status(decide(one, pod(one), report=Report("Running", paused=True, agent=True)))["conditions"]
    told = {each["type"]: each["status"] for each in found}
    assert (told["Paused"], told["AgentConnected"], told["LiveMigratable"]) == ("True", "True", "False")


def test_a_guest_on_a_silent_node_says_what_frees_its_disk() -> None:
    one = vmi(vm(), "Running")
    going = pod(one, ready=False, deletionTimestamp=rfc3339(NOW))
    found = next(each for each in status(decide(one, going))["conditions"] if each["type"] == "Ready")
    assert found["reason"] == "PodTerminating"
    assert "once node n1 is certainly off" in found["message"]
    assert "node.kubernetes.io/out-of-service" in found["message"]


# --- cut off ---------------------------------------------------------------------------------------------------------


def turns(world: World) -> list[tuple[Any, Callable[[JsonObject], list[Step]]]]:
    def of_machine(one: JsonObject) -> list[Step]:
        return decide_machine(one, world.get(VMI, objects.key(one)), NOW)

    def of_instance(one: JsonObject) -> list[Step]:
        return decide(one, *world.controlled(POD, one))

    return [(VM, of_machine), (VMI, of_instance)]


def run(world: World, most: int) -> int:
    """Take steps until none is left or ``most`` are taken; return how many were."""
    taken = 0
    while taken < most:
        before = taken
        for kind, decide_one in turns(world):
            for one in world.all(kind):
                for step in decide_one(one):
                    if isinstance(step, Again):
                        continue
                    if taken == most:
                        return taken
                    world.take(kind, one, step)
                    taken += 1
        if taken == before:
            return taken
    return taken


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Once"])
def test_killed_after_any_step_there_is_one_instance_and_one_pod(strategy: str) -> None:
    for cut in itertools.count():
        world = World([], NOW)
        world.put(VM, {**vm(strategy), "metadata": {**vm(strategy)["metadata"], "finalizers": []}})
        done = run(world, cut)
        run(world, 1000)
        assert len(world.all(VMI)) == len(world.all(POD)) == 1, cut
        assert len([each for each in world.happened if each.action == "create"]) == 2
        if done < cut:
            return


def test_killed_after_any_step_a_deleted_machine_leaves_nothing() -> None:
    for cut in itertools.count():
        world = World([], NOW)
        world.put(VM, vm())
        run(world, 1000)
        world.delete(VM, world.all(VM)[0])
        done = run(world, cut)
        run(world, 1000)
        assert not world.all(VM)
        assert not world.all(VMI)
        assert not world.all(POD)
        if done < cut:
            return


# --- replica sets ----------------------------------------------------------------------------------------------------


def test_a_replica_set_makes_what_is_missing_and_deletes_the_newest() -> None:
    template = vm()["spec"]["template"]
    owner = {
        "metadata": {"name": "set", "namespace": "default", "uid": "uid-set"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "one"}}, "template": template},
    }
    assert kinds(decide_replicas(owner, [], NOW)) == ["Create"] * 3 + ["WriteStatus"]
    found = [
        vmi(vm(), "Running", conditions=[READY], metadata={"name": name, "creationTimestamp": at})
        for name, at in (("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-02T00:00:00Z"))
    ]
    owner["spec"]["replicas"] = 1
    steps = decide_replicas(owner, found, NOW)
    assert [objects.name(each.obj) for each in steps if isinstance(each, Delete)] == ["b"]
    assert status(steps)["readyReplicas"] == 2
    assert status(steps)["labelSelector"] == "app=one"
    assert REPLICA_SET.kind == "VirtualMachineInstanceReplicaSet"
