"""Pages of what was there at a revision, from the cache's memory of what has changed since; the store knows as well."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore
from tests.support.watching import stored

PODS = "/registry/core/pods/"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(store: MemoryStore) -> Iterator[WatchCache]:
    store.create("/x", b"")
    made = WatchCache(store, ring_events=40)
    made.start()
    assert made.wait_ready(60)
    yield made
    made.stop()


def change(store: MemoryStore, chance: random.Random) -> int:
    """Create, change or delete one of a few objects."""
    key = f"{PODS}{chance.choice(['a', 'b'])}/{chance.randrange(12):02}"
    known = store.get(key)
    if known is None:
        return store.create(key, stored(key))
    if chance.random() < 0.5:
        return store.delete(key, known.revision)
    return store.update(key, stored(key), known.revision)


@pytest.mark.parametrize("seed", range(20))
def test_the_cache_tells_the_same_page_as_the_store(store: MemoryStore, cache: WatchCache, seed: int):
    chance = random.Random(seed)
    revisions = [change(store, chance) for _ in range(30)]
    assert cache.wait_for(revisions[-1], 60)
    for revision in revisions:
        for prefix in (PODS, f"{PODS}a/", f"{PODS}c/"):
            start = chance.choice(["", f"{PODS}a/05\0", f"{PODS}b/00"])
            limit = chance.randrange(1, 9)
            known = cache.page(prefix, revision, start, limit)
            page = store.range(prefix, limit=limit, start=start, revision=revision)
            assert known is not None
            assert [(item.key, item.revision) for item in known.items] == [(e.key, e.revision) for e in page.entries]
            assert known.remaining == page.remaining


def test_of_what_the_cache_has_forgotten_or_not_seen_it_tells_nothing(store: MemoryStore, cache: WatchCache):
    chance = random.Random(1)
    first = change(store, chance)
    last = [change(store, chance) for _ in range(60)][-1]
    assert cache.wait_for(last, 60)
    assert cache.page(PODS, first, "", 5) is None
    assert cache.page(PODS, last + 1, "", 5) is None
    assert cache.page("/registry/core/secrets/", last, "", 5) == ([], 0)
