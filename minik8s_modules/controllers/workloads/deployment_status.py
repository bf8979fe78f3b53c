"""The status of a Deployment: counts, and the conditions Available, Progressing and ReplicaFailure. Pure.

Source: kubernetes ``pkg/controller/deployment/{sync,progress}.go`` and ``util/deployment_util.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.owning import with_condition, without_condition
from minik8s_modules.controllers.core.pods import moment
from minik8s_modules.controllers.workloads import rollouts
from minik8s_modules.controllers.workloads.replicasets import wanted_replicas

PROGRESSING, AVAILABLE, FAILURE = "Progressing", "Available", "ReplicaFailure"
COMPLETE, TIMED_OUT, UPDATED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "ReplicaSetUpdated"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
NO_DEADLINE_S = 2**31 - 1
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def condition(kind: str, status: str, reason: str, message: str, now: datetime) -> JsonObject:
    """Return a DeploymentCondition."""
    timestamp = rfc3339(now)
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": timestamp,
        "lastTransitionTime": timestamp,
        "reason": reason,
        "message": message,
    }


def has_deadline(deployment: JsonObject) -> bool:
    """Return whether progress is watched."""
    deadline = objects.spec(deployment).get("progressDeadlineSeconds")
    return deadline is not None and deadline != NO_DEADLINE_S


def counts(deployment: JsonObject, sets: Sequence[JsonObject], new: JsonObject | None, now: datetime) -> JsonObject:
    """Return the status with counts and Available; other conditions are as they were (``calculateStatus``)."""
    able = sum(map(rollouts.available, sets))
    known = objects.status(deployment)
    numbers = {
        "replicas": sum(map(rollouts.actual, sets)),
        "updatedReplicas": rollouts.actual(new) if new is not None else 0,
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": able,
        "unavailableReplicas": max(rollouts.declared(sets) - able, 0),
        "collisionCount": int(known.get("collisionCount") or 0),
    }
    status: JsonObject = {field: count for field, count in numbers.items() if count}
    status["observedGeneration"] = objects.generation(deployment)
    enough = able >= wanted_replicas(deployment) - rollouts.limits(deployment).unavailable
    status["conditions"] = with_condition(known.get("conditions") or [], _availability(now, enough=enough))
    return status


def _sum(sets: Sequence[JsonObject], field: str) -> int:
    return sum(int(objects.status(each).get(field) or 0) for each in sets)


def _availability(now: datetime, *, enough: bool) -> JsonObject:
    if enough:
        text = "Deployment has minimum availability."
        return condition(AVAILABLE, "True", "MinimumReplicasAvailable", text, now)
    text = "Deployment does not have minimum availability."
    return condition(AVAILABLE, "False", "MinimumReplicasUnavailable", text, now)


def _count(status: JsonObject, field: str) -> int:
    return int(status.get(field) or 0)


def is_complete(deployment: JsonObject, status: JsonObject) -> bool:
    """Return whether all copies are new, available and alone (``DeploymentComplete``)."""
    wanted = wanted_replicas(deployment)
    return (
        _count(status, "updatedReplicas") == wanted
        and _count(status, "replicas") == wanted
        and _count(status, "availableReplicas") == wanted
        and _count(status, "observedGeneration") >= objects.generation(deployment)
    )


def _progresses(old: JsonObject, new: JsonObject) -> bool:
    """Return whether the rollout has come further (``DeploymentProgressing``)."""
    before, after = ([_count(status, field) for field in _COUNTS] for status in (old, new))
    return (
        after[1] > before[1]
        or after[0] - after[1] < before[0] - before[1]
        or after[2] > before[2]
        or after[3] > before[3]
    )


def timed_out(deployment: JsonObject, status: JsonObject, now: datetime) -> bool:
    """Return whether nothing has moved for longer than the progress deadline (``DeploymentTimedOut``)."""
    known = _progress(status)
    if not has_deadline(deployment) or known is None or known.get("reason") == COMPLETE:
        return False
    if known.get("reason") == TIMED_OUT:
        return True
    since = moment(str(known.get("lastUpdateTime") or ""))
    return since is not None and since + timedelta(seconds=_deadline_s(deployment)) < now


def _deadline_s(deployment: JsonObject) -> int:
    return int(objects.spec(deployment)["progressDeadlineSeconds"])


def _progress(status: JsonObject) -> JsonObject | None:
    return next((each for each in status.get("conditions") or [] if each.get("type") == PROGRESSING), None)


def of_rollout(deployment: JsonObject, sets: Sequence[JsonObject], new: JsonObject | None, now: datetime) -> JsonObject:
    """Return the status while a rollout goes on, or is done (``syncRolloutStatus``)."""
    status = counts(deployment, sets, new, now)
    conditions: list[JsonObject] = status["conditions"]
    known = _progress(objects.status(deployment))
    settled = _count(status, "replicas") == _count(status, "updatedReplicas")
    settled = settled and known is not None and known.get("reason") == COMPLETE
    if not has_deadline(deployment):
        conditions = without_condition(conditions, PROGRESSING)
    elif not settled:
        conditions = _with_progress(deployment, status, new, now)
    failure = _failure(sets, new)
    conditions = without_condition(conditions, FAILURE) if failure is None else with_condition(conditions, failure)
    return {**status, "conditions": conditions}


def _with_progress(
    deployment: JsonObject, status: JsonObject, new: JsonObject | None, now: datetime
) -> list[JsonObject]:
    what = f'ReplicaSet "{objects.name(new)}"' if new is not None else f'Deployment "{objects.name(deployment)}"'
    conditions: list[JsonObject] = status["conditions"]
    known = _progress(objects.status(deployment))
    if is_complete(deployment, status):
        text = f"{what} has successfully progressed."
        return with_condition(conditions, condition(PROGRESSING, "True", COMPLETE, text, now))
    if _progresses(objects.status(deployment), status):
        moving = condition(PROGRESSING, "True", UPDATED, f"{what} is progressing.", now)
        if known is not None and known.get("status") == "True":
            moving["lastTransitionTime"] = known.get("lastTransitionTime", moving["lastTransitionTime"])
        # replaced also when status and reason are the same: its lastUpdateTime is what the deadline counts from
        return [*without_condition(conditions, PROGRESSING), moving]
    if timed_out(deployment, status, now):
        text = f"{what} has timed out progressing."
        return with_condition(conditions, condition(PROGRESSING, "False", TIMED_OUT, text, now))
    return conditions


def _failure(sets: Sequence[JsonObject], new: JsonObject | None) -> JsonObject | None:
    """Return what a replica set cannot do, as the deployment's own; the new set's word counts first."""
    order = [*([new] if new is not None else []), *(each for each in sets if wanted_replicas(each) > 0)]
    found = next((one for each in order if (one := objects.condition(each, FAILURE)) is not None), None)
    if found is None:
        return None
    return {**found, "lastUpdateTime": found.get("lastTransitionTime")}


def paused_condition(deployment: JsonObject, now: datetime) -> JsonObject | None:
    """Return the condition Progressing to write because of a pause or its end, or None (``checkPausedConditions``)."""
    known = _progress(objects.status(deployment)) or {}
    if not has_deadline(deployment) or known.get("reason") == TIMED_OUT:
        return None
    is_paused, is_published = bool(objects.spec(deployment).get("paused")), known.get("reason") == PAUSED
    if is_paused and not is_published:
        return condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
    if is_published and not is_paused:
        return condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now)
    return None


def look_again_s(deployment: JsonObject, status: JsonObject, now: datetime) -> float | None:
    """Return in how many seconds the deadline passes if nothing moves; None when that cannot be."""
    known = _progress(status)
    if not has_deadline(deployment) or known is None or is_complete(deployment, status):
        return None
    if known.get("reason") in {TIMED_OUT, COMPLETE}:
        return None
    since = moment(str(known.get("lastUpdateTime") or ""))
    if since is None:
        return None
    # a second more: times are told in whole seconds
    left = (since + timedelta(seconds=_deadline_s(deployment)) - now).total_seconds()
    return max(left, 0.0) + 1.0
