"""What volumes that are there already say: who else has them, in which zone they are, how many a node can have.

Source: pkg/scheduler/framework/plugins/{volumerestrictions,volumezone,nodevolumelimits}. How many volumes of a driver a
node can have stands in its CSINode, or else as ``attachable-volumes-csi-DRIVER`` in its allocatable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage.claims import class_of, waits_for_consumer
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Event, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Status, unresolvable, unschedulable
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.plugins.base import InTree
from minik8s_modules.scheduler.plugins.volume_binding import is_claimed

Nodes = tuple[frozenset[str] | None, Status | None]
_ONE_POD = "ReadWriteOncePod"
_LIMIT = "attachable-volumes-csi-"
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LABELS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE, "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE, _REGION: _REGION,
}  # fmt: skip
"""The labels that count, each with its name of today."""


@dataclass
class _Users:
    """Who has the claims that only one pod may have; cloned for what if."""

    namespace: str
    claims: frozenset[str]
    count: int

    def clone(self) -> _Users:
        return _Users(self.namespace, self.claims, self.count)

    def uses(self, other: PodInfo) -> int:
        if not other.shape.claims or other.key.namespace != self.namespace:
            return 0
        return sum(name in self.claims for name in other.shape.claims)


class VolumeRestrictions(InTree):
    """No two pods share a disk that cannot be shared, nor a claim with ReadWriteOncePod."""

    name = "VolumeRestrictions"

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Nodes:
        """Count who has the claims that only one pod may have; skip a pod that has nothing of the kind."""
        alone: set[str] = set()
        storage = snapshot.storage or Storage()
        for name in pod.shape.claims if snapshot.storage is not None else ():
            claim = storage.claim(Key(pod.key.namespace, name))
            if claim is None:
                return None, unresolvable(f'persistentvolumeclaim "{name}" not found')
            if _ONE_POD in (objects.spec(claim).get("accessModes") or ()):
                alone.add(name)
        users = _Users(pod.key.namespace, frozenset(alone), 0)
        if alone:
            users.count = sum(users.uses(other) for node in snapshot.nodes for other in node.pods)
        if not users.count and not pod.shape.disks:
            return None, SKIP
        state[self.name] = users
        return None, None

    def add_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, _node: NodeInfo) -> Status | None:
        """Count one that comes."""
        state[self.name].count += state[self.name].uses(other)
        return None

    def remove_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, _node: NodeInfo) -> Status | None:
        """Count one that goes."""
        state[self.name].count -= state[self.name].uses(other)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return who is in the way."""
        if pod.shape.disks and any(_conflict(pod, other) for other in node.pods):
            return unschedulable("node(s) had no available disk")
        if state[self.name].count:
            message = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            return unschedulable(message)
        return None

    def wakes(self) -> Sequence[Wake]:
        """Return when a disk or a claim may have come free, or a claim come."""

        def frees(pod: PodInfo, old: JsonObject | None, _new: JsonObject | None) -> bool:
            gone = PodInfo.of(old) if old is not None else pod
            same = gone.key.namespace == pod.key.namespace
            return _conflict(pod, gone) or (same and bool({*pod.shape.claims} & {*gone.shape.claims}))

        return (
            Wake(Event("AssignedPod", "Delete"), frees),
            Wake(Event("Node", "Add")),
            Wake(Event("PersistentVolumeClaim", "Add"), is_claimed),
        )


def _conflict(pod: PodInfo, other: PodInfo) -> bool:
    """Return whether two pods want one disk that they cannot share."""
    return any(_same_disk(mine, theirs) for mine in pod.shape.disks for theirs in other.shape.disks)


def _same_disk(mine: JsonObject, theirs: JsonObject) -> bool:
    for kind, identity in (("gcePersistentDisk", "pdName"), ("awsElasticBlockStore", "volumeID"), ("iscsi", "iqn")):
        one, other = mine.get(kind), theirs.get(kind)
        if one and other and one.get(identity) == other.get(identity):
            shared = kind != "awsElasticBlockStore" and one.get("readOnly") and other.get("readOnly")
            return not shared
    one, other = mine.get("rbd"), theirs.get("rbd")
    if not one or not other or (one.get("readOnly") and other.get("readOnly")):
        return False
    pool = (one.get("pool") or "rbd") == (other.get("pool") or "rbd")
    return pool and one.get("image") == other.get("image") and bool({*one["monitors"]} & {*other["monitors"]})


