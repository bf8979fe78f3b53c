"""The cause is the one nearest to the fault."""

from __future__ import annotations

import pytest

from minik8s_modules.cli.causes.diagnosis import find_cause


def pod(**status):
    metadata = {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": status}


def no_node(_name):
    return None


def waiting(reason, message="", **more):
    return {"name": "app", "state": {"waiting": {"reason": reason, "message": message}}, **more}


def test_a_container_that_cannot_be_pulled_is_the_cause():
    status = pod(phase="Pending", containerStatuses=[waiting("ErrImagePull", "no such image")])
    assert find_cause(status, [], no_node) == "container app: ErrImagePull: no such image"


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ({"exitCode": 3, "reason": "Error"}, "(Error: it exited with 3)"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "(OOMKilled: it exited with 137)"),
        ({"exitCode": 127, "reason": "StartError", "message": "no such file"}, "(StartError: no such file)"),
    ],
)
def test_a_crash_loop_tells_the_end_before(ended, told):
    entry = waiting("CrashLoopBackOff", "back-off 10s", lastState={"terminated": ended})
    assert (
        find_cause(pod(containerStatuses=[entry]), [], no_node)
        == f"container app: CrashLoopBackOff: back-off 10s {told}"
    )


def test_a_container_on_its_way_is_no_cause():
    assert find_cause(pod(phase="Pending", containerStatuses=[waiting("ContainerCreating")]), [], no_node) == ""
    held = waiting("ContainerCreating", "no such volume")
    assert find_cause(pod(containerStatuses=[held]), [], no_node) == "container app: ContainerCreating: no such volume"


def test_an_unscheduled_pod_is_explained_by_its_condition():
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    assert find_cause(pod(phase="Pending", conditions=[condition]), [], no_node) == (
        "PodScheduled: Unschedulable: 0/1 nodes are available"
    )


def test_memory_pressure_that_is_false_is_good_news():
    condition = {"type": "MemoryPressure", "status": "False", "reason": "Enough", "message": "enough memory"}
    assert find_cause(pod(conditions=[condition]), [], no_node) == ""


def test_a_warning_explains_a_pending_pod_only():
    event = {"type": "Warning", "reason": "FailedMount", "message": "no such config map"}
    assert find_cause(pod(phase="Pending"), [event], no_node) == "FailedMount: no such config map"
    assert find_cause(pod(phase="Running"), [event], no_node) == ""


def test_a_pod_whose_node_does_not_answer_says_so_first():
    bound = {**pod(phase="Running"), "spec": {"nodeName": "n1"}}
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "no lease"}]}}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert find_cause(bound, [], lambda _name: lost) == "node n1 is not ready: no lease"
    assert find_cause(bound, [], no_node) == "node n1 does not exist"
    assert find_cause(bound, [], lambda _name: ready) == ""
