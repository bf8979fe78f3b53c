"""Slurm's states as phases and reasons of Pods, and a partition's as conditions of its node."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.virtual.contract import is_over, new_pod
from minik8s_modules.virtual.providers.slurm import statuses

NOW = "2026-11-28T08:00:00Z"
POD = new_pod("job")


def job(state: str, **more: Any) -> dict[str, Any]:
    return {"name": "default/job", "id": 17, "state": state, **more}


@pytest.mark.parametrize(
    ("said", "phase", "reason"),
    [
        (None, "Pending", "Submitting"),
        (job("PENDING", reason="Resources"), "Pending", "Resources"),
        (job("PENDING", reason="BeginTime"), "Pending", "BeginTime"),
        (job("PENDING", reason="Nodes required for job are DOWN"), "Pending", "NodesRequiredForJobAreDOWN"),
        (job("PENDING"), "Pending", "Queued"),
        (job("CONFIGURING"), "Pending", "Queued"),
        (job("REQUEUED", reason="NodeDown"), "Pending", "NodeDown"),
        (job("REQUEUE_HOLD", reason="JobHeldAdmin"), "Pending", "JobHeldAdmin"),
        (job("RUNNING", started=NOW), "Running", ""),
        (job("COMPLETING", started=NOW), "Running", ""),
        (job("SUSPENDED", started=NOW), "Running", ""),
    ],
)
def test_a_job_that_lives(said: dict[str, Any] | None, phase: str, reason: str):
    status = statuses.pod_status(POD, said, None, NOW)
    state = status["containerStatuses"][0]["state"]
    assert (status["phase"], state.get("waiting", {}).get("reason", "")) == (phase, reason)
    ready = objects.condition({"status": status}, "Ready") or {}
    assert ready["status"] == ("True" if said and said["state"] in {"RUNNING", "COMPLETING"} else "False")


@pytest.mark.parametrize(
    ("said", "phase", "of_pod", "of_container", "code"),
    [
        (job("COMPLETED", code="0:0"), "Succeeded", None, "Completed", 0),
        (job("FAILED", code="3:0"), "Failed", None, "Error", 3),
        (job("FAILED", code="0:9"), "Failed", None, "Error", 137),
        (job("TIMEOUT", code="0:0"), "Failed", "DeadlineExceeded", "Timeout", 143),
        (job("DEADLINE", code="0:0"), "Failed", "DeadlineExceeded", "Deadline", 143),
        (job("CANCELLED", code="0:15"), "Failed", "Cancelled", "Cancelled", 143),
        (job("REVOKED", code="0:0"), "Failed", "Cancelled", "Revoked", 143),
        (job("NODE_FAIL", code="0:0"), "Failed", "NodeLost", "NodeFail", 143),
        (job("BOOT_FAIL", code="0:0"), "Failed", "NodeLost", "BootFail", 143),
        (job("OUT_OF_MEMORY", code="0:125"), "Failed", None, "OOMKilled", 137),
        (job("PREEMPTED", code="0:0"), "Failed", "Preempted", "Preempted", 143),
        (job("LOST", code=""), "Failed", "NotFound", "NotFound", 143),
        (job("WHAT_MAY_COME", code=""), "Failed", None, "Error", 1),
    ],
)
def test_a_job_that_ended(said: dict[str, Any], phase: str, of_pod: str | None, of_container: str, code: int):
    status = statuses.pod_status(POD, said, None, NOW)
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["phase"], status.get("reason")) == (phase, of_pod)
    assert (terminated["reason"], terminated["exitCode"]) == (of_container, code)
    assert is_over({**POD, "status": status})


def test_a_failure_says_the_end_of_its_log_where_that_is_asked_for():
    said = job("FAILED", code="1:0", tail="the end", message="")
    assert "message" not in statuses.pod_status(POD, said, None, NOW)["containerStatuses"][0]["state"]["terminated"]
    pod = new_pod("job", containers=[{"name": "app", "terminationMessagePolicy": "FallbackToLogsOnError"}])
    found = statuses.pod_status(pod, said, None, NOW)["containerStatuses"][0]["state"]["terminated"]
    assert found["message"] == "the end"


def test_a_refused_job_says_why():
    status = statuses.pod_status(POD, None, ("SubmitFailed", "invalid partition"), NOW)
    waiting = {"reason": "SubmitFailed", "message": "invalid partition"}
    assert status["containerStatuses"][0]["state"] == {"waiting": waiting}


def test_a_deleted_pod_keeps_the_end_it_had():
    ended = {**POD, "status": statuses.pod_status(POD, job("COMPLETED", code="0:0"), None, NOW)}
    assert statuses.cancelled(ended, NOW) == ended["status"]
    assert is_over({**POD, "status": statuses.cancelled(POD, NOW)})


PARTITION = {
    "name": "batch", "nodes": 2, "usable": 2, "cpus": 4, "memory_mb": 2000, "gpus": 4, "up": True,
    "states": {"idle": 2},
}  # fmt: skip
NODE = {
    "metadata": {"name": "gpu", "labels": {"a": "b"}},
    "status": {"conditions": [{"type": "Other", "status": "True"}]},
}


def test_a_node_has_what_its_partition_has():
    node = statuses.node_status(NODE, PARTITION, "", (100, 2), NOW)
    assert node["status"]["capacity"] == {"cpu": "4", "memory": "2000Mi", "pods": "100", "nvidia.com/gpu": "4"}
    assert node["status"]["allocatable"] == {"cpu": "8", "memory": "4000Mi", "pods": "100", "nvidia.com/gpu": "8"}
    assert node["metadata"]["labels"] == {"a": "b", "slurm.minik8s.io/partition": "batch"}
    assert objects.condition(node, "Other")


@pytest.mark.parametrize(
    ("partition", "trouble", "ready", "reason", "away"),
    [
        (PARTITION, "", "True", "PartitionUp", "False"),
        (PARTITION, "no answer", "True", "PartitionUp", "True"),
        ({**PARTITION, "up": False}, "", "True", "PartitionDown", "False"),
        ({**PARTITION, "nodes": 0}, "", "False", "NoSuchPartition", "False"),
        (None, "no answer", "False", "PartitionUnknown", "True"),
    ],
)
def test_a_node_s_conditions(partition: Any, trouble: str, ready: str, reason: str, away: str):
    node = statuses.node_status(NODE, partition, trouble, (100, 1), NOW)
    found = objects.condition(node, "Ready") or {}
    assert (found["status"], found["reason"]) == (ready, reason)
    assert (objects.condition(node, "SlurmUnavailable") or {})["status"] == away
