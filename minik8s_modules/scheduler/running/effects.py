"""What the scheduler writes: conditions, nominations, evictions. Each is safe to repeat."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.scheduler.framework.infos import PodInfo, scheduler_of
from minik8s_modules.scheduler.plugins.preemption import BY_SCHEDULER

log = logging.getLogger(__name__)
UNSCHEDULABLE, GATED, FAILED = "Unschedulable", "SchedulingGated", "SchedulerError"


class Effects:
    """Writes to the API, and tells of it in the name of the profile that decided (profile.go, NewRecorderFactory)."""

    def __init__(self, client: Api, recorder: EventRecorder, clock: Clock) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock

    def tell_bound(self, pod: JsonObject, node: str) -> None:
        """Tell that a pod was bound."""
        message = f"Successfully assigned {objects.key(pod)} to {node}"
        self._recorder.event(pod, "Normal", "Scheduled", message, component=scheduler_of(pod))

    def refuse(
        self, pod: JsonObject, message: str, *, reason: str = UNSCHEDULABLE, nominated: str | None = None
    ) -> None:
        """Write why a pod waits, and where it is to run later (None: as before).

        Raises:
            TemporaryError, StatusError: the API did not take it.
        """
        known = objects.condition(pod, "PodScheduled") or {}
        condition = unschedulable_condition(known, message, rfc3339(self._clock.now()), reason)
        status: JsonObject = {} if condition == known else {"conditions": [condition]}
        if nominated is not None and nominated != (objects.status(pod).get("nominatedNodeName") or ""):
            status["nominatedNodeName"] = nominated or None
        if status:
            self._patch(pod, status)
        if reason != GATED:
            self._recorder.event(pod, "Warning", "FailedScheduling", message, component=scheduler_of(pod))

    def preempt(self, victim: PodInfo, by: PodInfo, node: str) -> None:
        """Take a pod away for another.

        Raises:
            TemporaryError, StatusError: the API did not take it.
        """
        name = scheduler_of(by.pod)
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": BY_SCHEDULER,
            "message": f"{name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": rfc3339(self._clock.now()),
        }  # fmt: skip
        self._patch(victim.pod, {"conditions": [condition]})
        try:
            self._client.delete(POD, victim.key.name, victim.key.namespace, uid=objects.uid(victim.pod))
        except (Conflict, NotFound):
            log.info("%s has gone already", victim.key)
            return
        message = f"Preempted by pod {objects.uid(by.pod)} on node {node}"
        self._recorder.event(victim.pod, "Normal", "Preempted", message, component=name)

    def unnominate(self, pod: PodInfo) -> None:
        """Take a pod's nomination away: one of higher priority goes there."""
        self._patch(pod.pod, {"nominatedNodeName": None})

    def _patch(self, pod: JsonObject, status: JsonObject) -> None:
        key = objects.key(pod)
        body = {"metadata": {"uid": objects.uid(pod)}, "status": status}
        try:
            self._client.patch(POD, key.name, key.namespace, body, patch_type="strategic", subresource="status")
        except (Conflict, NotFound) as error:
            log.info("%s is another pod now: %s", key, error)


def unschedulable_condition(
    known: Mapping[str, Any], message: str, now: str, reason: str = UNSCHEDULABLE
) -> JsonObject:
    """Return PodScheduled=False with ``message``; its transition time stays while its status does."""
    unchanged = known.get("status") == "False" and known.get("lastTransitionTime")
    condition: JsonObject = {
        **known,
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": known["lastTransitionTime"] if unchanged else now,
    }
    return condition
