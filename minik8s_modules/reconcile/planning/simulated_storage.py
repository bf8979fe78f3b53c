"""What would become of claims and volumes, and which pods they let have a node: their controllers' deciders, simulated.

    operations ─take─▶ claims and volumes of an imagined cluster ─settle─▶ bound, made, released or waiting
    pod ─the scheduler's decision─▶ scheduled: first its claims are to get what it chose, then it is bound

``storage_notes.py`` says what would differ. Programs outside of minik8s that make volumes are not simulated: their
claims wait, and so do the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    KINDS,
    NAMESPACE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage import claims
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import Delete, Patch, RecordEvent, Step
from minik8s_modules.controllers.simulation.deciders import STORAGE_DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import Decider, World, placeholder_uid, run_deciders
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.plugins.volume_binding import reserved
from minik8s_modules.scheduler.profiles.deciding import Scene

_NONE: JsonObject = {"metadata": {}}
STORAGE_KINDS = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)
_LOOKED_AT = (CSI_NODE, CSI_DRIVER, CSI_STORAGE_CAPACITY)
"""What the scheduler looks at besides: how many volumes nodes can have, and how much room drivers have."""


class Placed(NamedTuple):
    """What the scheduler decides of a pod, and whether it is bound by that: its claims may wait for somebody else."""

    decision: Decision
    bound: bool


class Lister(Protocol):
    """Lists objects of a kind."""

    def list(self, kind: Kind) -> Any:
        """Return a page of them."""


def storage_kind(obj: JsonObject) -> Kind | None:
    """Return the kind of a claim, volume or class; None for all else."""
    kind = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return kind if kind in STORAGE_KINDS else None


def storage(changed: Sequence[JsonObject], api: Lister, *, pods_change: bool) -> tuple[JsonObject, ...]:
    """Return what claims are judged by, if one of ``changed`` is of them or a namespace; raises as the API does.

    Args:
        changed: what a plan is asked about.
        api: lists.
        pods_change: whether pods come or go by it, which may have claims.
    """
    if not pods_change and not any(storage_kind(obj) or obj.get("kind") == NAMESPACE.kind for obj in changed):
        return ()
    return tuple(
        {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        for kind in (*STORAGE_KINDS, *_LOOKED_AT)
        for obj in api.list(kind).items
    )


def standing(world: World) -> tuple[JsonObject, ...]:
    """Return the claims, volumes and classes of a world, and what drivers say."""
    return tuple(obj for kind in (*STORAGE_KINDS, *_LOOKED_AT) for obj in world.all(kind))


class StorageKeeper:
    """The controllers of claims and volumes in one world; an object is decided again once something of it differs.

    A cluster has thousands of claims that nothing becomes of, and a rollout has hundreds of rounds.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._quiet: dict[tuple[Kind, Key], tuple[object, ...]] = {}

    @property
    def deciders(self) -> list[tuple[Kind, Decider]]:
        """What ``unroll`` asks, by kind."""
        return [(kind, self._once(kind, decide)) for kind, decide in STORAGE_DECIDERS.items()]

    def settle(self) -> None:
        """Let the controllers act until they have nothing to do."""
        run_deciders(self.world, self.deciders, lambda _world: False)

    def schedule(
        self, pod: JsonObject, nodes: Iterable[JsonObject], placed: Sequence[JsonObject], scene: Scene
    ) -> Placed:
        """Return where the scheduler would have a pod run, with what its claims get for that.

        Args:
            pod: one without a node.
            nodes: all of them.
            placed: the pods that have a node.
            scene: what else the scheduler looks at.
        """
        nodes = [*nodes]
        while True:
            decision = scene.profiles.decide(pod, with_storage(scene, pod, self.world).snapshot(pod, nodes, placed))
            steps = scheduled(self.world, pod, decision) if decision.node else []
            for step in steps:
                self.world.take(POD, pod, step)
            bound = any(isinstance(step, Patch) and step.kind == POD for step in steps)
            if bound or not steps:
                return Placed(decision, bound)
            self.settle()

    def _once(self, kind: Kind, decide: Decider) -> Decider:
        def steps(world: World, obj: JsonObject) -> Iterable[Step]:
            seen, key = _looked_at(world, kind, obj), (kind, objects.key(obj))
            if self._quiet.get(key) == seen:
                return ()
            found = [*_garbage(world, kind, obj), *decide(world, obj)]
            if all(isinstance(step, RecordEvent) for step in found):
                self._quiet[key] = seen
            return found

        return steps


