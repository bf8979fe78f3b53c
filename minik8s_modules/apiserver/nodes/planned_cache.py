"""The watch cache as it would be after the first steps of a plan: each object is planned with those before it."""

from __future__ import annotations

from bisect import insort

from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.cached import CachedObject, CacheList


class PlannedCache(WatchCache):
    """Reads of ``base`` with what is planned on top; nothing is stored, and nobody can subscribe."""

    def __init__(self, base: WatchCache) -> None:  # the base class would follow the store
        self._base = base
        self._planned: dict[str, CachedObject | None] = {}

    def plan(self, key: str, item: CachedObject | None) -> None:
        """Show ``item`` at ``key`` from now on; None: nothing."""
        self._planned[key] = item

    def stored(self, key: str) -> CachedObject | None:
        """Return the object that stands at ``key`` now, or None."""
        return self._base.get(key)

    @property
    def revision(self) -> int:
        """The base's revision."""
        return self._base.revision

    def get(self, key: str) -> CachedObject | None:
        """Return the object at ``key``, or None."""
        return self._planned[key] if key in self._planned else self._base.get(key)

    def list(self, prefix: str) -> CacheList:
        """Return the objects below ``prefix``, ordered by key."""
        found, revision = self._base.list(prefix)
        items = [item for item in found if item.key not in self._planned]
        for key, item in tuple(self._planned.items()):  # another thread may plan meanwhile (planned_pods.py)
            if item is not None and key.startswith(prefix):
                insort(items, item, key=lambda one: one.key)
        return CacheList(items, revision)

    def changes(self, prefix: str) -> int:
        """Return the base's number, made another by each step of the plan."""
        return self._base.changes(prefix) + len(self._planned)
