"""What is done about one Pod of a virtual node, and what its status becomes. Pure.

Source: virtual-kubelet ``node/pod.go``, ``node/podcontroller.go``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.endings import REASON_PROVIDER_FAILED, is_over

_COMPARED = ("containers", "initContainers", "activeDeadlineSeconds", "tolerations")


class PodKey(NamedTuple):
    """A Pod's name on one node."""

    node: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name on node``."""
        return f"{self.namespace}/{self.name} on {self.node}"


class ProviderRecord(NamedTuple):
    """What a controller remembers of a Pod: nothing that it could not find out again."""

    used: JsonObject | None = None
    """The Pod as the provider was given it last."""
    deleted: str = ""
    """The uid whose deletion the provider was told."""
    refused: bool = False
    """Whether the provider said of ``used`` that it can never run there."""


class Step(Enum):
    """What is done next."""

    NOTHING = "nothing"
    FORGET = "forget"  # the API has no such Pod: the provider is to have none either
    RUN = "run"  # create, update or replace: what the provider has decides
    DELETE = "delete"  # tell the provider, then take the object away
    REMOVE = "remove"  # take the object away


class Run(Enum):
    """What is done about a Pod that is to run, when it is known what the provider has."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"  # the provider still has a predecessor of another uid
    NOTHING = "nothing"


def decide_pod(pod: JsonObject | None, known: ProviderRecord) -> Step:
    """Return what is done about ``pod``, None where the API has none of that name on the node."""
    if pod is None:
        return Step.FORGET
    if objects.is_deleting(pod):
        if known.deleted != objects.uid(pod):
            return Step.DELETE
        return Step.NOTHING if is_running(pod) else Step.REMOVE
    if is_over(pod):
        return Step.NOTHING
    if known.used is not None and objects.uid(known.used) == objects.uid(pod) and pods_equal(known.used, pod):
        return Step.NOTHING
    return Step.RUN


def decide_run(pod: JsonObject, present: JsonObject | None) -> Run:
    """Return what is done about ``pod``, where the provider has ``present``."""
    if present is None:
        return Run.CREATE
    if objects.uid(present) and objects.uid(present) != objects.uid(pod):
        return Run.REPLACE
    return Run.NOTHING if pods_equal(present, pod) else Run.UPDATE


def is_running(pod: JsonObject) -> bool:
    """Return whether a container of ``pod`` is neither terminated nor waiting."""
    states = (each.get("state") or {} for each in objects.status(pod).get("containerStatuses") or [])
    return any(not state.get("terminated") and not state.get("waiting") for state in states)


def pods_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the two agree in everything that may change of a Pod that runs."""
    fields = all(_known(objects.spec(one).get(each)) == _known(objects.spec(other).get(each)) for each in _COMPARED)
    return (
        fields
        and objects.labels(one) == objects.labels(other)
        and objects.annotations(one) == objects.annotations(other)
    )


def _known(value: Any) -> Any:
    return value or None


def should_enqueue(old: JsonObject, new: JsonObject) -> bool:
    """Return whether the change concerns the provider: statuses do not, but the end of a Pod that is deleted does."""
    moved = objects.spec(old).get("nodeName") != objects.spec(new).get("nodeName")  # who sees all Pods sees bindings
    if moved or objects.uid(old) != objects.uid(new) or not pods_equal(old, new):
        return True
    fields = ("deletionTimestamp", "deletionGracePeriodSeconds")
    if any(objects.dig(old, "metadata", each) != objects.dig(new, "metadata", each) for each in fields):
        return True
    return objects.is_deleting(new) and is_running(old) and not is_running(new)


def grace_s(pod: JsonObject) -> float:
    """Return the seconds that a deleted Pod has."""
    return float(objects.dig(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def failed_status(pod: JsonObject, error: BaseException, now: str) -> JsonObject:
    """Return the status of a Pod that the provider does not take: Pending, or Failed where it is never restarted."""
    final = objects.spec(pod).get("restartPolicy") == "Never"
    before = objects.condition(pod, "Ready") or {}
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": REASON_PROVIDER_FAILED,
        "message": str(error),
        "lastTransitionTime": before.get("lastTransitionTime", now) if before.get("status") == "False" else now,
    }
    others = [each for each in objects.status(pod).get("conditions") or [] if each.get("type") != "Ready"]
    return {
        **copy.deepcopy(objects.status(pod)),
        "phase": "Failed" if final else "Pending",
        "reason": REASON_PROVIDER_FAILED,
        "message": str(error),
        "conditions": [*others, ready],
    }


def completed_status(pod: JsonObject, reported: JsonObject) -> JsonObject:
    """Return the status to write for what a provider ``reported``: as a whole its, but for what others alone know.

    The scheduler's condition and the quality of service stay where the provider does not name them. It shares parts
    with both.
    """
    status = {**reported}
    before = objects.status(pod)
    conditions = status.get("conditions") or []
    scheduled = objects.condition(pod, "PodScheduled")
    if scheduled is not None and not any(each.get("type") == "PodScheduled" for each in conditions):
        status["conditions"] = [*conditions, scheduled]
    if before.get("qosClass"):
        status["qosClass"] = before["qosClass"]
    return status
