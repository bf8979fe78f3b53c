"""What would become of claims and volumes: the deciders of their controller, unrolled over what there is and would be.

Nothing on a node follows from binding alone, so that it is told in words: one message for each claim or volume that
would be another one's than it is, or that would wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import KINDS, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.simulation.deciders import STORAGE_DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World, placeholder_uid, unroll
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of

STORAGE_KINDS = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)


class Lister(Protocol):
    """Lists objects of a kind."""

    def list(self, kind: Kind) -> Any:
        """Return a page of them."""


def storage_kind(obj: JsonObject) -> Kind | None:
    """Return the kind of a claim, volume or class; None for all else."""
    kind = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return kind if kind in STORAGE_KINDS else None


def storage(changed: Iterable[JsonObject], api: Lister) -> tuple[JsonObject, ...]:
    """Return all claims, volumes and classes, if one of ``changed`` is such; raises as the API does."""
    if not any(storage_kind(obj) is not None for obj in changed):
        return ()
    return tuple(
        {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        for kind in STORAGE_KINDS
        for obj in api.list(kind).items
    )


def storage_notes(
    known: Iterable[JsonObject], changes: Iterable[tuple[str, JsonObject]], others: Iterable[JsonObject], now: datetime
) -> list[Note]:
    """Return what would become of claims and volumes.

    Args:
        known: claims, volumes and classes there are.
        changes: operation (create, update, delete) and object, of these kinds.
        others: nodes and pods, which bindings depend on.
        now: the time of what would be made.
    """
    world = World([*known, *others], now)
    before = {key: str(obj) for key, obj in _standing(world).items()}
    asked = []
    for operation, obj in changes:
        kind = storage_kind(obj)
        if kind is None:
            continue
        asked.append(f"{kind.kind} {objects.key(obj)}")
        _take(world, kind, operation, obj)
    if not asked:
        return []
    unroll(world, STORAGE_DECIDERS.items(), lambda _world: False)
    after = _standing(world)
    return [_note(world, obj) for key, obj in after.items() if before.get(key) != str(obj)]


def _standing(world: World) -> Mapping[str, JsonObject]:
    kinds = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME)
    return {f"{kind.kind} {objects.key(obj)}": obj for kind in kinds for obj in world.all(kind)}


def _take(world: World, kind: Kind, operation: str, obj: JsonObject) -> None:
    found = world.get(kind, objects.key(obj))
    if operation == "delete":
        if found is not None:
            world.remove(kind, found)
        return
    uid = objects.uid(found or obj) or placeholder_uid(objects.namespace(obj), objects.name(obj))
    status = objects.status(found or {}) or {"phase": "Pending"}
    world.put(kind, {**obj, "metadata": {**obj["metadata"], "uid": uid}, "status": status})


def _note(world: World, obj: JsonObject) -> Note:
    phase = str(objects.status(obj).get("phase") or "Pending")
    if obj.get("kind") == PERSISTENT_VOLUME_CLAIM.kind:
        return _of_claim(world, obj, phase)
    held = claims.holder(obj)
    whose = f", of PersistentVolumeClaim {held.key}" if held is not None else ""
    text = f"PersistentVolume {objects.name(obj)} would be {phase}{whose}"
    about = (of(PERSISTENT_VOLUME, name=objects.name(obj)),)
    return Note(text, (*about, *([of(PERSISTENT_VOLUME_CLAIM, *held.key)] if held is not None else [])))


def _of_claim(world: World, claim: JsonObject, phase: str) -> Note:
    key, about = objects.key(claim), (of(PERSISTENT_VOLUME_CLAIM, *objects.key(claim)),)
    name = str(objects.spec(claim).get("volumeName") or "")
    if name and phase == "Bound":
        return Note(f"PersistentVolumeClaim {key} would be bound to PersistentVolume {name}", about)
    told = [
        each.message for each in world.told if objects.key(each.obj) == key and each.obj.get("kind") == claim["kind"]
    ]
    return Note(f"PersistentVolumeClaim {key} would be {phase}{': ' if told else ''}{''.join(told[-1:])}", about)
