"""The shell of Jobs: decides by jobs.py, and lets go of pods whose Job is gone.

A pod of a Job keeps a finalizer until it is counted. Where the Job goes first (its dependents are orphaned, or deleted
in the background), nobody counts any more: a loop of its own takes the finalizer away.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import JOB, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.batch import job_tracking as tracking
from minik8s_modules.controllers.batch.jobs import decide_job
from minik8s_modules.controllers.core.steps import Step
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context, Loop
from minik8s_modules.runtime.informers import BY_NAMESPACE

# what the loop's keys of jobs begin with; no name of a pod can
_JOB = "job/"


class JobController(WorkloadController):
    """Runs Jobs, and lets go of pods whose Job is gone."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, JOB, (POD,))
        self._left = Loop(context, "job-left-pods", self._release, workers=1)
        self._pods = self._left.watch(POD, self._without_job, BY_NAMESPACE)
        self._left.watch(JOB, _gone_job)

    def start(self) -> None:
        """Begin; returns at once."""
        super().start()
        self._left.start()

    def stop(self) -> None:
        """End."""
        self._left.stop()
        super().stop()

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one job."""
        return decide_job(obj, self.found(POD, obj), self.context.clock.now())

    def _job_of(self, pod: JsonObject) -> JsonObject | None:
        owner = objects.controller_of(pod) or {}
        job = self.own.get(objects.namespace(pod), str(owner.get("name"))) if owner.get("kind") == JOB.kind else None
        return job if job is not None and objects.uid(job) == owner.get("uid") else None

    def _without_job(self, _old: JsonObject | None, new: JsonObject | None) -> list[Key]:
        """Return a tracked pod that no job counts any more: without its finalizer it can go."""
        if new is None or not tracking.is_tracked(new) or self._job_of(new) is not None:
            return []
        return [objects.key(new)]

    def _release(self, key: Key) -> None:
        if key.name.startswith(_JOB):
            for each in self._pods.by_index(BY_NAMESPACE, key.namespace):
                if (objects.controller_of(each) or {}).get("name") == key.name.removeprefix(_JOB):
                    self._release(objects.key(each))
            return
        pod = self._pods.get(*key)
        if pod is None or not tracking.is_tracked(pod) or self._job_of(pod) is not None:
            return
        owner = objects.controller_of(pod) or {}
        if owner.get("kind") == JOB.kind and self._exists(objects.namespace(pod), owner):
            return
        body = tracking.untracked(pod).body
        seen = {"uid": objects.uid(pod), "resourceVersion": objects.resource_version(pod)}
        try:
            self.context.client.patch(POD, key.name, key.namespace, {"metadata": {**body["metadata"], **seen}})
        except (NotFound, Conflict):
            return  # gone, or its newer state queues it again

    def _exists(self, namespace: str, owner: JsonObject) -> bool:
        """Return whether the job is there: the copy of pods may be ahead of that of jobs."""
        try:
            return objects.uid(self.context.client.get(JOB, str(owner.get("name")), namespace)) == owner.get("uid")
        except NotFound:
            return False


def _gone_job(old: JsonObject | None, new: JsonObject | None) -> list[Key]:
    """Return the key under which the pods of a job that is gone are looked at."""
    return [Key(objects.namespace(old), f"{_JOB}{objects.name(old)}")] if old is not None and new is None else []