class VolumeZone(InTree):
    """A pod whose volume has a zone or region in its labels runs in that one."""

    name = "VolumeZone"

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Nodes:
        """Collect the zones of the pod's volumes; skip a pod whose volumes have none."""
        if snapshot.storage is None:
            return None, SKIP
        zones: list[tuple[str, frozenset[str]]] = []
        for name in pod.shape.claims:
            volume, why = _volume_of(snapshot.storage, Key(pod.key.namespace, name))
            if why:
                return None, unresolvable(why)
            zones += _zones(volume or {})
        if not zones:
            return None, SKIP
        state[self.name] = zones
        return None, None

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason on a node elsewhere; one that says nothing of zones has them all."""
        labels = node.labels
        if not any(key in labels for key in _LABELS):
            return None
        for key, values in state[self.name]:
            if labels.get(key, labels.get(_LABELS[key])) not in values:
                return unresolvable("node(s) had no available volume zone")
        return None

    def wakes(self) -> Sequence[Wake]:
        """Return when a volume may have come, or its zone, or a node there."""

        def delayed(_pod: PodInfo, _old: JsonObject | None, new: JsonObject) -> bool:
            return waits_for_consumer(new)

        def elsewhere(_pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
            return old is None or [*_zones(old)] != [*_zones(new)]

        return (
            Wake(Event("StorageClass", "Add"), delayed),
            Wake(Event("Node", "Add")),
            Wake(Event("Node", "UpdateLabel")),
            Wake(Event("PersistentVolumeClaim", "Add"), is_claimed),
            Wake(Event("PersistentVolumeClaim", "Update"), is_claimed),
            Wake(Event("PersistentVolume", "Add"), elsewhere),
            Wake(Event("PersistentVolume", "Update"), elsewhere),
        )


def _volume_of(storage: Storage, key: Key) -> tuple[JsonObject | None, str]:
    """Return the volume of a claim, None for one that waits for the pod's node, and why there should be one."""
    claim = storage.claim(key)
    if claim is None:
        return None, f'persistentvolumeclaim "{key.name}" not found'
    named = str(objects.spec(claim).get("volumeName") or "")
    if named:
        volume = storage.volume(named)
        return volume, "" if volume is not None else f'persistentvolume "{named}" not found'
    wanted = class_of(claim)
    if not wanted:
        return None, "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = storage.storage_class(wanted)
    if storage_class is None:
        return None, f'storageclass.storage.k8s.io "{wanted}" not found'
    return None, "" if waits_for_consumer(storage_class) else "PersistentVolume had no name"


def _zones(volume: JsonObject) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the volume's labels that count, each with its values: there may be several, as ``a__b``."""
    labels = objects.labels(volume)
    for key in _LABELS:
        values = frozenset(one.strip() for one in labels[key].split("__")) if key in labels else frozenset()
        if values and "" not in values:
            yield key, values


class NodeVolumeLimits(InTree):
    """A node has no more volumes of a CSI driver than it says."""

    name = "NodeVolumeLimits"

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Nodes:
        """Collect the pod's volumes that drivers attach; skip a pod without any."""
        if snapshot.storage is None:
            return None, SKIP
        wanted: dict[str, str] = {}
        for name in pod.claims:
            claim = snapshot.storage.claim(Key(pod.key.namespace, name))
            if claim is None:
                message = f'looking up PVC {pod.key.namespace}/{name}: persistentvolumeclaim "{name}" not found'
                return None, unresolvable(message)
            wanted |= _attached(snapshot.storage, claim)
        if not wanted:
            return None, SKIP
        state[self.name] = (snapshot.storage, wanted)
        return None, None

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return the reason on a node whose drivers have no room for as many volumes more."""
        storage, wanted = state[self.name]
        limited = {driver: most for driver in wanted.values() if (most := _limit(storage, node, driver)) is not None}
        if not limited:
            return None
        there: dict[str, str] = {}
        for other in node.pods:
            for name in other.claims:
                there |= _attached(storage, storage.claim(Key(other.key.namespace, name)) or {})
        together = [*{**there, **wanted}.values()]
        over = any(together.count(one) > most for one, most in limited.items() if _is_new(one, wanted, there))
        return unschedulable("node(s) exceed max volume count") if over else None

    def wakes(self) -> Sequence[Wake]:
        """Return when a node may have room for more volumes."""

        def had_claims(_pod: PodInfo, old: JsonObject | None, _new: JsonObject | None) -> bool:
            return old is not None and bool(PodInfo.of(old).claims)

        return (
            Wake(Event("Node", "Add")),
            Wake(Event("Node", "UpdateAllocatable")),
            Wake(Event("CSINode", "Add")),
            Wake(Event("CSINode", "Update")),
            Wake(Event("AssignedPod", "Delete"), had_claims),
            Wake(Event("PersistentVolumeClaim", "Add"), is_claimed),
        )


def _limit(storage: Storage, node: NodeInfo, driver: str) -> int | None:
    """Return how many volumes of the driver the node can have, None where nothing says so."""
    said = storage.limits(node.name).get(driver)
    return node.has.get(f"{_LIMIT}{driver}") if said is None else said


def _is_new(driver: str, wanted: Mapping[str, str], there: Mapping[str, str]) -> bool:
    return any(of == driver and handle not in there for handle, of in wanted.items())


def _attached(storage: Storage, claim: JsonObject) -> dict[str, str]:
    """Return the claim's volume, if a driver attaches it, as ``{driver/handle: driver}``."""
    volume = storage.volume(str(objects.spec(claim).get("volumeName") or ""))
    if volume is not None:
        source: Mapping[str, Any] = objects.spec(volume).get("csi") or {}
        driver, handle = str(source.get("driver") or ""), str(source.get("volumeHandle") or "")
    else:
        driver = str((storage.storage_class(class_of(claim)) or {}).get("provisioner") or "")
        handle = f"claim {objects.key(claim)}"
    return {f"{driver}/{handle}": driver} if driver and handle else {}
