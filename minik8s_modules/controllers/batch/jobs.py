"""Jobs: pods that run to their end, as many as declared, by ``decide_job``.

    pods that ended are counted (job_tracking.py) ─▶ is it over? (job_policies.py) ─▶ yes: the rest goes, then the
    condition Complete or Failed ─▶ no: as many pods as parallelism, completions and back-off allow

Source: kubernetes ``pkg/controller/job`` (1.32). What a job waits for is derived from its pods and its status; nothing
is remembered. The order of steps: the status notes who ended, finalizers go, pods are deleted, pods are made. The shell
is job_controller.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import JOB, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.batch import job_indexes as indexes
from minik8s_modules.controllers.batch import job_policies as policies
from minik8s_modules.controllers.batch import job_tracking as tracking
from minik8s_modules.controllers.batch.job_policies import Verdict
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.owning import claim, selector_of, with_condition
from minik8s_modules.controllers.core.steps import (
    POD_CREATED,
    POD_DELETED,
    Again,
    Create,
    Delete,
    RecordEvent,
    Step,
    WriteStatus,
    pod_from_template,
)

# MaxPodCreateDeletePerSync of job_controller.go
BURST = 500
MANAGER = "kubernetes.io/job-controller"
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
# what says that a job is over while its last pods end (KEP-3939, KEP-3998)
_BEFORE = {True: "FailureTarget", False: "SuccessCriteriaMet"}
_AFTER = {True: FAILED, False: COMPLETE}


@dataclass(frozen=True)
class _Round:
    """One decision in the making: the job, its pods by what they count as, and what is known of its end."""

    job: JsonObject
    pods: Sequence[JsonObject]
    active: Sequence[JsonObject]
    terminating: Sequence[JsonObject]
    tally: tracking.Tally
    verdict: Verdict | None
    now: datetime

    @property
    def spec(self) -> JsonObject:
        """The job's spec."""
        return objects.spec(self.job)

    @property
    def suspended(self) -> bool:
        """Whether no pod is to run."""
        return bool(self.spec.get("suspend"))


def decide_job(job: JsonObject, found: Sequence[JsonObject], now: datetime) -> list[Step]:
    """Return the next steps of a job.

    Args:
        job: the object.
        found: pods that it controls, and pods that nobody controls in its namespace.
        now: of back-off, deadlines and the time to live.
    """
    if objects.spec(job).get("managedBy") not in {None, "", MANAGER}:
        return []
    # a pod that ended before it was ours is not counted: there is no telling by whom it was already
    candidates = [pod for pod in found if objects.controller_of(pod) is not None or podlib.is_active(pod)]
    claimed = claim(job, selector_of(job), POD, candidates)
    if is_over(job):
        return [*claimed.steps, *_untrack(claimed.owned), *_time_to_live(job, now)]
    this = _observe(job, claimed.owned, now)
    status = _status(this)
    steps: list[Step] = [*claimed.steps]
    if status != objects.status(job):
        steps += [WriteStatus(JOB, job, status), *_news(job, status)]
    steps += [tracking.untracked(pod) for pod in this.tally.released]
    if not objects.is_deleting(job):
        steps += _manage(this)
    return steps


def is_over(job: JsonObject) -> bool:
    """Return whether the job is Complete or Failed."""
    return end_of(job) is not None


def end_of(job: JsonObject) -> JsonObject | None:
    """Return the true condition Complete or Failed, or None."""
    known = (objects.condition(job, kind) for kind in (COMPLETE, FAILED))
    return next((each for each in known if each is not None and each.get("status") == "True"), None)


def _untrack(pods: Sequence[JsonObject]) -> list[Step]:
    return [tracking.untracked(pod) for pod in pods if tracking.is_tracked(pod)]


def _time_to_live(job: JsonObject, now: datetime) -> list[Step]:
    """Return the deletion of a job whose ttlSecondsAfterFinished is over (``pkg/controller/ttlafterfinished``)."""
    ttl = objects.spec(job).get("ttlSecondsAfterFinished")
    ended = podlib.moment(str((end_of(job) or {}).get("lastTransitionTime") or ""))
    if ttl is None or ended is None or objects.is_deleting(job):
        return []
    left_s = (ended + timedelta(seconds=int(ttl)) - now).total_seconds()
    return [Again(left_s)] if left_s > 0 else [Delete(JOB, job, propagation="Foreground")]


# --- what is --------------------------------------------------------------------------------------


def _observe(job: JsonObject, owned: Sequence[JsonObject], now: datetime) -> _Round:
    active = [pod for pod in owned if podlib.is_active(pod)]
    terminating = [pod for pod in owned if objects.is_deleting(pod) and not podlib.has_ended(pod)]
    tally = tracking.tally(job, owned, over=False)
    verdict = _known_verdict(job) or _verdict(job, owned, active, tally, now)
    if verdict is not None:
        tally = tracking.tally(job, owned, over=True)
    return _Round(job, owned, active, terminating, tally, verdict, now)


