"""Counts what pods keep on a node's disk, and has those go that keep more than they may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping import eviction
from minik8s_modules.reconcile.housekeeping.job import Job, World
from minik8s_modules.reconcile.housekeeping.node_figures import NodeFigures

EVERY_S = 60.0


class LocalStorage(Job):
    """Counts pods with limits; under disk pressure, every pod."""

    section = "usage"

    def __init__(self, figures: NodeFigures, world: World) -> None:
        super().__init__()
        self._figures = figures
        self._world = world

    def begin(self, now_s: float) -> JsonObject | None:
        """Ask what pods use."""
        self.due_s = now_s + EVERY_S
        node, wanted = self._figures.name, "DiskPressure" in (self._figures.pressure or ())
        pods = [pod for pod in self._world.pods(node) if wanted or eviction.is_limited(pod)]
        pods = [pod for pod in pods if eviction.may_go(pod)]
        volumes = [f"{objects.uid(pod)}/{volume}" for pod in pods for volume in _on_disk(pod)]
        return {"node": node, "pods": [objects.uid(pod) for pod in pods], "volumes": volumes} if pods else None

    def end(self, result: Mapping[str, Any], _now_s: float) -> None:
        """Take the sizes over; who is above his limits goes."""
        figures = self._figures
        figures.storage, figures.volumes = _sizes(result.get("containers")), _sizes(result.get("volumes"))
        pods = self._world.pods(figures.name)
        used = figures.used(self._world.containers(figures.name) or (), pods)
        for pod in pods:
            found = eviction.over_limits(pod, used[objects.uid(pod)])
            if found is not None:
                self._world.evict(found)


def _on_disk(pod: JsonObject) -> list[str]:
    """Return the emptyDir volumes that lie on disk."""
    volumes = objects.spec(pod).get("volumes") or []
    return [one["name"] for one in volumes if "emptyDir" in one and not (one["emptyDir"] or {}).get("medium")]


def _sizes(raw: Any) -> dict[str, int]:
    rows = raw.items() if isinstance(raw, Mapping) else ()
    return {str(key): int(size) for key, size in rows if isinstance(size, int)}
