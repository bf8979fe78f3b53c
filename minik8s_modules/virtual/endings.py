"""What a Pod's status becomes when its provider knows it no longer. Pure."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

REASON_NOT_FOUND = "NotFound"
REASON_PROVIDER_FAILED = "ProviderFailed"
LOST_MESSAGE = "pod may have been deleted from the provider"
LOST_EXIT_CODE = -137
OVER = frozenset({"Succeeded", "Failed"})


def is_over(pod: JsonObject) -> bool:
    """Return whether the Pod's phase is final."""
    return objects.status(pod).get("phase") in OVER


def lost_status(pod: JsonObject, now: str) -> JsonObject:
    """Return the status of a Pod that ran and that its provider does not know any more: Failed, containers ended."""
    before = objects.status(pod)
    ended = [_ended(each, now) for each in before.get("containerStatuses") or []]
    status = {**before, "phase": "Failed", "reason": REASON_NOT_FOUND, "message": LOST_MESSAGE}
    return {**status, "containerStatuses": ended} if ended else status


def _ended(container_status: JsonObject, now: str) -> JsonObject:
    running = (container_status.get("state") or {}).get("running")
    if running is None:
        return container_status
    terminated = {
        "exitCode": LOST_EXIT_CODE,
        "reason": REASON_NOT_FOUND,
        "message": "container was terminated and cleaned up from the provider",
        "startedAt": running.get("startedAt"),
        "finishedAt": now,
        **({"containerID": container_status["containerID"]} if container_status.get("containerID") else {}),
    }
    return {**container_status, "ready": False, "started": False, "state": {"terminated": terminated}}
