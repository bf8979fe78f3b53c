"""Owner garbage collection: what becomes of an object whose owners are gone, or going. Pure; ``collector.py`` acts.

One object at a time: its owners' states and its dependents in, steps out. An object goes when none of its owners is
left; while one is, references to others that are gone are taken out. An owner deleted in the foreground (finalizer
``foregroundDeletion``) waits until no dependent with ``blockOwnerDeletion`` is left; one deleted as an orphan
(``orphan``) waits until no dependent names it any more. Source: kubernetes ``pkg/controller/garbagecollector``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.lifecycle.propagation import FOREGROUND, ORPHAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.steps import Delete, Patch, Step


class OwnerState(Enum):
    """What is known of an owner that a reference names.

    ``WAITING`` is being deleted in the foreground; ``UNKNOWN`` cannot be looked for (a kind that is not served, or a
    namespaced owner of a cluster-scoped object) and is taken to be there.
    """

    PRESENT = auto()
    ABSENT = auto()
    WAITING = auto()
    UNKNOWN = auto()


class Item(NamedTuple):
    """An object, of which only metadata is looked at."""

    kind: Kind
    obj: JsonObject

    @property
    def uid(self) -> str:
        """Its uid."""
        return objects.uid(self.obj)


def is_waiting(obj: JsonObject) -> bool:
    """Return whether the object is being deleted and waits for its dependents to go."""
    return objects.is_deleting(obj) and FOREGROUND in objects.finalizers(obj)


def is_orphaning(obj: JsonObject) -> bool:
    """Return whether the object is being deleted and waits for its dependents to be let go."""
    return objects.is_deleting(obj) and ORPHAN in objects.finalizers(obj)


def blocks(dependent: JsonObject, owner_uid: str) -> bool:
    """Return whether the dependent holds up the foreground deletion of that owner."""
    return any(r.get("uid") == owner_uid and r.get("blockOwnerDeletion") for r in objects.owner_references(dependent))


def decide_garbage(item: Item, owners: Mapping[str, OwnerState], dependents: Sequence[Item]) -> list[Step]:
    """Return what to do with ``item`` now.

    Args:
        item: as the copies show it; every step is guarded by its uid and resourceVersion.
        owners: by the uids of its references.
        dependents: the objects with a reference to it.
    """
    if is_orphaning(item.obj):
        return _let_go(item, dependents)
    if is_waiting(item.obj):
        return [] if any(blocks(each.obj, item.uid) for each in dependents) else [_without_finalizer(item, FOREGROUND)]
    if objects.is_deleting(item.obj) or not objects.owner_references(item.obj):
        return []
    return _owned(item, owners, dependents)


def _let_go(item: Item, dependents: Sequence[Item]) -> list[Step]:
    steps: list[Step] = [_with_owners(each, _others(each.obj, {item.uid})) for each in dependents]
    return [*steps, _without_finalizer(item, ORPHAN)]


def _owned(item: Item, owners: Mapping[str, OwnerState], dependents: Sequence[Item]) -> list[Step]:
    lost = {uid for uid, state in owners.items() if state in {OwnerState.ABSENT, OwnerState.WAITING}}
    if lost != {*owners}:
        return [_with_owners(item, _others(item.obj, lost))] if lost else []
    if OwnerState.WAITING in owners.values() and dependents:
        # dependents that wait for this very object would wait for ever: a circle
        circle = [_unblocked(item)] if any(is_waiting(each.obj) for each in dependents) else []
        return [*circle, Delete(item.kind, item.obj, propagation="Foreground")]
    return [Delete(item.kind, item.obj, propagation=_policy(item.obj))]


def _policy(obj: JsonObject) -> str:
    if ORPHAN in objects.finalizers(obj):
        return "Orphan"
    return "Foreground" if FOREGROUND in objects.finalizers(obj) else "Background"


def _others(obj: JsonObject, uids: set[str]) -> list[JsonObject]:
    return [each for each in objects.owner_references(obj) if each.get("uid") not in uids]


def _with_owners(item: Item, references: list[JsonObject]) -> Patch:
    return Patch(item.kind, item.obj, {"metadata": {"ownerReferences": references or None}})


def _unblocked(item: Item) -> Patch:
    return _with_owners(item, [{**each, "blockOwnerDeletion": False} for each in objects.owner_references(item.obj)])


def _without_finalizer(item: Item, finalizer: str) -> Patch:
    rest = [each for each in objects.finalizers(item.obj) if each != finalizer]
    return Patch(item.kind, item.obj, {"metadata": {"finalizers": rest or None}})
