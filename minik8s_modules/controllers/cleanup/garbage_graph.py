"""Who depends on whom, by uid: what the garbage collector looks things up in. Kept by informers' handlers.

Nothing of it is stored: it is built again from the informers' first lists, so a killed process loses nothing.
``changed`` also says which objects are to be looked at because of a change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.cleanup.garbage import Item, blocks, is_orphaning, is_waiting

_LEFT_KEPT = 5_000


def _owner_uids(obj: JsonObject) -> set[str]:
    return {str(reference.get("uid", "")) for reference in objects.owner_references(obj)}


class Graph:
    """All objects by uid, and the uids of the dependents of each; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = defaultdict(set)
        self._left: OrderedDict[str, None] = OrderedDict()

    def has_left(self, uid: str) -> bool:
        """Return whether the object was seen to go."""
        with self._lock:
            return uid in self._left

    def get(self, uid: str) -> Item | None:
        """Return the object."""
        with self._lock:
            return self._items.get(uid)

    def all(self) -> list[Item]:
        """Return all objects."""
        with self._lock:
            return [*self._items.values()]

    def dependents(self, uid: str) -> list[Item]:
        """Return the objects that name ``uid`` as an owner."""
        with self._lock:
            return [self._items[each] for each in sorted(self._dependents.get(uid, ()))]

    def changed(self, kind: Kind, old: JsonObject | None, new: JsonObject | None) -> set[str]:
        """Take in a change; return the uids of the objects to look at because of it."""
        with self._lock:
            if old is not None and (new is None or objects.uid(old) != objects.uid(new)):
                found = self._gone(old)
                return found if new is None else found | self._put(kind, None, new)
            return self._put(kind, old, new) if new is not None else set()

    def _gone(self, old: JsonObject) -> set[str]:
        uid, owners = objects.uid(old), _owner_uids(old)
        self._items.pop(uid, None)
        if uid in self._dependents:
            self._left[uid] = None
            while len(self._left) > _LEFT_KEPT:
                self._left.popitem(last=False)
        for owner in owners:
            self._forget(owner, uid)
        return {*self._dependents.get(uid, ())} | self._waiting(owners)

    def _put(self, kind: Kind, old: JsonObject | None, new: JsonObject) -> set[str]:
        uid = objects.uid(new)
        self._items[uid] = Item(kind, new)
        found: set[str] = set()
        before = objects.owner_references(old) if old is not None else []
        if before != objects.owner_references(new):
            found |= self._references_changed(uid, old, new)
        started = is_waiting(new) and not (old is not None and is_waiting(old))
        if started or (is_orphaning(new) and not (old is not None and is_orphaning(old))):
            found.add(uid)
        if started:
            found |= self._dependents.get(uid, set())
        return found

    def _references_changed(self, uid: str, old: JsonObject | None, new: JsonObject) -> set[str]:
        before, after = _owner_uids(old) if old is not None else set(), _owner_uids(new)
        for owner in before - after:
            self._forget(owner, uid)
        for owner in after:
            self._dependents[owner].add(uid)
        unblocked = {owner for owner in before if not blocks(new, owner)}
        return ({uid} if after else set()) | self._waiting(unblocked)

    def _waiting(self, uids: set[str]) -> set[str]:
        return {uid for uid in uids if uid in self._items and is_waiting(self._items[uid].obj)}

    def _forget(self, owner: str, dependent: str) -> None:
        left = self._dependents.get(owner)
        if left is not None:
            left.discard(dependent)
            if not left:
                del self._dependents[owner]