def _known_verdict(job: JsonObject) -> Verdict | None:
    """Return the verdict that an earlier round came to: it is final."""
    for failed, kind in _BEFORE.items():
        known = objects.condition(job, kind)
        if known is not None and known.get("status") == "True":
            return Verdict(failed, str(known.get("reason")), str(known.get("message")))
    return None


def _verdict(
    job: JsonObject, owned: Sequence[JsonObject], active: Sequence[JsonObject], tally: tracking.Tally, now: datetime
) -> Verdict | None:
    tracked = [pod for pod in owned if tracking.is_tracked(pod)]
    lost = policies.failure(job, tracked, tally.all_failed, now)
    if lost is None and indexes.per_index_limit(job) is not None:
        lost = policies.index_failure(job, {*tally.done}, {*tally.lost})
    if lost is not None:
        return lost
    if (won := policies.success(job, {*tally.done})) is not None:
        return won
    wanted = objects.spec(job).get("completions")
    reached = tally.all_succeeded > 0 if wanted is None else tally.all_succeeded >= int(wanted)
    if reached and not active:
        text = "Reached expected number of succeeded pods"
        return Verdict(failed=False, reason="CompletionsReached", message=text)
    return None


# --- status ---------------------------------------------------------------------------------------


def _status(this: _Round) -> JsonObject:
    """Return the status; what is 0 or empty is left out, except the noted pods and what Kubernetes always shows."""
    old, tally = objects.status(this.job), this.tally
    noted = {"succeeded": [*tally.pending_succeeded], "failed": [*tally.pending_failed]}
    status: JsonObject = {
        "conditions": _conditions(this),
        "startTime": _start_time(this),
        "completionTime": old.get("completionTime"),
        "active": len(this.active),
        "ready": sum(map(podlib.is_ready, this.active)),
        "terminating": len(this.terminating),
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "uncountedTerminatedPods": {side: uids for side, uids in noted.items() if uids},
    }
    if indexes.is_indexed(this.job):
        status["completedIndexes"] = indexes.format_indexes(tally.done)
    if indexes.per_index_limit(this.job) is not None:
        status["failedIndexes"] = indexes.format_indexes(tally.lost)
    if any(each.get("type") == COMPLETE for each in status["conditions"]):
        status["completionTime"] = rfc3339(this.now)
    always = {"ready", "terminating", "uncountedTerminatedPods"}
    return {field: value for field, value in status.items() if field in always or value}


def _start_time(this: _Round) -> str | None:
    known: str | None = objects.status(this.job).get("startTime")
    if this.suspended:
        return known
    paused = objects.condition(this.job, SUSPENDED)
    resumed = paused is not None and paused.get("status") == "True"
    return rfc3339(this.now) if known is None or resumed else known


def _conditions(this: _Round) -> list[JsonObject]:
    conditions: list[JsonObject] = objects.status(this.job).get("conditions") or []
    if (over := this.verdict) is not None:
        explanation = (over.reason, over.message)
        conditions = with_condition(conditions, _condition(_BEFORE[over.failed], "True", *explanation, this.now))
        if not this.active and not this.terminating and this.tally.is_settled:
            conditions = with_condition(conditions, _condition(_AFTER[over.failed], "True", *explanation, this.now))
    elif this.suspended and not objects.is_deleting(this.job):
        wanted = _condition(SUSPENDED, "True", "JobSuspended", "Job suspended", this.now)
        conditions = with_condition(conditions, wanted)
    elif any(each.get("type") == SUSPENDED for each in conditions):
        wanted = _condition(SUSPENDED, "False", "JobResumed", "Job resumed", this.now)
        conditions = with_condition(conditions, wanted)
    return conditions


def _condition(kind: str, status: str, reason: str, message: str, now: datetime) -> JsonObject:
    at = rfc3339(now)
    content = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**content, "lastProbeTime": at, "lastTransitionTime": at}


def _news(job: JsonObject, status: JsonObject) -> list[Step]:
    """Return the Events of conditions that the status has and the job has not."""
    found: list[Step] = []
    for each in status.get("conditions") or []:
        old = objects.condition(job, each["type"]) or {}
        if old.get("status") != each["status"] and (event := _event_of(each)) is not None:
            found.append(RecordEvent(job, *event))
    return found


def _event_of(condition: JsonObject) -> Any:
    match condition["type"], condition["status"]:
        case "Complete", _:
            return "Normal", "Completed", "Job completed"
        case "Failed", _:
            return "Warning", condition["reason"], condition["message"]
        case "Suspended", "True":
            return "Normal", "Suspended", "Job suspended"
        case "Suspended", _:
            return "Normal", "Resumed", "Job resumed"
    return None


# --- pods -----------------------------------------------------------------------------------------


