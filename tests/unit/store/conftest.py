"""A store in memory, and a watch cache over it that remembers five events of each resource."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(store: MemoryStore) -> Iterator[WatchCache]:
    made = WatchCache(store, ring_events=5)
    made.start()
    assert made.wait_ready(60)
    yield made
    made.stop()
