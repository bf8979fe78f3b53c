"""How the pods of a Job are counted, each exactly once, whatever is killed in between. Pure.

    a pod is made with the finalizer ──▶ it ends, and stays ──▶ its uid is noted in status.uncountedTerminatedPods
    ──▶ the finalizer goes ──▶ the uid becomes one more in status.succeeded or status.failed

A pod that ended cannot vanish before its uid is noted, and a uid is only turned into a number when the pod cannot be
seen ended any more. A success of an Indexed job needs no uid: its index in status.completedIndexes says as much.
Source: kubernetes ``pkg/controller/job/job_controller.go`` (``trackJobStatusAndRemoveFinalizers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.batch import job_indexes as indexes
from minik8s_modules.controllers.batch import job_policies as policies
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.steps import Patch

FINALIZER = "batch.kubernetes.io/job-tracking"
# MaxUncountedPods of job_controller.go
_AT_ONCE = 500


def is_tracked(pod: JsonObject) -> bool:
    """Return whether the pod is still to be counted."""
    return FINALIZER in objects.finalizers(pod)


def untracked(pod: JsonObject) -> Patch:
    """Return the step that takes the finalizer from the pod."""
    others = [each for each in objects.finalizers(pod) if each != FINALIZER]
    return Patch(POD, pod, {"metadata": {"finalizers": others or None}})


def tracked(pod: JsonObject) -> Patch:
    """Return the step that gives the finalizer to a pod that was adopted."""
    return Patch(POD, pod, {"metadata": {"finalizers": [*objects.finalizers(pod), FINALIZER]}})


@dataclass(frozen=True)
class Tally:
    """The counts of a job.

    Attributes:
        succeeded: counted for good.
        failed: counted for good.
        pending_succeeded: uids that are noted, and not yet a number.
        pending_failed: likewise.
        done: indexes that are done.
        lost: indexes that have failed for good.
        delayed: failures that wait for the replacement that carries on their index' count.
        released: pods whose finalizer may go once the status says the above.
    """

    succeeded: int
    failed: int
    pending_succeeded: tuple[str, ...]
    pending_failed: tuple[str, ...]
    done: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    delayed: int = 0
    released: tuple[JsonObject, ...] = ()

    @property
    def all_succeeded(self) -> int:
        """Return the successes that decisions go by."""
        return self.succeeded + len(self.pending_succeeded)

    @property
    def all_failed(self) -> int:
        """Return the failures that decisions go by."""
        return self.failed + len(self.pending_failed) + self.delayed

    @property
    def is_settled(self) -> bool:
        """Return whether every pod that ended has become a number."""
        return not self.pending_succeeded and not self.pending_failed and not self.released


def tally(job: JsonObject, pods: Sequence[JsonObject], *, over: bool) -> Tally:
    """Return the counts after this round; ``over`` counts every pod that has not succeeded as failed."""
    completions = int(objects.spec(job).get("completions") or 0)
    done, lost = _indexes(job, pods, completions)
    held = _held(job, pods, done, lost) if not over else set()
    ended = _ended(job, pods, held, over=over)
    known, status = _uncounted(job), objects.status(job)
    waiting = {objects.uid(pod) for pod in pods if is_tracked(pod)}
    won, failed = ([uid for uid in known[side] if uid in waiting] for side in ("succeeded", "failed"))
    counts = {side: int(status.get(side) or 0) + len(known[side]) for side in ("succeeded", "failed")}
    totals = (counts["succeeded"] - len(won), counts["failed"] - len(failed))
    noted = {*won, *failed}
    for pod in ended:
        uid = objects.uid(pod)
        if uid in noted:
            continue
        if podlib.phase(pod) == "Succeeded":
            won += [] if indexes.is_indexed(job) else [uid]
        elif _counts(job, pod, completions, over=over):
            failed.append(uid)
    succeeded = len(done) if indexes.is_indexed(job) else totals[0]
    return Tally(succeeded, totals[1], tuple(won), tuple(failed), frozenset(done), frozenset(lost), len(held),
                 tuple(ended))  # fmt: skip


def _ended(job: JsonObject, pods: Sequence[JsonObject], held: set[str], *, over: bool) -> list[JsonObject]:
    """Return the tracked pods that are to be counted, or need not be any more."""
    free = over or objects.is_deleting(job)
    tracked_pods = [pod for pod in pods if is_tracked(pod) and objects.uid(pod) not in held]
    ended = [p for p in tracked_pods if free or podlib.phase(p) == "Succeeded" or policies.is_failed(job, p)]
    return ended[:_AT_ONCE]


def _counts(job: JsonObject, pod: JsonObject, completions: int, *, over: bool) -> bool:
    """Return whether the pod, which has not succeeded, is one more failure."""
    if not (over or policies.is_failed(job, pod)):
        return False
    if indexes.is_indexed(job) and not indexes.by_index([pod], completions):
        return False
    return policies.match(job, pod).action != "Ignore"


def _uncounted(job: JsonObject) -> dict[str, list[str]]:
    known = objects.status(job).get("uncountedTerminatedPods") or {}
    return {side: list(known.get(side) or []) for side in ("succeeded", "failed")}


# --- indexes ----------------------------------------------------------------------------------------------------------


def _indexes(job: JsonObject, pods: Sequence[JsonObject], completions: int) -> tuple[set[int], set[int]]:
    """Return the indexes that are done, and those that have failed for good."""
    if not indexes.is_indexed(job):
        return set(), set()
    status = objects.status(job)
    done = indexes.parse_indexes(status.get("completedIndexes"), completions)
    won = [pod for pod in pods if podlib.phase(pod) == "Succeeded" and is_tracked(pod)]
    done |= set(indexes.by_index(won, completions))
    limit = indexes.per_index_limit(job)
    if limit is None:
        return done, set()
    lost = indexes.parse_indexes(status.get("failedIndexes"), completions)
    for index, found in indexes.by_index(_failed(job, pods), completions).items():
        if index not in done and any(_loses(job, pod, limit) for pod in found):
            lost.add(index)
    return done, lost


def _failed(job: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    return [pod for pod in pods if is_tracked(pod) and policies.is_failed(job, pod)]


def _loses(job: JsonObject, pod: JsonObject, limit: int) -> bool:
    action = policies.match(job, pod).action
    if action in {"FailIndex", "Ignore"}:
        return action == "FailIndex"
    return indexes.count_of(pod, indexes.FAILURES) >= limit


def _held(job: JsonObject, pods: Sequence[JsonObject], done: set[int], lost: set[int]) -> set[str]:
    """Return the uids of the failed pods whose count no replacement has taken over yet."""
    if indexes.per_index_limit(job) is None:
        return set()
    completions = int(objects.spec(job).get("completions") or 0)
    last = {
        index: max(found, key=indexes.tries_of)
        for index, found in indexes.by_index(pods, completions).items()
        if index not in done | lost
    }
    known = _uncounted(job)["failed"]
    failed = {objects.uid(pod) for pod in _failed(job, pods)}
    return {objects.uid(pod) for pod in last.values()} & failed - set(known)


def last_of_index(job: JsonObject, pods: Sequence[JsonObject], index: int) -> JsonObject | None:
    """Return the failed pod of ``index`` that the next one replaces; None for the first."""
    found = [pod for pod in _failed(job, pods) if indexes.index_of(pod) == index]
    return max(found, key=indexes.tries_of, default=None)
