"""When a Job has failed or succeeded before its time: limits, podFailurePolicy, successPolicy. Pure.

Source: kubernetes ``pkg/controller/job/{pod_failure_policy,success_policy,backoff_utils}.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.batch import job_indexes as indexes
from minik8s_modules.controllers.core import pods as podlib

Action = Literal["FailJob", "FailIndex", "Ignore", "Count"]
# DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff of job_controller.go
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 10.0, 600.0
_MOST_DOUBLINGS = 6
# 30 years: the field has 64 bits, and what is added to a time must stay one
_LONGEST_S = 10**9


class Verdict(NamedTuple):
    """Why a job is over: whether it failed, and reason and message of its conditions."""

    failed: bool
    reason: str
    message: str


class Match(NamedTuple):
    """What a rule of the podFailurePolicy says about a failed pod."""

    action: Action
    message: str


def replaces_only_ended(job: JsonObject) -> bool:
    """Return whether a pod is replaced, and counted as failed, only when it has ended (podReplacementPolicy)."""
    return bool(objects.spec(job).get("podReplacementPolicy") == "Failed")


def is_failed(job: JsonObject, pod: JsonObject) -> bool:
    """Return whether the pod counts as failed: also one that is being deleted, unless the job waits for its end."""
    if podlib.phase(pod) == "Failed":
        return True
    return objects.is_deleting(pod) and podlib.phase(pod) != "Succeeded" and not replaces_only_ended(job)


# --- podFailurePolicy -------------------------------------------------------------------------------------------------


def match(job: JsonObject, pod: JsonObject) -> Match:
    """Return what the first rule that fits says; Count where none does."""
    for number, rule in enumerate(objects.dig(job, "spec", "podFailurePolicy", "rules") or []):
        action, text = rule.get("action"), f"matching {rule.get('action')} rule at index {number}"
        space, name = objects.namespace(pod), objects.name(pod)
        for container, code in _exit_codes(pod, rule.get("onExitCodes")):
            return Match(action, f"Container {container} for pod {space}/{name} failed with exit code {code} {text}")
        for kind in _conditions(pod, rule.get("onPodConditions") or []):
            return Match(action, f"Pod {space}/{name} has condition {kind} {text}")
    return Match("Count", "")


def _exit_codes(pod: JsonObject, wanted: JsonObject | None) -> Iterator[tuple[str, int]]:
    """Yield the containers that ended with one of the codes (or, for NotIn, with none of them), and not with 0."""
    if not wanted:
        return
    inside = wanted.get("operator") == "In"
    for name, state in _ended(pod):
        code = int(state.get("exitCode") or 0)
        named = wanted.get("containerName") in {None, name}
        if code and named and (code in (wanted.get("values") or [])) == inside:
            yield name, code


def _conditions(pod: JsonObject, patterns: Iterable[JsonObject]) -> Iterator[str]:
    for wanted in patterns:
        known = objects.condition(pod, str(wanted.get("type")))
        if known is not None and known.get("status") == (wanted.get("status") or "True"):
            yield str(wanted["type"])


def _ended(pod: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    status = objects.status(pod)
    for each in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        state = objects.dig(each, "state", "terminated")
        if state:
            yield str(each.get("name")), state


# --- limits -----------------------------------------------------------------------------------------------------------


def failure(job: JsonObject, pods: Sequence[JsonObject], failed: int, now: datetime) -> Verdict | None:
    """Return why the job as a whole has failed, or None; ``failed`` are the pods that count."""
    declared = objects.spec(job)
    if declared.get("podFailurePolicy"):
        found = (match(job, pod) for pod in pods if is_failed(job, pod))
        message = next((each.message for each in found if each.action == "FailJob"), None)
        if message is not None:
            return Verdict(failed=True, reason="PodFailurePolicy", message=message)
    limit = int(declared.get("backoffLimit", 6))
    if failed > limit or _restarts_too_often(declared, pods, limit):
        return Verdict(
            failed=True, reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit"
        )
    if (left := deadline_in_s(job, now)) is not None and left <= 0:
        message = "Job was active longer than specified deadline"
        return Verdict(failed=True, reason="DeadlineExceeded", message=message)
    return None


def _restarts_too_often(declared: JsonObject, pods: Iterable[JsonObject], limit: int) -> bool:
    """Return whether containers that are restarted in place have used the limit up (``pastBackoffLimitOnFailure``)."""
    if objects.dig(declared, "template", "spec", "restartPolicy") != "OnFailure":
        return False
    running = [pod for pod in pods if podlib.phase(pod) in {"Running", "Pending"}]
    total = sum(int(each.get("restartCount") or 0) for pod in running for each in _all_statuses(pod))
    return total > 0 if limit == 0 else total >= limit


def _all_statuses(pod: JsonObject) -> list[JsonObject]:
    status = objects.status(pod)
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def deadline_in_s(job: JsonObject, now: datetime) -> float | None:
    """Return in how many seconds activeDeadlineSeconds is over; None where there is none, or the job waits."""
    limit = objects.spec(job).get("activeDeadlineSeconds")
    began = podlib.moment(str(objects.status(job).get("startTime") or ""))
    paused = (objects.condition(job, "Suspended") or {}).get("status") == "True"
    if limit is None or began is None or paused or objects.spec(job).get("suspend"):
        return None
    return (began + timedelta(seconds=min(int(limit), _LONGEST_S)) - now).total_seconds()


def index_failure(job: JsonObject, done: set[int], failed: set[int]) -> Verdict | None:
    """Return why an Indexed job with a limit per index has failed, or None."""
    most = objects.spec(job).get("maxFailedIndexes")
    if most is not None and len(failed) > int(most):
        text = "Job has exceeded the specified maximal number of failed indexes"
        return Verdict(failed=True, reason="MaxFailedIndexesExceeded", message=text)
    if failed and len(done) + len(failed) >= int(objects.spec(job).get("completions") or 0):
        return Verdict(failed=True, reason="FailedIndexes", message="Job has failed indexes")
    return None


def success(job: JsonObject, done: set[int]) -> Verdict | None:
    """Return the rule of the successPolicy that is met, or None."""
    completions = int(objects.spec(job).get("completions") or 0)
    for number, rule in enumerate(objects.dig(job, "spec", "successPolicy", "rules") or []):
        named = rule.get("succeededIndexes")
        wanted = indexes.parse_indexes(named, completions) if named else set(range(completions))
        least = rule.get("succeededCount")
        if len(done & wanted) >= (len(wanted) if least is None else int(least)):
            return Verdict(failed=False, reason="SuccessPolicy", message=f"Matched rules at index {number}")
    return None


# --- back-off ---------------------------------------------------------------------------------------------------------


def ended_at(pod: JsonObject) -> datetime | None:
    """Return when the pod ended (``getFinishedTime``): its last container's end, else what else it tells."""
    ends = [podlib.moment(str(state.get("finishedAt") or "")) for _, state in _ended(pod)]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    ready = objects.condition(pod, "Ready") or {}
    since = ready.get("lastTransitionTime") if ready.get("status") == "False" else None
    meta = pod.get("metadata") or {}
    return podlib.moment(str(since or objects.deletion_timestamp(pod) or meta.get("creationTimestamp") or ""))


def backoff_s(failures: int, last: datetime | None, now: datetime) -> float:
    """Return how long the next pod waits: 10 s after a first failure, doubled by each further one, 10 min at most."""
    if failures <= 0 or last is None:
        return 0.0
    delay_s = min(FIRST_BACKOFF_S * 2 ** min(failures - 1, _MOST_DOUBLINGS), LONGEST_BACKOFF_S)
    return max(0.0, (last + timedelta(seconds=delay_s) - now).total_seconds())


def backoff_of_job_s(job: JsonObject, pods: Iterable[JsonObject], now: datetime) -> float:
    """Return how long a job waits by the failures since its last success, as its pods tell them."""
    won: list[datetime] = []
    lost: list[datetime] = []
    for pod in pods:
        if (end := ended_at(pod)) is None:
            continue
        if podlib.phase(pod) == "Succeeded":
            won.append(end)
        elif is_failed(job, pod):
            lost.append(end)
    since = max(won, default=None)
    later = [end for end in lost if since is None or end > since]
    return backoff_s(len(later), max(later, default=None), now)
