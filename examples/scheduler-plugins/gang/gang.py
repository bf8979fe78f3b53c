"""Pods of a group start together or not at all: Permit holds each at its node until all of them have one.

With the last one's permission all go. When the time of one is over, or one fails, all others give up their places, too,
and the group is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Handle, WaitingPod
from minik8s_modules.scheduler.framework.statuses import Code, Status, unschedulable

NAME, SIZE = "gang.minik8s.io/name", "gang.minik8s.io/size"
_WAIT_S = 60.0


class Gang:
    """Holds pods back until their group is complete."""

    name = "Gang"

    def __init__(self, arguments: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle
        self._wait_s = float(arguments.get("timeoutSeconds", _WAIT_S))
        if self._wait_s <= 0:
            raise ValueError(f"timeoutSeconds must be more than 0, not {self._wait_s:g}")

    def permit(self, _state: CycleState, pod: PodInfo, _node: str) -> tuple[Status | None, float]:
        """Let the pod wait for the rest of its group, or the whole group go."""
        group, size = _group(pod)
        if not group:
            return None, 0.0
        if not size.isdecimal() or int(size) < 1:
            return unschedulable(f"the label {SIZE} must be a number of pods, not {size!r}"), 0.0
        others = list(self._waiting(pod))
        if len(others) + 1 + self._running(pod) < int(size):
            return Status(Code.WAIT, (f"waiting for the {size} pods of its group",)), self._wait_s
        for other in others:
            other.allow(self.name)
        return None, 0.0

    def reserve(self, _state: CycleState, _pod: PodInfo, _node: str) -> Status | None:
        """Reserve nothing: only what becomes of the others matters."""
        return None

    def unreserve(self, _state: CycleState, pod: PodInfo, _node: str) -> None:
        """Free all places of the group when one of its pods gives up."""
        if _group(pod)[0]:
            for other in list(self._waiting(pod)):
                other.reject(self.name, "another pod of its group has no place")

    def _waiting(self, pod: PodInfo) -> Iterator[WaitingPod]:
        """Yield the others of the group that have a node and wait."""
        for one in self._handle.waiting():
            if _same(one.pod, pod) and one.pod.key != pod.key:
                yield one

    def _running(self, pod: PodInfo) -> int:
        """Return how many of the group are bound already; one that was only given a node may still lose it."""
        nodes = self._handle.snapshot().nodes
        placed = (one for node in nodes for one in node.pods if _same(one, pod))
        return sum(bool(objects.spec(one.pod).get("nodeName")) for one in placed)


def _group(pod: PodInfo) -> tuple[str, str]:
    labels = objects.labels(pod.pod)
    return labels.get(NAME, ""), labels.get(SIZE, "")


def _same(one: PodInfo, other: PodInfo) -> bool:
    return _group(one)[0] == _group(other)[0] and one.key.namespace == other.key.namespace
