"""CronJobs: a Job at each time of a schedule, by ``decide_cron_job``.

    jobs that ended leave the active list, and go beyond the history limits ─▶ the latest time that is due and was not
    started yet ─▶ concurrency policy ─▶ one job, named after its minute, so that it is never made twice

However long nobody looked, one job is made: that of the latest time, if startingDeadlineSeconds allows. Source:
kubernetes ``pkg/controller/cronjob`` (``cronjob_controllerv2.go``, ``utils.go``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.cron import BadSchedule, Schedule, parse, zone_of
from minik8s_modules.api.kinds import CRON_JOB, JOB
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.batch.jobs import end_of
from minik8s_modules.controllers.core.pods import moment
from minik8s_modules.controllers.core.steps import (
    Again,
    Create,
    Delete,
    RecordEvent,
    Step,
    Words,
    WriteStatus,
    controller_reference,
)
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
CREATED = Words("SuccessfulCreate", "Created job ", "FailedCreate", "Error creating job: ")
DELETED = Words("SuccessfulDelete", "Deleted job ", "FailedDelete", "Error deleting job: ")
# more times than these are told as missed; the latest is started all the same
_MANY = 100
# 30 years: the field has 64 bits, and what is taken from a time must leave one
_LONGEST_S = 10**9
_WINDOWS = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 32, 24 * 366, 24 * 366 * 6))


class Due(NamedTuple):
    """The latest time that is due, None when there is none, and how many were: at most 101."""

    at: datetime | None
    missed: int


def decide_cron_job(cron_job: JsonObject, jobs: Sequence[JsonObject], now: datetime) -> list[Step]:
    """Return the next steps of a cron job.

    Args:
        cron_job: the object.
        jobs: the jobs that it controls.
        now: decides what is due.
    """
    steps, status = _news(cron_job, jobs), _status(cron_job, jobs)
    # the status tells of jobs that go beyond the history: it is written first
    history = _history(cron_job, jobs)
    if objects.is_deleting(cron_job) or objects.spec(cron_job).get("suspend"):
        return [*steps, *_written(cron_job, status), *history]
    try:
        schedule, zone = parse(str(objects.spec(cron_job).get("schedule"))), _zone(cron_job)
    except BadSchedule as error:
        # only what was stored before it was checked
        warning = RecordEvent(cron_job, "Warning", "UnparseableSchedule", f"unparseable schedule: {error}")
        return [*steps, warning, *_written(cron_job, status), *history]
    due = latest_due(cron_job, schedule, zone, now)
    if due.at is not None:
        begun = _begin(cron_job, jobs, due.at, zone, many=due.missed > _MANY)
        steps += begun
        if not any(isinstance(step, RecordEvent) and step.reason == "JobAlreadyActive" for step in begun):
            status = {**status, "lastScheduleTime": rfc3339(due.at)}
    return [*steps, *_written(cron_job, status), *history, *_wake_up(cron_job, schedule, zone, now, due)]


def _zone(cron_job: JsonObject) -> tzinfo:
    return zone_of(objects.spec(cron_job).get("timeZone"))


def _written(cron_job: JsonObject, status: JsonObject) -> list[Step]:
    return [WriteStatus(CRON_JOB, cron_job, status)] if status != objects.status(cron_job) else []


def _wake_up(cron_job: JsonObject, schedule: Schedule, zone: tzinfo, now: datetime, due: Due) -> list[Step]:
    since = (due.at or _since(cron_job, now) or now) if schedule.every is not None else now
    following = schedule.next_after(since, zone)
    if following is None:
        text = objects.spec(cron_job).get("schedule")
        message = f'schedule "{text}" never fires: there is no such time in the next five years'
        return [RecordEvent(cron_job, "Warning", "NeverFires", message)]
    return [Again((following - now).total_seconds())]


# --- what is due ----------------------------------------------------------------------------------


def latest_due(cron_job: JsonObject, schedule: Schedule, zone: tzinfo, now: datetime) -> Due:
    """Return the latest time after the last start (or the creation) that is not later than ``now``.

    startingDeadlineSeconds hides what is longer ago (``mostRecentScheduleTime``).
    """
    since = _since(cron_job, now)
    if since is None:
        return Due(None, 0)
    if schedule.every is not None:
        count = max(0, int((now - since) / schedule.every))
        return Due(since.replace(microsecond=0) + count * schedule.every if count else None, min(count, _MANY + 1))
    found, count = since, 0
    while count <= _MANY and (at := schedule.next_after(found, zone)) is not None and at <= now:
        found, count = at, count + 1
    if count > _MANY:
        found = _latest(schedule, zone, found, now)
    return Due(found if count else None, count)


def _since(cron_job: JsonObject, now: datetime) -> datetime | None:
    created = (cron_job.get("metadata") or {}).get("creationTimestamp")
    since = moment(str(objects.status(cron_job).get("lastScheduleTime") or created or ""))
    deadline_s = objects.spec(cron_job).get("startingDeadlineSeconds")
    if since is None or deadline_s is None:
        return since
    return max(since, now - timedelta(seconds=min(int(deadline_s), _LONGEST_S)))


def _latest(schedule: Schedule, zone: tzinfo, found: datetime, now: datetime) -> datetime:
    """Return the latest time in the smallest window that has one: years of minutes are not counted one by one."""
    for window in _WINDOWS:
        at = schedule.next_after(max(found, now - window), zone)
        if at is not None and at <= now:
            while at is not None and at <= now:
                found, at = at, schedule.next_after(at, zone)
            return found
    return found


# --- a start --------------------------------------------------------------------------------------


def job_name(cron_job: JsonObject, at: datetime) -> str:
    """Return the name of the job of a time: that of its minute (``getJobName``)."""
    return f"{objects.name(cron_job)}-{int(at.timestamp()) // 60}"


def _begin(cron_job: JsonObject, jobs: Sequence[JsonObject], at: datetime, zone: tzinfo, *, many: bool) -> list[Step]:
    name = job_name(cron_job, at)
    if any(objects.name(job) == name for job in jobs):
        return []
    steps: list[Step] = []
    policy, active = objects.spec(cron_job).get("concurrencyPolicy"), _active(jobs)
    if active and policy == "Forbid":
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        return [RecordEvent(cron_job, "Normal", "JobAlreadyActive", text)]
    if many:
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        steps.append(RecordEvent(cron_job, "Warning", "TooManyMissedTimes", text))
    if policy == "Replace":
        steps += [Delete(JOB, job, DELETED, propagation="Background") for job in active]
    return [*steps, Create(JOB, new_job(cron_job, at, zone), CREATED)]


def new_job(cron_job: JsonObject, at: datetime, zone: tzinfo) -> JsonObject:
    """Return the job of a time (``getJobFromTemplate2``)."""
    template = objects.spec(cron_job).get("jobTemplate") or {}
    noted = {**objects.annotations(template), SCHEDULED: at.astimezone(zone).isoformat().replace("+00:00", "Z")}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": job_name(cron_job, at),
            "namespace": objects.namespace(cron_job),
            "labels": objects.labels(template),
            "annotations": noted,
            "ownerReferences": [controller_reference(CRON_JOB, cron_job)],
        },
        "spec": template.get("spec") or {},
    }


# --- jobs that are there --------------------------------------------------------------------------


def _active(jobs: Sequence[JsonObject]) -> list[JsonObject]:
    return [job for job in jobs if end_of(job) is None and not objects.is_deleting(job)]


def _status(cron_job: JsonObject, jobs: Sequence[JsonObject]) -> JsonObject:
    status = {key: value for key, value in objects.status(cron_job).items() if key != "active"}
    if active := sorted(_active(jobs), key=objects.name):
        status["active"] = [_reference(job) for job in active]
    ends = [str(objects.status(job).get("completionTime") or "") for job in jobs if _kind_of_end(job) == "Complete"]
    last = max([*ends, str(status.get("lastSuccessfulTime") or "")])
    return {**status, "lastSuccessfulTime": last} if last else status


def _reference(job: JsonObject) -> JsonObject:
    """Return the reference without the revision, which would change the status at each of the job's own."""
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "name": objects.name(job),
        "namespace": objects.namespace(job),
        "uid": objects.uid(job),
    }


