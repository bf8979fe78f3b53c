"""What this process wrote to ResourceQuotas last; admission (quotas.py) charges them under its locks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from minik8s_modules.base import errands
from minik8s_modules.store.cached import CachedObject

_LOCKS = 64
WAIT_S = 30.0


class QuotaLedger:
    """What this process wrote to quotas last, and a lock a namespace: its own writes never meet in the store."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._written: OrderedDict[str, CachedObject] = OrderedDict()

    @contextmanager
    def held(self, space: str) -> Iterator[None]:
        """Be the only one of this process that charges quotas of the namespace."""
        with errands.held(self._locks[hash(space) % _LOCKS], WAIT_S):
            yield

    def newer(self, item: CachedObject) -> CachedObject:
        """Return the quota as this process wrote it, where the cache does not show that yet."""
        known = self._written.get(item.key)
        return known if known is not None and known.revision > item.revision else item

    def wrote(self, item: CachedObject) -> None:
        """Remember a quota as it stands now."""
        self._written[item.key] = item
        self._written.move_to_end(item.key)
        if len(self._written) > 16 * _LOCKS:
            self._written.popitem(last=False)