def _looked_at(world: World, kind: Kind, obj: JsonObject) -> tuple[object, ...]:
    """Return what the decision about a claim or volume depends on."""
    if kind == POD:
        return tuple(objects.uid(world.get(PERSISTENT_VOLUME_CLAIM, Key(objects.namespace(obj), name)) or _NONE)
                     for name in PodInfo.of(obj).claims)  # fmt: skip
    gone = len(world.removed) if kind == PERSISTENT_VOLUME_CLAIM and objects.owner_references(obj) else 0
    if kind == PERSISTENT_VOLUME_CLAIM and claims.is_complete(obj) and not objects.is_deleting(obj):
        return obj, world.get(PERSISTENT_VOLUME, Key("", str(objects.spec(obj).get("volumeName") or ""))), gone
    held = claims.holder(obj) if kind == PERSISTENT_VOLUME else None
    if held is not None and claims.source_of(obj):
        return obj, world.get(PERSISTENT_VOLUME_CLAIM, held.key)
    return obj, gone, *(world.writes[each] for each in (*STORAGE_KINDS, POD))


def _garbage(world: World, kind: Kind, obj: JsonObject) -> list[Step]:
    """Return the deletion of a claim whose owners have gone: a StatefulSet, or its pod."""
    owners = objects.owner_references(obj) if kind == PERSISTENT_VOLUME_CLAIM else []
    gone = bool(owners) and all(one.get("uid") in world.removed for one in owners)
    return [Delete(kind, obj)] if gone and not objects.is_deleting(obj) else []


def storage_world(
    known: Iterable[JsonObject], nodes: Iterable[JsonObject], pods: Iterable[JsonObject], now: datetime
) -> World:
    """Return a world of claims, volumes and classes, with the nodes and pods that they depend on."""
    placed = [{**node, "apiVersion": "v1", "kind": "Node"} for node in nodes]
    return World([*known, *placed, *({**pod, "apiVersion": "v1", "kind": "Pod"} for pod in pods)], now)


def take(world: World, operation: str, obj: JsonObject) -> bool:
    """Do an operation on a claim, volume, class or namespace, before controllers act; return whether it is on such.

    Args:
        world: takes it.
        operation: create, update or delete.
        obj: as it would stand (delete: as it stood).
    """
    gone, kind = operation == "delete" or objects.is_deleting(obj), storage_kind(obj)
    if obj.get("kind") == NAMESPACE.kind and gone:
        for claim in world.all(PERSISTENT_VOLUME_CLAIM):
            if objects.namespace(claim) == objects.name(obj):
                world.delete(PERSISTENT_VOLUME_CLAIM, claim)
        return True
    if kind is None:
        return False
    if not gone:
        _put(world, kind, obj)
    elif (found := world.get(kind, objects.key(obj))) is not None:
        world.delete(kind, found)
    return True


def _put(world: World, kind: Kind, obj: JsonObject) -> None:
    found = world.get(kind, objects.key(obj))
    uid = placeholder_uid(objects.namespace(obj), objects.name(obj)) if found is None else objects.uid(found)
    made = {"creationTimestamp": rfc3339(world.now), **obj["metadata"], "uid": uid}
    status = {} if kind == STORAGE_CLASS else {"status": objects.status(found or {}) or {"phase": "Pending"}}
    world.put(kind, {**obj, "metadata": made, **status})


def with_storage(scene: Scene, pod: JsonObject, world: World) -> Scene:
    """Return what the scheduler looks at for a pod: claims and volumes as they would stand by then."""
    if not PodInfo.of(pod).claims:
        return scene
    return scene._replace(storage=Storage.of(*(world.all(kind) for kind in (*STORAGE_KINDS, *_LOOKED_AT))))


def scheduled(world: World, pod: JsonObject, decision: Decision) -> list[Step]:
    """Return what the scheduler writes for a pod that it has a node for.

    A pod with claims that are not bound comes later: nothing at all says that they wait for somebody else.
    """
    wanted = reserved(decision.state, decision.node)
    if wanted:
        return [step for kind, obj in wanted for step in _reservation(world, kind, obj)]
    return [Patch(POD, pod, {"spec": {"nodeName": decision.node}})]


def _reservation(world: World, kind: Kind, obj: JsonObject) -> list[Step]:
    held = {"spec": {"claimRef": objects.spec(obj)["claimRef"]}} if kind == PERSISTENT_VOLUME else {}
    before = world.get(kind, objects.key(obj))
    if before is None or before == obj:
        return []
    return [Patch(kind, before, {"metadata": {"annotations": objects.annotations(obj)}, **held})]


def has_its_claims(world: World, pod: JsonObject) -> bool:
    """Return whether all claims of a pod are bound."""
    return all(claim is not None and claims.is_bound(claim) for claim in _claims_of(world, pod))


def _claims_of(world: World, pod: JsonObject) -> list[JsonObject | None]:
    return [world.get(PERSISTENT_VOLUME_CLAIM, Key(objects.namespace(pod), name)) for name in PodInfo.of(pod).claims]


def awaited(world: World, pod: JsonObject, decision: Decision) -> str:
    """Return why a pod that has a node to go to stays without it; "" for one that is not held by its claims."""
    waiting = [objects.name(one) for one in _claims_of(world, pod) if one is not None and not claims.is_bound(one)]
    if not decision.node or not waiting:
        return ""
    named = ", ".join(f"PersistentVolumeClaim {name}" for name in waiting)
    return f"it would run on node {decision.node} once it has a volume for {named}"
