"""Asks how full the volumes of claims are: ``kubelet_volume_stats_*`` of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.reconcile.housekeeping.job import Job, World

LOOK_S, EVERY_S = 5.0, 60.0  # the latter is kubelet's volumeStatsAggPeriod
_OVER = frozenset({"Succeeded", "Failed"})
Claim = tuple[str, str]
"""Namespace and name."""
Rooms = Mapping[Claim, Mapping[str, int]]


class VolumeRoom(Job):
    """Asks a node a moment after its Pods have other claims than before, and every minute; without any never."""

    section = "usage"

    def __init__(self, node: str, world: World) -> None:
        super().__init__()
        self._node, self._world = node, world
        self._asked: Mapping[str, Claim] = {}
        self._again_s, self._fresh = 0.0, False

    def begin(self, now_s: float) -> JsonObject | None:
        """Ask for the claims' volumes; those of new Pods are mounted by the next look, or the one after."""
        self.due_s = now_s + LOOK_S
        found = claimed(self._world.pods(self._node))
        changed = found != self._asked
        if not changed and not self._fresh and now_s < self._again_s:
            return None
        self._asked, self._fresh, self._again_s = found, changed, now_s + EVERY_S
        if not found:
            self._world.rooms(self._node, {})
            return None
        return {"node": self._node, "mounted": sorted(self._asked)}

    def end(self, result: Mapping[str, Any], _now_s: float) -> None:
        """Tell what the volumes say; of one that says nothing, nothing."""
        rooms = result.get("rooms")
        rows = rooms.items() if isinstance(rooms, Mapping) else ()
        found = {self._asked[key]: _numbers(room) for key, room in rows if key in self._asked}
        self._world.rooms(self._node, found)


def claimed(pods: list[JsonObject]) -> dict[str, Claim]:
    """Return the claims that pods have, by ``<uid>/<volume>``."""
    return {
        f"{objects.uid(pod)}/{volume['name']}": (objects.namespace(pod), name)
        for pod in pods
        if objects.status(pod).get("phase") not in _OVER
        for volume in objects.spec(pod).get("volumes") or []
        if (name := claim_of(pod, volume))
    }


def _numbers(room: Any) -> dict[str, int]:
    rows = room.items() if isinstance(room, Mapping) else ()
    return {str(field): number for field, number in rows if isinstance(number, int)}
