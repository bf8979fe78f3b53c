"""Whether an object is what was waited for: pure, by its kind's own rules or by conditions that the caller names.

Rollouts count as ``kubectl rollout status`` counts them (k8s.io/kubectl ``polymorphichelpers/rollout_status.go``),
other kinds by their condition Ready or Available, or their phase. A kind that says nothing of the sort is ready once it
is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


class Condition(NamedTuple):
    """A condition that must hold; without ``reason`` any will do."""

    type: str
    status: str = "True"
    reason: str = ""


class Unready(NamedTuple):
    """What is missing, in words; ``hopeless`` when waiting cannot help."""

    missing: str
    hopeless: bool = False


def judge(obj: JsonObject | None, conditions: Sequence[Condition] = ()) -> Unready | None:
    """Return what ``obj`` still lacks, None when it is ready; ``conditions`` replace the rules of its kind."""
    if obj is None:
        return Unready("it does not exist")
    if conditions:
        return next((lack for each in conditions if (lack := _lacks(obj, each))), None)
    if objects.is_deleting(obj):
        return Unready("it is being deleted")
    seen = objects.status(obj).get("observedGeneration")
    if seen is not None and seen < objects.generation(obj):
        return Unready("its controller has not seen the latest change")
    rule = _RULES.get(str(obj.get("kind")))
    return rule(obj, objects.status(obj)) if rule else None


def _lacks(obj: JsonObject, wanted: Condition) -> Unready | None:
    found = objects.condition(obj, wanted.type) or {}
    status = found.get("status", "Unknown")
    if status != wanted.status:
        text = f": {found['message']}" if found.get("message") else ""
        return Unready(f"condition {wanted.type} is {status}, not {wanted.status}{text}")
    if wanted.reason and found.get("reason") != wanted.reason:
        return Unready(f"condition {wanted.type} has the reason {found.get('reason', '')!r}, not {wanted.reason!r}")
    return None


def _pod(obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
    phase = status.get("phase")
    if phase == "Succeeded":
        return None
    if phase == "Failed":
        reason = status.get("message") or status.get("reason") or "see its containers"
        return Unready(f"the pod has failed: {reason}", hopeless=True)
    return _lacks(obj, Condition("Ready"))


def _deployment(obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
    progressing = objects.condition(obj, "Progressing") or {}
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Unready(f"it exceeded its progress deadline: {progressing.get('message', '')}", hopeless=True)
    wanted, total = objects.spec(obj).get("replicas", 1), status.get("replicas", 0)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < wanted:
        return Unready(f"{updated} of {wanted} replicas are updated")
    if total > updated:
        return Unready(f"{total - updated} old replicas have not ended")
    return None if available >= wanted else Unready(f"{available} of {wanted} replicas are available")


def _replicas(obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
    wanted, ready = objects.spec(obj).get("replicas", 1), status.get("readyReplicas", 0)
    return (
        None
        if ready >= wanted and status.get("replicas", 0) == wanted
        else Unready(f"{ready} of {wanted} replicas are ready")
    )


def _stateful_set(obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
    if status.get("updateRevision", "") != status.get("currentRevision", ""):
        return Unready(
            f"{status.get('updatedReplicas', 0)} of {objects.spec(obj).get('replicas', 1)} replicas are updated"
        )
    return _replicas(obj, status)


def _daemon_set(_obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
    if "observedGeneration" not in status:
        return Unready("its controller has not seen it")
    wanted = status.get("desiredNumberScheduled", 0)
    done = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    return None if done >= wanted else Unready(f"{done} of {wanted} pods are updated and available")


def _job(obj: JsonObject, _status: Mapping[str, Any]) -> Unready | None:
    failed = objects.condition(obj, "Failed") or {}
    if failed.get("status") == "True":
        return Unready(f"the job has failed: {failed.get('message', '')}", hopeless=True)
    return _lacks(obj, Condition("Complete"))


def _phase(wanted: str) -> Callable[[JsonObject, Mapping[str, Any]], Unready | None]:
    def rule(_obj: JsonObject, status: Mapping[str, Any]) -> Unready | None:
        phase = status.get("phase", "Unknown")
        return None if phase == wanted else Unready(f"its phase is {phase}, not {wanted}")

    return rule


_RULES: Mapping[str, Callable[[JsonObject, Mapping[str, Any]], Unready | None]] = {
    "Pod": _pod,
    "Deployment": _deployment,
    "ReplicaSet": _replicas,
    "ReplicationController": _replicas,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "Node": lambda obj, _status: _lacks(obj, Condition("Ready")),
    "APIService": lambda obj, _status: _lacks(obj, Condition("Available")),
    "CustomResourceDefinition": lambda obj, _status: _lacks(obj, Condition("Established")),
    "Namespace": _phase("Active"),
    "PersistentVolumeClaim": _phase("Bound"),
}
