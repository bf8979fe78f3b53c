"""What machines and instances say: why the last guest ended, what the next one waits for, what it uses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.metrics import Registry
from minik8s_modules.cli.causes.custom import custom_faults
from minik8s_virtual_machines.controllers.conditions import Report, report_of
from minik8s_virtual_machines.controllers.instances import launchers
from minik8s_virtual_machines.controllers.machines import decide_machine
from minik8s_virtual_machines.figures import Figures
from tests.support.workloads import NOW
from tests.unit.extensions.test_machine_decisions import decide, pod, status, vm, vmi


def causes(of: JsonObject) -> list[str]:
    """Return what ``minik8s why`` says of an object; it reads nothing else for that."""
    return [fault.cause for fault in custom_faults(of, cast("Any", None))]


def ended_with(*states: JsonObject) -> JsonObject:
    """Return a pod that failed: the states of its init container and its launcher."""
    found = pod(vmi(vm()), "Failed")
    found["status"]["initContainerStatuses"] = [{"name": "volumeroot-init", "state": states[0]}]
    found["status"]["containerStatuses"] = [{"name": "compute", "state": states[1]}]
    return found


DONE: JsonObject = {"terminated": {"exitCode": 0}}
WAITING: JsonObject = {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(
    ("init", "compute", "words"),
    [
        (DONE, {"terminated": {"exitCode": 1, "message": "kernel panic"}}, "kernel panic (exit code 1)"),
        (DONE, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
         "container compute ended without a message (exit code 137)"),
        ({"terminated": {"exitCode": 1, "message": "cp: can't stat '/disk/.'"}}, WAITING,
         "cp: can't stat '/disk/.' (exit code 1)"),
        (WAITING, WAITING, "nobody knows how its launcher ended"),
    ],
)  # fmt: skip
def test_a_machine_that_fails_again_and_again_says_why_its_last_guest_ended(
    init: JsonObject, compute: JsonObject, words: str
) -> None:
    one, failed = vm(), vmi(vm(), "Scheduling")
    failed["status"] = status(decide(failed, ended_with(init, compute)))
    assert failed["status"]["phase"] == "Failed"
    counted = {**one, "status": status(decide_machine(one, failed, NOW))}
    waits = status(decide_machine(counted, None, NOW))
    ready = next(each for each in waits["conditions"] if each["type"] == "Ready")
    assert (waits["printableStatus"], ready["reason"]) == ("CrashLoopBackOff", "CrashLoopBackOff")
    assert "it ended 1 time in a row soon after its start, last with " in ready["message"]
    assert words in ready["message"]
    (why,) = causes({**counted, "status": waits})
    assert words in why


@pytest.mark.parametrize(
    ("changes", "report", "reason", "words"),
    [
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                          "message": "0/1 nodes are available: 1 Insufficient devices.kubevirt.io/kvm."}]},
         Report(), "Unschedulable", "Insufficient devices.kubevirt.io/kvm"),
        ({"initContainerStatuses": [{"name": "volumeroot-init", "state": {
            "waiting": {"reason": "ErrImagePull", "message": "guest:1 is not there"}}}]},
         Report(), "ErrImagePull", "container volumeroot-init: guest:1 is not there"),
        ({"initContainerStatuses": [{"name": "volumeroot-init", "state": {"running": {}}}], "containerStatuses": []},
         Report(), "PodNotReady", "init container volumeroot-init is running"),
        ({"initContainerStatuses": [{"name": "guest-setup", "state": WAITING}], "containerStatuses": [
            {"name": "compute", "state": {"waiting": {
                "reason": "CreateContainerError", "message": "no /dev/net/tun"}}}]},
         Report(), "CreateContainerError", "container compute: no /dev/net/tun"),
        ({}, Report("Scheduled", "DiskInUse", "disk root: root.img is in use by another machine; waiting"),
         "DiskInUse", "root.img is in use"),
        ({}, Report(), "GuestNotRunning", "has not started the guest yet"),
    ],
)  # fmt: skip
def test_each_wait_stands_in_the_condition_that_why_reads(
    changes: JsonObject, report: Report, reason: str, words: str
) -> None:
    one = vmi(vm(), "Scheduling")
    waiting = pod(one, ready=False)
    waiting["status"] = {**waiting["status"], "phase": "Pending", **changes}
    one["status"] = status(decide(one, waiting, report=report))
    ready = next(each for each in one["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    machine_of_it = {**vm(), "status": status(decide_machine(vm(), one, NOW))}
    for shown in (one, machine_of_it):
        assert any(words in cause for cause in causes(shown)), causes(shown)


def test_a_guest_whose_agent_does_not_answer_says_so() -> None:
    one = vmi(vm(), "Running")
    found = status(decide(one, pod(one), report=Report("Running")))["conditions"]
    agent = next(each for each in found if each["type"] == "AgentConnected")
    assert (agent["status"], agent["message"]) == ("False", "no guest agent has answered yet")


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (Report("Running", machine="q35", accelerator="kvm"), ("True", "KVM")),
        (Report("Running", machine="q35", accelerator="tcg: the pod has no /dev/kvm"), ("False", "SoftwareEmulation")),
        (Report("Running", machine="uml", accelerator="none: the kernel is a process"), None),
        (Report("Running", machine="q35"), None),
    ],
)
def test_whether_a_pc_is_emulated_is_told(report: Report, found: tuple[str, str] | None) -> None:
    one = vmi(vm(), "Running")
    told = {each["type"]: each for each in status(decide(one, pod(one), report=report))["conditions"]}
    condition = told.get("minik8s.io/Accelerated")
    assert (condition and (condition["status"], condition["reason"])) == found


def test_what_a_launcher_says_is_taken_for_numbers_only() -> None:
    figures = {"cpu_seconds": 1.5, "resident_bytes": 7, "evil": "x", "less": -1, "yes": True}
    assert report_of({"figures": figures}).figures == {"cpu_seconds": 1.5, "resident_bytes": 7}
    assert report_of({"figures": [1]}).figures == {}
    endless = {"a": 10**400, "b": float("inf"), "c": float("nan"), "d": 1 << 63, "e": 1e19, "f": (1 << 63) - 1}
    assert report_of({"figures": endless}).figures == {"f": (1 << 63) - 1}


def test_pods_that_only_name_an_instance_as_their_owner_are_not_its_launchers() -> None:
    one = vmi(vm())
    made = pod(one)
    forged = {**made, "metadata": {**made["metadata"], "labels": {"kubevirt.io/created-by": "uid-vmi"}}}
    others = {**made, "metadata": {**made["metadata"], "labels": {"kubevirt.io": "virt-launcher"}}}
    assert launchers(one, [forged, made, others]) == [made]


class Copies:
    """Instances as an informer has them."""

    def __init__(self, *found: JsonObject) -> None:
        self.list = lambda: found


def test_what_guests_use_is_counted_as_their_launchers_say() -> None:
    registry = Registry()
    figures = Figures(registry)
    running = vmi(vm(), "Running", activePods={"uid-pod": "n1"}, nodeName="n1")
    over = vmi(vm(), "Succeeded", activePods={"uid-old": "n1"})
    said = {"uid-pod": Report(figures={"cpu_seconds": 1.5, "resident_bytes": 7.0}), "uid-old": Report(figures={"x": 1})}
    figures.counts(cast("Any", Copies(running, over)), said.__getitem__)
    labels = '{name="one",namespace="default",node="n1"}'
    lines = registry.text().splitlines()
    assert f"kubevirt_vmi_cpu_usage_seconds_total{labels} 1.5" in lines
    assert f"kubevirt_vmi_memory_resident_bytes{labels} 7.0" in lines
    assert not any(line.startswith("kubevirt_vmi_memory_unused_bytes{") for line in lines)
    figures.counts(None)  # another process leads
    assert not any(line.startswith("kubevirt_vmi_") for line in registry.text().splitlines())
