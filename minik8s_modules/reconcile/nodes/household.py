"""What housekeeping reads and writes in a running shard (``job.World``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping import eviction, pressure
from minik8s_modules.reconcile.housekeeping.eviction import Eviction
from minik8s_modules.reconcile.housekeeping.image_gc import Image
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.status.writer import StatusWriter
from minik8s_modules.runtime.events import KUBELET, EventRecorder, EventType


class Household(NamedTuple):
    """The parts of a shard that housekeeping uses."""

    ready: Callable[[], bool]
    containers: Callable[[str], list[ObservedContainer] | None]
    pods: Callable[[str], list[JsonObject]]
    node: Callable[[str], JsonObject | None]
    recorder: EventRecorder
    writer: StatusWriter
    registrar: Registrar
    static: Callable[[str, list[JsonObject]], None]
    keep_mirrors: Callable[[str], None]
    rooms: Callable[[str, Mapping[tuple[str, str], Mapping[str, int]]], None]

    def tell(self, node: str, kind: str, reason: str, message: str) -> None:
        """Record an Event of the node."""
        found = self.node(node)
        if found is not None:
            event_type: EventType = "Warning" if kind == "Warning" else "Normal"
            self.recorder.event(found, event_type, reason, message, component=KUBELET, host=node)

    def evict(self, found: Eviction) -> None:
        """Fail the pod and say why."""
        self.writer.fail(objects.uid(found.pod), eviction.REASON, found.message)
        node = str(objects.spec(found.pod).get("nodeName") or "")
        self.recorder.event(found.pod, "Warning", eviction.REASON, found.message, component=KUBELET, host=node)

    def pressed(self, node: str, found: frozenset[str]) -> None:
        """Write the node's conditions and taints, and tell what changed."""
        before = self.registrar.on_pressure(node, found)
        for name in sorted(found ^ before):
            kind = pressure.CONDITIONS[name]
            reason = (kind.bad if name in found else kind.good)[0].replace("Kubelet", "Node")
            self.tell(node, "Normal", reason, f"Node {node} status is now: {reason}")

    def drivers(self, node: str, found: dict[str, JsonObject]) -> None:
        """Write which CSI drivers the node has."""
        self.registrar.on_drivers(node, found)

    def images(self, node: str, images: list[Image]) -> None:
        """Write which images the node has."""
        self.registrar.on_images(node, images)
