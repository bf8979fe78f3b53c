"""What the gateway last told of a node's machine and images, and what was counted of its pods' local storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping.eviction import Used
from minik8s_modules.reconcile.housekeeping.image_gc import Image
from minik8s_modules.reconcile.pods.observed import ObservedContainer


@dataclass
class NodeFigures:
    """Figures of one node; sizes are bytes."""

    name: str
    machine: JsonObject | None = None
    """See ``pressure.signals``; None before the first reading."""
    memory: dict[str, int] = field(default_factory=dict)
    """Working set by container id."""
    images: list[Image] = field(default_factory=list)
    storage: dict[str, int] = field(default_factory=dict)
    """Writable layer and log by ``UID/container``."""
    volumes: dict[str, int] = field(default_factory=dict)
    """By ``UID/volume``."""
    pressure: frozenset[str] | None = None
    """The conditions that hold; None before the first reading."""

    def on_stats(self, message: Mapping[str, Any]) -> None:
        """Take over a reading of the machine and its containers."""
        self.machine = message.get("machine")
        self.memory = {str(one): int(size) for one, size in (message.get("containers") or {}).items()}

    def on_images(self, message: Mapping[str, Any]) -> bool:
        """Take over the list of images; return whether it changed."""
        found = [
            Image(str(raw["id"]), tuple(map(str, raw["names"])), int(raw["size_bytes"]))
            for raw in message.get("images") or []
        ]
        changed, self.images = found != self.images, found
        return changed

    def used(self, containers: Iterable[ObservedContainer], pods: Iterable[JsonObject]) -> dict[str, Used]:
        """Return what each pod uses, by UID."""
        memory: dict[str, dict[str, int]] = {}
        for one in containers:
            if one.type != "sandbox" and one.id in self.memory:
                memory.setdefault(one.pod_uid, {})[one.container] = self.memory[one.id]
        return {
            uid: Used(memory.get(uid, {}), _below(uid, self.storage), _below(uid, self.volumes))
            for uid in map(objects.uid, pods)
        }


def _below(uid: str, found: Mapping[str, int]) -> dict[str, int]:
    return {key.partition("/")[2]: size for key, size in found.items() if key.startswith(f"{uid}/")}
