"""Which pods of a node have changed since it was last decided about, and which changes are none for a decision."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resizes import is_asked
from minik8s_modules.reconcile.pods.desired import TERMINAL

_OF_WRITES = frozenset({"resourceVersion", "managedFields"})
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def is_news(old: JsonObject | None, new: JsonObject | None) -> bool:
    """Return whether a pod's change may change what is decided about it.

    Most of what its status tells of containers and conditions comes from observations and decisions, which lead to the
    same with it as without. What does not is that a pod is over, why, and since when; that a container has been made,
    also again, how it ended (it may be gone when that is looked up), or that it has started by its probe; and all of a
    pod that is being resized.
    """
    if old is None or new is None:
        return True
    try:
        return is_asked(old) or is_asked(new) or _wanted(old) != _wanted(new) or _told(old) != _told(new)
    except objects.MISREAD:
        return True


def _wanted(pod: JsonObject) -> tuple[Any, ...]:
    return {key: value for key, value in pod["metadata"].items() if key not in _OF_WRITES}, pod.get("spec")


def _told(pod: JsonObject) -> tuple[Any, ...]:
    status = objects.status(pod)
    phase = status.get("phase")
    since = objects.spec(pod).get("activeDeadlineSeconds") is not None and status.get("startTime")
    probed = {one["name"] for _, _, one in objects.every_container(pod) if one.get("startupProbe")}
    made = [
        (
            one.get("name"),
            one.get("restartCount"),
            bool(one.get("containerID")),
            objects.dig(one, "state", "terminated", "exitCode"),
            one.get("name") in probed and one.get("started"),
        )
        for field in _STATUSES
        for one in status.get(field) or []
    ]
    return phase in TERMINAL and phase, status.get("reason"), since, [one for one in made if any(one[1:])]


class ChangedPods:
    """UIDs by node; thread-safe.

    Handlers run inside informers' locks, and deciding reads informers: handlers take only this lock, which nobody holds
    while calling anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uids: dict[str, set[str]] = {}

    def add(self, node: str, uids: Iterable[str]) -> None:
        """Note pods of a node."""
        with self._lock:
            self._uids.setdefault(node, set()).update(uids)

    def take(self, node: str) -> set[str]:
        """Return what was noted of a node since the last call."""
        with self._lock:
            return self._uids.pop(node, set())