def _manage(this: _Round) -> list[Step]:
    """Return the deletions and creations that are due (``manageJob``)."""
    if this.verdict is not None:
        # their finalizers went with the count
        return [Delete(POD, pod, POD_DELETED) for pod in this.active[:BURST]]
    if this.suspended:
        return _remove(this.active[:BURST])
    wanted = _wanted_active(this)
    doomed = _surplus(this, wanted)
    if doomed:
        return _remove(doomed[:BURST])
    steps: list[Step] = [tracking.tracked(pod) for pod in this.active if not tracking.is_tracked(pod)]
    missing = wanted - len(this.active)
    if policies.replaces_only_ended(this.job):
        missing -= len(this.terminating)
    if missing > 0:
        steps += _make(this, min(missing, BURST))
    return [*steps, *_wake_up(this)]


def _remove(pods: Sequence[JsonObject]) -> list[Step]:
    """Return the deletion of pods that are not to be counted as failed."""
    return [*_untrack(pods), *(Delete(POD, pod, POD_DELETED) for pod in pods)]


def _wanted_active(this: _Round) -> int:
    parallel, wanted = int(this.spec.get("parallelism", 1)), this.spec.get("completions")
    if wanted is None:
        return len(this.active) if this.tally.all_succeeded > 0 else parallel
    return max(0, min(int(wanted) - this.tally.all_succeeded - len(this.tally.lost), parallel))


def _surplus(this: _Round, wanted: int) -> list[JsonObject]:
    """Return the active pods to delete, the least useful first."""
    doomed: list[JsonObject] = []
    if indexes.is_indexed(this.job):
        doomed = indexes.superfluous(this.active, int(this.spec["completions"]))
    gone = {objects.uid(pod) for pod in doomed}
    left = [pod for pod in this.active if objects.uid(pod) not in gone]
    more = max(0, len(left) - wanted)
    if this.spec.get("completions") is None and this.tally.all_succeeded > 0:
        # one has succeeded: nobody is made any more, but more than parallelism go
        more = max(0, len(left) - int(this.spec.get("parallelism", 1)))
    return [*doomed, *(podlib.first_to_go(left, left, this.now)[:more] if more else [])]


def _make(this: _Round, count: int) -> list[Step]:
    if indexes.is_indexed(this.job) and indexes.per_index_limit(this.job) is not None:
        return _make_with_limits(this, count)
    wait_s = policies.backoff_of_job_s(this.job, _known_ends(this), this.now)
    if wait_s > 0:
        return [Again(wait_s)]
    if indexes.is_indexed(this.job):
        return [_new_pod(this, index, {}) for index in _free_indexes(this)[:count]]
    return [_new_pod(this, None, {})] * count


def _known_ends(this: _Round) -> list[JsonObject]:
    """Return the pods that back-off looks at: not those that we deleted, whose finalizer went before."""
    return [pod for pod in this.pods if podlib.has_ended(pod) or tracking.is_tracked(pod)]


def _make_with_limits(this: _Round, count: int) -> list[Step]:
    """Return the pods of indexes that may be tried (again) now, and when the next one may."""
    steps: list[Step] = []
    waits_s: list[float] = []
    for index in _free_indexes(this):
        last = tracking.last_of_index(this.job, this.pods, index)
        wait_s = _wait_of_index_s(last, this.now)
        if wait_s > 0:
            waits_s.append(wait_s)
        elif len(steps) < count:
            steps.append(_new_pod(this, index, _next_counts(this.job, last)))
    return [*steps, *([Again(min(waits_s))] if waits_s else [])]


def _wait_of_index_s(last: JsonObject | None, now: datetime) -> float:
    return 0.0 if last is None else policies.backoff_s(indexes.tries_of(last) + 1, policies.ended_at(last), now)


def _next_counts(job: JsonObject, last: JsonObject | None) -> dict[str, int]:
    if last is None:
        return {indexes.FAILURES: 0}
    ignored = policies.match(job, last).action == "Ignore"
    counts = {key: indexes.count_of(last, key) for key in (indexes.FAILURES, indexes.IGNORED)}
    counts[indexes.IGNORED if ignored else indexes.FAILURES] += 1
    return {key: number for key, number in counts.items() if number or key == indexes.FAILURES}


def _free_indexes(this: _Round) -> list[int]:
    """Return the indexes that no pod has and that are neither done nor failed, the least first."""
    completions = int(this.spec["completions"])
    held = [*this.active, *(this.terminating if policies.replaces_only_ended(this.job) else [])]
    taken = {*indexes.by_index(held, completions), *this.tally.done, *this.tally.lost}
    return [index for index in range(completions) if index not in taken]


def _new_pod(this: _Round, index: int | None, counts: dict[str, int]) -> Create:
    pod = pod_from_template(this.spec.get("template") or {}, JOB, this.job)
    kept = pod["metadata"].get("finalizers") or []
    pod["metadata"]["finalizers"] = [*kept, tracking.FINALIZER]
    return Create(POD, pod if index is None else indexes.dress(pod, this.job, index, counts), POD_CREATED)


def _wake_up(this: _Round) -> list[Step]:
    left_s = policies.deadline_in_s(this.job, this.now)
    return [Again(left_s)] if left_s is not None else []
