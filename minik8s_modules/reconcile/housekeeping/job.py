"""What housekeeping asks a node now and then, and the parts of a shard that it reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping.eviction import Eviction
from minik8s_modules.reconcile.housekeeping.image_gc import Image
from minik8s_modules.reconcile.pods.observed import ObservedContainer

RETRY_S = 10.0


class World(Protocol):
    """What is read and written; the service's parts."""

    def containers(self, node: str) -> list[ObservedContainer] | None:
        """Return the node's containers of ours; None while they are not known."""

    def ready(self) -> bool:
        """Return whether the pods are known; before, none may count as gone."""

    def pods(self, node: str) -> list[JsonObject]:
        """Return the node's pods."""

    def node(self, name: str) -> JsonObject | None:
        """Return the Node."""

    def tell(self, node: str, kind: str, reason: str, message: str) -> None:
        """Record an Event of the node."""

    def evict(self, eviction: Eviction) -> None:
        """Fail the pod and say why."""

    def pressed(self, node: str, found: frozenset[str]) -> None:
        """Write the node's conditions and taints."""

    def images(self, node: str, images: list[Image]) -> None:
        """Write which images the node has."""

    def drivers(self, node: str, found: dict[str, JsonObject]) -> None:
        """Write which CSI drivers the node has."""

    def rooms(self, node: str, found: Mapping[tuple[str, str], Mapping[str, int]]) -> None:
        """Count how full the volumes of a node's claims are, by namespace and name of the claim."""

    def static(self, node: str, pods: list[JsonObject]) -> None:
        """Take over the static pods of a node's folder."""

    def keep_mirrors(self, node: str) -> None:
        """Make the mirrors that are missing."""


class Job(ABC):
    """One section of one node, asked for whenever it is due; seconds are monotonic."""

    section: ClassVar[str]
    fenced: ClassVar[bool] = False
    """Whether the node must refuse it from a shard that is led no more."""

    def __init__(self) -> None:
        self.due_s = 0.0
        self.item_id = ""
        """The item under way, "" for none."""

    def due(self, now_s: float) -> bool:
        """Return whether it is to begin."""
        return not self.item_id and now_s >= self.due_s

    @abstractmethod
    def begin(self, now_s: float) -> JsonObject | None:
        """Return the section's options, None where there is nothing to ask for."""

    @abstractmethod
    def end(self, result: Mapping[str, Any], now_s: float) -> None:
        """Take over the section's result."""

    def failed(self, now_s: float) -> None:
        """Try again soon."""
        self.due_s = now_s + RETRY_S
