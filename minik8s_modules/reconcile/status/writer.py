"""Writes pods' statuses and ends deleted pods: the only writer of pod status.

Level-triggered: a queue holds pods, not statuses. A pod's status is worked out when its turn comes and
written when it differs from what the API has; a failed write is tried again with back-off. The API's copy is
the informer's, or the answer to our own last write where the informer has not seen that yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.status.status import Place, pod_status
from minik8s_modules.reconcile.values.values import PodDecision
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers


class StatusApi(Protocol):
    """The part of ``ApiClient`` needed here."""

    def patch(self, kind: Kind, name: str, namespace: str, body: Any, *, subresource: str = "") -> JsonObject:
        """Merge ``body`` into the object."""

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str | None = None
    ) -> JsonObject:
        """Delete the object."""


class View(NamedTuple):
    """A pod as the loop sees it.

    ``gone``: deleted, and nothing of it left on its node. ``busy``: its containers are being brought up this moment.
    ``attached``: it is not known to be without network.
    """

    pod: JsonObject
    seen: ObservedPod
    decision: PodDecision
    place: Place
    gone: bool
    busy: bool = False
    attached: bool = True


class _Written(NamedTuple):
    revision: int
    status: JsonObject


class StatusWriter:
    """``view(uid)`` answers with the pod's present, or None when there is nothing to write."""

    def __init__(
        self,
        api: StatusApi,
        view: Callable[[str], View | None],
        release: Callable[[str], None],
        clock: Clock,
        workers: int = 4,
    ) -> None:
        self._api = api
        self._view = view
        self._release = release
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._workers = Workers(self._queue, self.write, "status", workers)
        self._written: dict[str, _Written] = {}
        self._failing: dict[str, tuple[str, str]] = {}

    def start(self) -> None:
        """Start the writing threads."""
        self._workers.start()

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._workers.stop()

    def enqueue(self, uid: str) -> None:
        """Look at the pod's status soon."""
        self._queue.add(uid)

    def on_status(self, pod: JsonObject) -> None:
        """Look at a pod whose status has changed, unless it is known that this was our own write."""
        written = self._written.get(objects.uid(pod))
        if written is None or written.revision != _revision(pod):
            self._queue.add(objects.uid(pod))

    def fail(self, uid: str, reason: str, message: str) -> None:
        """Have the pod fail, as an eviction does: it is over, whatever its containers do."""
        self._failing[uid] = (reason, message)
        self._queue.add(uid)

    def write(self, uid: str) -> None:
        """Bring the API's status of the pod up to date; raises as the API does."""
        view = self._view(uid)
        if view is None:
            self._written.pop(uid, None)
            self._failing.pop(uid, None)
            return
        try:
            if view.gone:
                self._end(view.pod)
            else:
                self._patch(view)
        except NotFound:
            self._written.pop(uid, None)

    def _end(self, pod: JsonObject) -> None:
        """Give the address back, then remove the object: a pod of the same name may come at once."""
        uid = objects.uid(pod)
        self._release(uid)
        self._api.delete(POD, objects.name(pod), objects.namespace(pod), grace_s=0, uid=uid)

    def _patch(self, view: View) -> None:
        pod = self._latest(view.pod)
        uid, before = objects.uid(pod), objects.status(pod)
        status = pod_status(pod, view.seen, view.decision, view.place, self._clock.now(), attached=view.attached)
        if uid in self._failing:
            status = _failed(status, self._failing[uid], rfc3339(self._clock.now()))
        if status == before or (view.busy and _essence(status) == _essence(before)):
            return
        removed = dict.fromkeys(set(before) - set(status))
        # the uid makes it a conflict to write to another pod of the same name
        body = {"metadata": {"uid": uid}, "status": {**status, **removed}}
        try:
            written = self._api.patch(POD, objects.name(pod), objects.namespace(pod), body, subresource="status")
        except Conflict:
            self._written.pop(uid, None)
            raise
        self._written[uid] = _Written(_revision(written), objects.status(written))
        self._failing.pop(uid, None)  # from now on its phase says it

    def _latest(self, pod: JsonObject) -> JsonObject:
        written = self._written.get(objects.uid(pod))
        if written is None or written.revision <= _revision(pod):
            return pod
        return {**pod, "status": written.status}


def _failed(status: JsonObject, why: tuple[str, str], now: str) -> JsonObject:
    """Return the status of a pod that its node gives up."""
    if status.get("phase") in {"Succeeded", "Failed"}:
        return status
    reason, message = why
    others = [one for one in status.get("conditions") or [] if one.get("type") != "DisruptionTarget"]
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
    conditions = [*others, {**target, "lastTransitionTime": now}]
    return {**status, "phase": "Failed", "reason": reason, "message": message, "conditions": conditions}


def _essence(status: JsonObject) -> JsonObject:
    """Return the status without what is true for the moments between a sandbox and its containers."""
    conditions = [one for one in status.get("conditions") or [] if one.get("type") != "PodReadyToStartContainers"]
    rest = {key: value for key, value in status.items() if key not in {"podIP", "podIPs"}}
    return {**rest, "conditions": conditions}


def _revision(obj: Mapping[str, Any]) -> int:
    return int(objects.resource_version(obj) or 0)
