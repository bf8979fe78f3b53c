"""Pods run where their volumes are, or can be: claims that are bound, and claims that wait for a pod's node.

A claim of a class with ``WaitForFirstConsumer`` gets its volume with its pod's node: one that is there already is
named to be the claim's (``spec.claimRef``), else its provisioner is told the node (``selected-node``), and the pod is
bound once the controller of volumes has bound all its claims. Where a driver says how much room there is for its
volumes (``storageCapacity`` of its CSIDriver), only nodes that have enough get the pod: capacity.py.
Source: pkg/scheduler/framework/plugins/volumebinding.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.pod_claims import not_its_own
from minik8s_modules.api.storage import claims, matching
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Event, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Code, Status, error, unresolvable
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.plugins import capacity
from minik8s_modules.scheduler.plugins.base import InTree

_TIMEOUT_S = 600
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_WAITING = Status(Code.WAIT)
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_NO_ROOM = "node(s) did not have enough free storage"


class _Place(NamedTuple):
    """What the pod's claims would get on one node: volumes that are there, and such that are to be made."""

    volumes: tuple[tuple[JsonObject, JsonObject], ...] = ()
    """Each with its claim."""
    provisioned: tuple[JsonObject, ...] = ()
    """Claims."""


class _Failed(Exception):
    """The attempt ends."""


@dataclass
class _Attempt:
    """What one attempt to schedule one pod keeps; copies of its state share it, as upstream.

    Attributes:
        bound: the volumes of claims that are bound; None stands for one that is not there.
        unbound: the claims that wait for the pod's node, the smallest first, with the volumes that each may have.
        deadline: until when the claims must be bound, once that was asked for.
    """

    storage: Storage
    bound: tuple[JsonObject | None, ...] = ()
    unbound: tuple[tuple[JsonObject, list[JsonObject]], ...] = ()
    places: dict[str, _Place] = field(default_factory=dict)
    deadline: float | None = None


