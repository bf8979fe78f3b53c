"""Registers the shard's hosts as Nodes and keeps their Ready condition; level-triggered like everything else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import minik8s_modules
from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.nodes.counted_devices import COUNTED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.client.interface import Api
from minik8s_modules.reconcile.housekeeping import pressure
from minik8s_modules.reconcile.housekeeping.image_gc import Image
from minik8s_modules.reconcile.nodes import csi_nodes, devices, nodes
from minik8s_modules.reconcile.values.node_file import Declared
from minik8s_modules.runtime.pod_cidrs import claim_cidr
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

log = logging.getLogger(__name__)
MOST_IMAGES = 50
"""kubelet's nodeStatusMaxImages."""


class Registrar:
    """``lookup(name)`` is the informer's Node, ``alive(name)`` what the gateway says (None: not known yet).

    With an empty ``cluster_cidr`` the controllers give the nodes their ranges. ``silence(name)`` is why a node does not
    answer. ``ipv6``: whether Nodes tell the IPv6 addresses of their machines.
    """

    def __init__(
        self,
        api: Api,
        lookup: Callable[[str], JsonObject | None],
        alive: Callable[[str], bool | None],
        cluster_cidr: str,
        clock: Clock,
        kept: Mapping[str, str] | None = None,
        declared: Mapping[str, Declared] | None = None,
        silence: Callable[[str], str] = lambda _: "",
        kubelet_port: int = 0,
        dual_stack: DualStack = SINGLE_STACK,
        *,
        ipv6: bool = False,
    ) -> None:
        self._ipv6 = ipv6
        self._dual_stack = dual_stack
        self._kubelet_port = kubelet_port
        self._silence = silence
        self._kept = kept or {}
        self._declared = declared or {}
        self._pressure: dict[str, frozenset[str]] = {}
        self._images: dict[str, list[JsonObject]] = {}
        self._drivers: dict[str, csi_nodes.Drivers] = {}
        self._volumes: dict[str, frozenset[str]] = {}
        self._silent: dict[str, bool] = {}
        self._api = api
        self._lookup = lookup
        self._alive = alive
        self._cluster_cidr = cluster_cidr
        self._clock = clock
        self._facts: dict[str, JsonObject] = {}
        self._registered: set[str] = set()
        """Hosts whose Node was there after they told of themselves: where it is not any more, it was deleted."""
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._workers = Workers(self._queue, self.write, "nodes")

    def start(self) -> None:
        """Start the writing thread."""
        self._workers.start()

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._workers.stop()

    def on_facts(self, name: str, facts: JsonObject) -> None:
        """Take over what a node told of itself."""
        self._facts[name] = facts
        self._registered.discard(name)
        self._queue.add(name)

    def on_pressure(self, name: str, found: frozenset[str]) -> frozenset[str]:
        """Take over which pressures a node is under; return those it was under before."""
        before, self._pressure[name] = self._pressure.get(name, frozenset()), found
        self._queue.add(name)
        return before

    def on_images(self, name: str, images: Iterable[Image]) -> None:
        """Take over which images a node has: the largest are told, as kubelet does."""
        largest = sorted(images, key=lambda image: (-image.size_bytes, image.id))[:MOST_IMAGES]
        self._images[name] = [{"names": list(one.names), "sizeBytes": one.size_bytes} for one in largest if one.names]
        self._queue.add(name)

    def on_drivers(self, name: str, found: csi_nodes.Drivers) -> None:
        """Take over which CSI drivers a node has."""
        self._drivers[name] = found
        self._queue.add(name)

    def on_volumes(self, name: str, found: frozenset[str]) -> None:
        """Take over which attached volumes a node may have mounted."""
        if self._volumes.get(name) != found:
            self._volumes[name] = found
            self._queue.add(name)

    def on_silent(self, name: str, silent: bool) -> None:  # noqa: FBT001 - a callback
        """Take over whether a node that is listened to closely has fallen silent."""
        if self._silent.get(name) is not silent:
            self._silent[name] = silent
            self._queue.add(name)

    def enqueue(self, name: str) -> None:
        """Look at the node soon."""
        self._queue.add(name)

    def write(self, name: str) -> None:
        """Create or update the Node; raises as the API does."""
        facts = self._facts.get(name)
        node = self._lookup(name)
        if node is None:
            if facts is None or name in self._registered:
                return
            node = self._create(name, facts)
        if facts is not None:
            self._registered.add(name)
            node = self._counting(name, node)
            self._complete(name, node, facts)
        if name in self._pressure:
            taints = pressure.taints(node, self._pressure[name])
            if taints is not None:
                # the version makes it a conflict to undo what somebody else has just written
                meta = {"resourceVersion": objects.resource_version(node)}
                node = self._api.patch(NODE, name, "", {"metadata": meta, "spec": {"taints": taints or None}})
        self._write_status(name, node, facts)
        if facts is not None:
            self._counting(name, node, done=True)
        if (drivers := self._drivers.get(name)) is not None:
            csi_nodes.write(self._api, node, drivers)
            if self._drivers.get(name) is drivers:  # else they have changed since, and are next
                self._drivers.pop(name, None)

    def _create(self, name: str, facts: JsonObject) -> JsonObject:
        ranges = self._dual_stack.ranges_of(self._range(name))
        try:
            created = self._api.create(NODE, nodes.declared(nodes.node_object(name, facts, ranges), self._said(name)))
        except AlreadyExists:
            return self._api.get(NODE, name)
        log.info("node %s is registered with pod CIDR %s", name, " and ".join(ranges) or "from the controllers")
        return created

    def _complete(self, name: str, node: JsonObject, facts: JsonObject) -> None:
        """Give a Node that somebody else created what it lacks; labels changed by people stay."""
        missing = {key: value for key, value in nodes.labels(name, facts).items() if key not in objects.labels(node)}
        body: JsonObject = {"metadata": {"labels": missing}} if missing else {}
        declared = objects.spec(node)
        ranges = self._dual_stack.ranges_of(declared.get("podCIDR") or self._range(name))
        if len(ranges) > len(declared.get("podCIDRs") or []):
            body["spec"] = {"podCIDR": ranges[0], "podCIDRs": ranges}
        if body:
            self._api.patch(NODE, name, "", body)

    def _counting(self, name: str, node: JsonObject, *, done: bool = False) -> JsonObject:
        """Have a Node say which of its resources are counted devices; ``done``: those of before are gone by now."""
        before, now = devices.counted(node), {one.resource for one in self._said(name).devices}
        marks = now if done else before | now
        if before == marks:
            return node
        body = {"metadata": {"annotations": {COUNTED: ",".join(sorted(marks)) or None}}}
        return self._api.patch(NODE, name, "", body)

    def _said(self, name: str) -> Declared:
        return self._declared.get(name) or Declared()

    def _range(self, name: str) -> str:
        return claim_cidr(self._api, self._cluster_cidr, name) if self._cluster_cidr else ""

    def forget(self, name: str) -> None:
        """Forget what a host told of itself: its Node is only created again when it tells it again."""
        self._facts.pop(name, None)
        self._pressure.pop(name, None)
        self._images.pop(name, None)
        self._drivers.pop(name, None)
        self._volumes.pop(name, None)
        self._silent.pop(name, None)

    def _of_facts(self, name: str, node: JsonObject, facts: JsonObject) -> JsonObject:
        before = objects.status(node).get("addresses") or []
        alone = self._dual_stack.alone
        found = nodes.status_from_facts(name, facts, version(), before, ipv6=self._ipv6, ipv6_first=alone)
        if said := self._said(name).addresses:
            found["addresses"] = nodes.addresses(found["addresses"], said, ipv6_first=alone)
        return found

    def _write_status(self, name: str, node: JsonObject, facts: JsonObject | None) -> None:
        wanted: JsonObject = self._of_facts(name, node, facts) if facts is not None else {}
        declared, found = self._said(name).devices, (facts or {}).get("devices")
        ours = devices.amounts(declared, found) if found is not None else {}
        counted = devices.counted(node) if found is not None else frozenset()
        wanted |= nodes.extended_resources(node, wanted, ours, counted)
        alive = self._alive(name)
        if "allocatable" in wanted:
            wanted["allocatable"] = pressure.allocatable(wanted["allocatable"], self._kept)
        if alive is not None:
            now = rfc3339(self._clock.now())
            wanted["conditions"] = nodes.conditions(node, alive=alive, now=now, silence=self._silence(name))
            if alive and name in self._pressure:
                pressed = pressure.conditions(node, self._pressure[name], now)
                others = [one for one in wanted["conditions"] if one["type"] not in pressure.CONDITIONS]
                wanted["conditions"] = [*pressed, *others]
        if name in self._silent:
            known = wanted.get("conditions") or objects.status(node).get("conditions") or []
            wanted["conditions"] = nodes.with_silence(known, silent=self._silent[name], now=rfc3339(self._clock.now()))
        if found is not None:
            known = wanted.get("conditions") or objects.status(node).get("conditions") or []
            wanted["conditions"] = devices.conditions(known, declared, found, rfc3339(self._clock.now()))
        if name in self._images:
            wanted["images"] = self._images[name]
        if name in self._volumes:
            wanted["volumesInUse"] = sorted(self._volumes[name]) or None
        before = objects.status(node)
        wanted |= nodes.endpoints(before, self._kubelet_port)
        changed = {key: _over(before.get(key), value) for key, value in wanted.items() if before.get(key) != value}
        if changed:
            self._api.patch(NODE, name, "", {"status": changed}, subresource="status")


def _over(before: Any, value: Any) -> Any:
    """Return the merge patch that leaves just ``value``: names that a map lacks go."""
    if isinstance(before, dict) and isinstance(value, dict):
        return {**dict.fromkeys(before.keys() - value.keys()), **value}
    return value


def version() -> str:
    """Return the version a node reports as its kubelet's."""
    return f"v{minik8s_modules.__version__}"
