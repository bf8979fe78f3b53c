"""What Slurm says of a job as the status of its Pod, and of a partition as that of its node. Pure.

Slurm's words stay readable: a job that waits shows its Reason (``Resources``, ``Priority``, ``Dependency``) as the
reason of the waiting container, a job that was ended shows its state. An exit code that Slurm does not give is 128 and
SIGTERM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import GPU, PARTITION, UNAVAILABLE

_WAITING = frozenset({
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
})  # fmt: skip
_KILLED = 128 + 15
_DIGITS = 3
"""Of an exit code, or the number of a signal."""


class Ended(NamedTuple):
    """How an end is called: the Pod's reason, the container's, and the exit code where Slurm gives none."""

    pod: str
    container: str
    code: int = _KILLED


ENDS: Mapping[str, Ended] = {
    "FAILED": Ended("", "Error", 1),
    "TIMEOUT": Ended("DeadlineExceeded", "Timeout"),
    "DEADLINE": Ended("DeadlineExceeded", "Deadline"),
    "CANCELLED": Ended("Cancelled", "Cancelled"),
    "NODE_FAIL": Ended("NodeLost", "NodeFail"),
    "BOOT_FAIL": Ended("NodeLost", "BootFail"),
    "OUT_OF_MEMORY": Ended("", "OOMKilled", 137),
    "PREEMPTED": Ended("Preempted", "Preempted"),
    "REVOKED": Ended("Cancelled", "Revoked"),
    "LOST": Ended("NotFound", "NotFound"),
}
_SAYS = {
    "TIMEOUT": "Slurm ended it at its time limit",
    "CANCELLED": "it was cancelled in Slurm",
    "NODE_FAIL": "a node of the job was lost",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "Slurm ended it for another job",
    "LOST": "it was submitted, and Slurm no longer knows it",
}


def pod_status(pod: JsonObject, job: Mapping[str, Any] | None, error: tuple[str, str] | None, now: str) -> JsonObject:
    """Return the status of ``pod``, of whose job the module says ``job``, or that it cannot be submitted."""
    before = objects.status(pod)
    base = {"hostIP": before.get("hostIP"), "startTime": before.get("startTime") or now}
    base = {name: value for name, value in base.items() if value}
    if job is None:
        reason, message = error or ("Submitting", "the job has not been submitted yet")
        return _live(pod, base, "Pending", {"waiting": {"reason": reason, "message": message}}, now)
    state, number = str(job["state"]), job.get("id", "")
    if "code" in job:
        return _ended(pod, base, job, now)
    if state in _WAITING:
        reason = _camel(str(job.get("reason") or "")) or "Queued"
        message = f"job {number} is {state} in Slurm: {job.get('reason') or 'no reason given'}"
        return _live(pod, base, "Pending", {"waiting": {"reason": reason, "message": message}}, now)
    running = {"running": {"startedAt": job.get("started") or now}}
    return _live(pod, base, "Running", running, now, runs=state in {"RUNNING", "COMPLETING"})


def _camel(reason: str) -> str:
    """Return Slurm's reason as one word."""
    return "".join(part[:1].upper() + part[1:] for part in "".join(c if c.isalnum() else " " for c in reason).split())[
        :64
    ]


def _live(
    pod: JsonObject, base: JsonObject, phase: str, state: JsonObject, now: str, *, runs: bool = False
) -> JsonObject:
    reason = "" if runs else (state.get("waiting") or {}).get("reason") or "Suspended"
    message = (state.get("waiting") or {}).get("message", "")
    conditions = [
        _condition(pod, "PodScheduled", now, holds=True),
        _condition(pod, "Initialized", now, holds=True),
        *(_condition(pod, kind, now, reason, message, holds=runs) for kind in ("ContainersReady", "Ready")),
    ]
    container = {"ready": runs, "started": phase == "Running", "state": state}
    return {**base, "phase": phase, "conditions": conditions, "containerStatuses": [_container(pod, container)]}


def _ended(pod: JsonObject, base: JsonObject, job: Mapping[str, Any], now: str) -> JsonObject:
    state = str(job["state"])
    code, signal = exit_code(job)
    good = state == "COMPLETED" and code == 0
    ended = Ended("", "Completed", 0) if good else ENDS.get(state, Ended("", "Error", 1))
    words = job.get("message") or ("" if good else job.get("tail") if _wants_tail(pod) else "") or ""
    terminated = {
        "exitCode": code if good else code or ended.code,
        **({"signal": signal} if signal else {}),
        "reason": ended.container,
        "startedAt": job.get("started") or base.get("startTime") or now,
        "finishedAt": job.get("ended") or now,
        **({"message": words} if words else {}),
    }
    conditions = [
        _condition(pod, "PodScheduled", now, holds=True),
        *(
            _condition(pod, kind, now, "PodCompleted" if good else "PodFailed", holds=kind == "Initialized")
            for kind in ("Initialized", "ContainersReady", "Ready")
        ),
    ]
    says = f"job {job.get('id') or 'unknown'}: {_SAYS.get(state, state)}" if not good else ""
    container = {"ready": False, "started": False, "state": {"terminated": terminated}}
    return {
        **base,
        "phase": "Succeeded" if good else "Failed",
        **({"reason": ended.pod} if ended.pod and not good else {}),
        **({"message": says} if says else {}),
        "conditions": conditions,
        "containerStatuses": [_container(pod, container)],
    }