class VolumeBinding(InTree):
    """Finds volumes for the pod's claims, and has them bound."""

    name = "VolumeBinding"

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None]:
        """Return why the claims fit no node; skip a pod without claims."""
        if snapshot.storage is None or not pod.claims:
            return None, SKIP
        found: list[JsonObject] = []
        for name in pod.claims:
            claim = snapshot.storage.claim(Key(pod.key.namespace, name))
            if why := _unusable(pod, name, claim):
                return None, unresolvable(why)
            found += [claim] if claim is not None else []
        attempt = _attempt(snapshot.storage, found)
        if attempt is None:
            return None, unresolvable("pod has unbound immediate PersistentVolumeClaims")
        state[self.name] = attempt
        return None, None

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return why the claims' volumes cannot be had on the node."""
        attempt: _Attempt = state[self.name]
        reasons = [*_of_bound(attempt.bound, node.node)]
        place = _place(attempt, node)
        if isinstance(place, str):
            reasons.append(place)
        else:
            attempt.places[node.name] = place
        return unresolvable(*reasons) if reasons else None

    def reserve(self, state: CycleState, _pod: PodInfo, node: str) -> Status | None:
        """Count the volumes as the claims', so that no other pod gets them."""
        attempt: _Attempt | None = state.get(self.name)
        if attempt is None or not attempt.unbound:
            return None
        place = attempt.places[node] = _reserved(attempt, node)
        for volume, _ in place.volumes:
            attempt.storage.assume_volume(volume)
        for claim in place.provisioned:
            attempt.storage.assume_claim(claim)
        return None

    def unreserve(self, state: CycleState, _pod: PodInfo, node: str) -> None:
        """Take that back."""
        attempt: _Attempt | None = state.get(self.name)
        if attempt is not None:
            place = attempt.places.get(node, _Place())
            attempt.storage.forget(place.provisioned, (volume for volume, _ in place.volumes))

    def pre_bind(self, state: CycleState, _pod: PodInfo, node: str) -> Status | None:
        """Write what was assumed, then WAIT until all claims are bound; an error after ``bindTimeoutSeconds``."""
        attempt: _Attempt | None = state.get(self.name)
        if attempt is None or not attempt.unbound:
            return None
        try:
            if attempt.deadline is None:
                attempt.deadline = time.monotonic() + int(self.arguments.get("bindTimeoutSeconds", _TIMEOUT_S))
                attempt.places[node] = self._written(attempt.places[node])
            if _is_bound(attempt, attempt.places[node], node, self.handle.snapshot().get(node)):
                return None
        except (_Failed, StatusError, TemporaryError) as failure:
            return error(f"binding volumes: {failure}")
        if time.monotonic() >= attempt.deadline:
            return error("binding volumes: context deadline exceeded")
        return _WAITING

    def _written(self, place: _Place) -> _Place:
        """Return the place with the objects as the API has them now."""
        return _Place(
            tuple((self._write(PERSISTENT_VOLUME, volume), claim) for volume, claim in place.volumes),
            tuple(self._write(PERSISTENT_VOLUME_CLAIM, claim) for claim in place.provisioned),
        )

    def _write(self, kind: Kind, obj: JsonObject) -> JsonObject:
        written: JsonObject = self.handle.api.update(kind, obj)
        return written

    def wakes(self) -> Sequence[Wake]:
        """Return when a claim may have got a volume, or a node come to have one."""

        def allows_more(_pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
            return old is None or old.get("allowedTopologies") != new.get("allowedTopologies")

        return (
            Wake(Event("StorageClass", "Add")),
            Wake(Event("StorageClass", "Update"), allows_more),
            Wake(Event("PersistentVolumeClaim", "Add"), is_claimed),
            Wake(Event("PersistentVolumeClaim", "Update"), is_claimed),
            Wake(Event("PersistentVolume", "Add")),
            Wake(Event("PersistentVolume", "Update")),
            Wake(Event("Node", "Add")),
            Wake(Event("Node", "UpdateLabel")),
            Wake(Event("CSIDriver", "Update"), capacity.asks_less),
            Wake(Event("CSIStorageCapacity", "Add")),
            Wake(Event("CSIStorageCapacity", "Update"), capacity.has_more),
        )


def reserved(state: CycleState, node: str) -> list[tuple[Kind, JsonObject]]:
    """Return the volumes and claims as scheduling a pod to ``node`` writes them; nothing once its claims are bound.

    ``state`` is that of a decision which chose the node.
    """
    attempt: _Attempt | None = state.get(VolumeBinding.name)
    if attempt is None or not attempt.unbound:
        return []
    place = _reserved(attempt, node)
    volumes = [(PERSISTENT_VOLUME, volume) for volume, _ in place.volumes]
    return [*volumes, *((PERSISTENT_VOLUME_CLAIM, claim) for claim in place.provisioned)]


def _reserved(attempt: _Attempt, node: str) -> _Place:
    place = attempt.places[node]
    return _Place(
        tuple((_held(volume, claim), claim) for volume, claim in place.volumes),
        tuple(_wanted_on(claim, node) for claim in place.provisioned),
    )


def is_claimed(pod: PodInfo, _old: JsonObject | None, new: JsonObject) -> bool:
    """Return whether a claim is one of the pod's: a hint for the queue."""
    return objects.namespace(new) == pod.key.namespace and objects.name(new) in pod.claims


def _unusable(pod: PodInfo, name: str, claim: JsonObject | None) -> str:
    """Return why the pod cannot have a claim at all."""
    own = name not in pod.shape.claims
    if claim is None:
        made = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return made if own else f'persistentvolumeclaim "{name}" not found'
    if objects.status(claim).get("phase") == "Lost":
        volume = objects.spec(claim).get("volumeName") or ""
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if objects.is_deleting(claim):
        return f'persistentvolumeclaim "{name}" is being deleted'
    return not_its_own(pod.pod, claim) if own else ""


def _attempt(storage: Storage, wanted: Sequence[JsonObject]) -> _Attempt | None:
    """Return what is known of the pod's claims; None where one should have been bound already."""
    bound: list[JsonObject | None] = []
    unbound: list[JsonObject] = []
    for claim in wanted:
        named = objects.spec(claim).get("volumeName")
        if named and claims.is_complete(claim):
            bound.append(storage.volume(str(named)))
        elif not named and claims.waits_for_consumer(storage.storage_class(claims.class_of(claim))):
            unbound.append(claim)
        else:
            return None
    unbound.sort(key=claims.requested)
    found = ((claim, matching.suitable(claim, storage.volumes_of(claims.class_of(claim)))) for claim in unbound)
    return _Attempt(storage, tuple(bound), tuple(found))


def _of_bound(volumes: Sequence[JsonObject | None], node: JsonObject) -> Iterator[str]:
    """Yield why bound volumes cannot be had on a node."""
    for volume in volumes:
        if volume is None:
            yield "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            return
        if not matching.reaches_node(volume, node):
            yield "node(s) had volume node affinity conflict"
            return


def _place(attempt: _Attempt, node: NodeInfo) -> _Place | str:
    """Return what the claims that are not bound would get on a node, or why one gets nothing there."""
    volumes: list[tuple[JsonObject, JsonObject]] = []
    provisioned: list[JsonObject] = []
    taken: set[str] = set()
    for claim, suitable in attempt.unbound:
        chosen = objects.annotations(claim).get(claims.SELECTED_NODE)
        if chosen not in {None, node.name}:
            return _NO_VOLUME
        volume = None if chosen else next(
            (one for one in suitable if objects.name(one) not in taken and matching.reaches_node(one, node.node)), None
        )  # fmt: skip
        if volume is not None:
            taken.add(objects.name(volume))
            volumes.append((volume, claim))
        else:
            storage_class = attempt.storage.storage_class(claims.class_of(claim)) or {}
            if not _can_provide(storage_class, node.labels):
                return _NO_VOLUME
            if not capacity.is_enough(attempt.storage.capacities(storage_class), claim, node.labels):
                return _NO_ROOM
            provisioned.append(claim)
    return _Place(tuple(volumes), tuple(provisioned))


def _can_provide(storage_class: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a class makes volumes for a node with these labels."""
    if (storage_class.get("provisioner") or _NO_PROVISIONER) == _NO_PROVISIONER:
        return False
    terms = storage_class.get("allowedTopologies") or []
    return not terms or any(_allows(term, labels) for term in terms)


def _allows(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = term.get("matchLabelExpressions") or []
    return bool(wanted) and all(labels.get(one.get("key", "")) in (one.get("values") or ()) for one in wanted)


def _held(volume: JsonObject, claim: JsonObject) -> JsonObject:
    """Return the volume as the claim's (``GetBindVolumeToClaim``)."""
    kept = claims.is_held_by(volume, claim)
    marks = {} if kept else {claims.BOUND_BY_CONTROLLER: "yes"}
    meta = {**objects.metadata(volume), "annotations": {**objects.annotations(volume), **marks}}
    reference = {**objects.object_reference(claim), "resourceVersion": objects.resource_version(claim)}
    return {**volume, "metadata": meta, "spec": {**objects.spec(volume), "claimRef": reference}}


def _wanted_on(claim: JsonObject, node: str) -> JsonObject:
    marks = {**objects.annotations(claim), claims.SELECTED_NODE: node}
    return {**claim, "metadata": {**objects.metadata(claim), "annotations": marks}}


def _is_bound(attempt: _Attempt, place: _Place, node: str, info: NodeInfo | None) -> bool:
    """Return whether the claims are bound as was asked for. Raises _Failed where they will not be."""
    if info is None:
        raise _Failed(f'failed to get node "{node}": node "{node}" not found')
    storage = attempt.storage
    given = all(_is_given(storage, volume, claim) for volume, claim in place.volumes)
    return given and all(_is_made(storage, claim, info) for claim in place.provisioned)


def _is_given(storage: Storage, volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a claim has got the volume that was there."""
    now = _seen(storage.stored_volume(objects.name(volume)), volume)
    if now is None:
        return False
    if not (objects.spec(now).get("claimRef") or {}).get("uid"):
        raise _Failed(f'ClaimRef got reset for pv "{objects.name(volume)}"')
    return _is_complete(storage.stored_claim(objects.key(claim)), claim)


def _is_made(storage: Storage, claim: JsonObject, node: NodeInfo) -> bool:
    """Return whether a claim's volume was made, for the node."""
    now = _seen(storage.stored_claim(objects.key(claim)), claim)
    if now is None:
        return False
    if objects.annotations(now).get(claims.SELECTED_NODE) != node.name:
        raise _Failed(f'provisioning failed for PVC "{objects.name(claim)}"')
    made = storage.stored_volume(str(objects.spec(now).get("volumeName") or ""))
    if made is not None and not matching.reaches_node(made, node.node):
        name = objects.name(made)
        raise _Failed(f'pv "{name}" node affinity doesn\'t match node "{node.name}": no matching NodeSelectorTerms')
    return made is not None and _is_complete(now, claim)


def _seen(now: JsonObject | None, written: JsonObject) -> JsonObject | None:
    """Return an object as the API has it, None while what came by the watch is older than what was written.

    Raises:
        _Failed: it has gone.
    """
    if now is None or objects.uid(now) != objects.uid(written):
        raise _Failed(f'failed to check binding: "{objects.key(written)}" has gone')
    return None if _revision(now) < _revision(written) else now


def _revision(obj: JsonObject) -> int:
    version = objects.resource_version(obj)
    return int(version) if version.isdecimal() else 0


def _is_complete(now: JsonObject | None, wanted: JsonObject) -> bool:
    if now is None or objects.uid(now) != objects.uid(wanted):
        raise _Failed(f'failed to check binding: claim "{objects.key(wanted)}" has gone')
    return bool(objects.spec(now).get("volumeName")) and claims.is_complete(now)
