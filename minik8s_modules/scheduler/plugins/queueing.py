"""Which pods are tried, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event, Queued, Wake
from minik8s_modules.scheduler.framework.statuses import Status, unresolvable
from minik8s_modules.scheduler.plugins.base import InTree


class PrioritySort(InTree):
    """Pods of higher priority first, then those that were queued earlier."""

    name = "PrioritySort"

    def less(self, one: Queued, other: Queued) -> bool:
        """Return whether ``one`` is tried before ``other``."""
        mine, theirs = one.pod.priority, other.pod.priority
        return mine > theirs or (mine == theirs and one.since < other.since)


class SchedulingGates(InTree):
    """A pod with scheduling gates is not tried until the last of them was taken away."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Return the gates there are."""
        gates = [str(one.get("name")) for one in objects.spec(pod.pod).get("schedulingGates") or []]
        if not gates:
            return None
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")

    def wakes(self) -> Sequence[Wake]:
        """Return that only the pod itself can change that."""
        return (Wake(Event("Pod", "UpdateGates")),)
