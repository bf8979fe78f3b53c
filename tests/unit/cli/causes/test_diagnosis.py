"""The cause is the one nearest to the fault."""

from __future__ import annotations

import pytest

from minik8s_modules.cli.causes.checks import judge
from tests.unit.cli.causes.logged_api import LoggedApi, put, ready_node


def pod(**status):
    metadata = {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}


def find_cause(obj, events=(), *others):
    api = LoggedApi()
    kept = put(api, obj, *others, *(event(number, one) for number, one in enumerate(events)))[0]
    return judge(kept, api.around()).cause


def event(number, expected):
    involved = {"kind": "Pod", "name": "web", "namespace": "default", "uid": "u"}
    return {
        "kind": "Event",
        "metadata": {"name": f"e{number}", "namespace": "default"},
        "involvedObject": involved,
        **expected,
    }


def waiting(reason, message="", **more):
    return {"name": "app", "state": {"waiting": {"reason": reason, "message": message}}, **more}


def test_a_container_that_cannot_be_pulled_is_the_cause():
    status = pod(phase="Pending", containerStatuses=[waiting("ErrImagePull", "no such image")])
    assert find_cause(status) == "container app: ErrImagePull: no such image"


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"exitCode": 3, "reason": "Error"}, "(Error: it exited with 3)"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "(OOMKilled: it exited with 137)"),
        ({"exitCode": 127, "reason": "StartError", "message": "no such file"}, "(StartError: no such file)"),
    ],
)
def test_a_crash_loop_tells_the_end_before(ended, expected):
    entry = waiting("CrashLoopBackOff", "back-off 10s", lastState={"terminated": ended})
    assert find_cause(pod(containerStatuses=[entry])) == f"container app: CrashLoopBackOff: back-off 10s {expected}"


def test_a_container_on_its_way_is_no_cause():
    assert find_cause(pod(phase="Pending", containerStatuses=[waiting("ContainerCreating")])) == ""
    held = waiting("ContainerCreating", "no such volume")
    assert find_cause(pod(containerStatuses=[held])) == "container app: ContainerCreating: no such volume"


def test_an_unscheduled_pod_is_explained_by_its_condition():
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    assert find_cause(pod(phase="Pending", conditions=[condition])) == (
        "PodScheduled: Unschedulable: 0/1 nodes are available"
    )


def test_memory_pressure_that_is_false_is_good_news():
    condition = {"type": "MemoryPressure", "status": "False", "reason": "Enough", "message": "enough memory"}
    node = ready_node("n2")
    node["status"]["conditions"].append(condition)
    assert find_cause(node) == ""
    condition["status"] = "True"
    assert find_cause(node) == "MemoryPressure: Enough: enough memory"


def test_a_warning_explains_a_pending_pod_only():
    warning = {"type": "Warning", "reason": "FailedMount", "message": "no such config map"}
    assert find_cause(pod(phase="Pending"), [warning]) == "FailedMount: no such config map"
    assert find_cause(pod(phase="Running"), [warning]) == ""


def test_a_pod_whose_node_does_not_answer_says_so_first():
    bound = {**pod(phase="Running"), "spec": {"nodeName": "n2"}}
    lost = ready_node("n2")
    lost["status"]["conditions"][0] |= {"status": "Unknown", "message": "no lease"}
    assert find_cause(bound, (), lost) == "node n2 is not ready: no lease"
    assert find_cause(bound) == "node n2 does not exist"
    assert find_cause(bound, (), ready_node("n2")) == ""