def _kind_of_end(job: JsonObject) -> str:
    return str((end_of(job) or {}).get("type") or "")


def _news(cron_job: JsonObject, jobs: Sequence[JsonObject]) -> list[Step]:
    """Return the Events about jobs that were active: ended, or gone."""
    by_uid = {objects.uid(job): job for job in jobs}
    steps: list[Step] = []
    for known in objects.status(cron_job).get("active") or []:
        job = by_uid.get(str(known.get("uid")))
        if job is None:
            text = f"Active job went missing: {known.get('name')}"
            steps.append(RecordEvent(cron_job, "Normal", "MissingJob", text))
        elif kind := _kind_of_end(job):
            text = f"Saw completed job: {objects.name(job)}, condition: {kind}"
            steps.append(RecordEvent(cron_job, "Normal", "SawCompletedJob", text))
    return steps


def _history(cron_job: JsonObject, jobs: Sequence[JsonObject]) -> list[Step]:
    """Return the deletion of the oldest jobs beyond the limits (``cleanupFinishedJobs``)."""
    steps: list[Step] = []
    for kind, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        limit = objects.spec(cron_job).get(field)
        ended = [job for job in jobs if _kind_of_end(job) == kind and not objects.is_deleting(job)]
        if limit is not None and len(ended) > int(limit):
            oldest = sorted(ended, key=_began)[: len(ended) - int(limit)]
            steps += [Delete(JOB, job, DELETED, propagation="Background") for job in oldest]
    return steps


def _began(job: JsonObject) -> tuple[str, str]:
    # "~" sorts after all times: a job that never began is the youngest (byJobStartTime)
    return str(objects.status(job).get("startTime") or "~"), objects.name(job)


class CronJobController(WorkloadController):
    """Starts Jobs by the clock."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, CRON_JOB, (JOB,))

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one cron job."""
        return decide_cron_job(obj, self.controlled(JOB, obj), self.context.clock.now())