def _wants_tail(pod: JsonObject) -> bool:
    containers = objects.containers(pod)
    return bool(containers) and containers[0].get("terminationMessagePolicy") == "FallbackToLogsOnError"


def exit_code(job: Mapping[str, Any]) -> tuple[int, int]:
    """Return the program's exit code and the signal that ended it; a signal counts as 128 more, as in a shell.

    Where memory ran out, Slurm says ``0:125`` in place of both: its own SIG_OOM, which is no signal.
    """
    if job.get("state") == "OUT_OF_MEMORY":
        return 0, 0
    code, _, signal = str(job.get("code") or "").partition(":")
    numbers = tuple(int(word) if word.isdecimal() and len(word) <= _DIGITS else 0 for word in (code, signal))
    return (128 + numbers[1] if numbers[1] else numbers[0]), numbers[1]


def _container(pod: JsonObject, changes: JsonObject) -> JsonObject:
    container = (objects.containers(pod) or [{}])[0]
    base = {"name": container.get("name", "job"), "image": container.get("image", ""), "imageID": "", "restartCount": 0}
    return {**base, **changes}


def _condition(pod: JsonObject, kind: str, now: str, reason: str = "", message: str = "", *, holds: bool) -> JsonObject:
    status = "True" if holds else "False"
    before = objects.condition(pod, kind) or {}
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    words = {"reason": reason, "message": message}
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or now,
        **{name: text for name, text in words.items() if text and not holds},
    }


def cancelled(pod: JsonObject, now: str) -> JsonObject:
    """Return the status of a deleted Pod whose job is cancelled; one that has ended stays as it is."""
    if objects.status(pod).get("phase") in {"Succeeded", "Failed"}:
        return objects.status(pod)
    base = {name: objects.status(pod).get(name) for name in ("hostIP", "startTime") if objects.status(pod).get(name)}
    return _ended(pod, base, {"state": "CANCELLED", "code": "0:15"}, now)


def stub(uid: str, name: str) -> JsonObject:
    """Return what is known of a Pod whose job was found: whose it is."""
    namespace, _, own = name.partition("/")
    metadata = {"namespace": namespace, "name": own, "uid": uid, "labels": {}, "annotations": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": {}}


# --- the node ------------------------------------------------------------------------------------------------


def node_status(
    node: JsonObject, partition: Mapping[str, Any] | None, trouble: str, shape: tuple[int, int], now: str
) -> JsonObject:
    """Return ``node`` with what its partition has; ``trouble`` says why nothing is known now.

    ``shape`` is how many Pods there may be, and how often resources are given away. What is unreachable stays Ready:
    its jobs go on, and a node that is not ready would have them evicted, which cancels them.
    """
    status = dict(objects.status(node))
    if partition is not None:
        pods, often = shape
        capacity = _amounts(partition, pods, 1)
        status = {**status, "capacity": capacity, "allocatable": _amounts(partition, pods, often)}
    kept = [one for one in status.get("conditions") or [] if one["type"] not in {"Ready", UNAVAILABLE}]
    ready, words = _readiness(partition)
    status["conditions"] = [
        *kept,
        _node_condition(node, "Ready", now, *words, holds=ready),
        _node_condition(node, UNAVAILABLE, now, "NoAnswer" if trouble else "Answers", trouble, holds=bool(trouble)),
    ]
    labels = objects.labels(node) | ({PARTITION: str(partition["name"])} if partition is not None else {})
    return {**node, "metadata": {**objects.metadata(node), "labels": labels}, "status": status}


def _readiness(partition: Mapping[str, Any] | None) -> tuple[bool, tuple[str, str]]:
    if partition is None:
        return False, ("PartitionUnknown", "Slurm has not been asked yet, or did not answer")
    name, states = partition["name"], partition.get("states") or {}
    if not partition["nodes"]:
        return False, ("NoSuchPartition", f"Slurm has no partition {name}, or it has no nodes")
    counted = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    if not partition["up"]:
        return True, ("PartitionDown", f"partition {name} starts no jobs (its nodes: {counted}); jobs wait")
    return True, ("PartitionUp", f"partition {name}: {counted}")


def _amounts(partition: Mapping[str, Any], pods: int, often: int) -> JsonObject:
    found = {
        "cpu": str(int(partition["cpus"]) * often),
        "memory": f"{int(partition['memory_mb']) * often}Mi",
        "pods": str(pods),
    }
    return {**found, GPU: str(int(partition["gpus"]) * often)} if partition["gpus"] else found


def _node_condition(node: JsonObject, kind: str, now: str, reason: str, message: str, *, holds: bool) -> JsonObject:
    status = "True" if holds else "False"
    before = objects.condition(node, kind) or {}
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }
