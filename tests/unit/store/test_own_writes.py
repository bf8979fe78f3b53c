"""What a writer shows in the cache itself, before the watch brings it or after, over the memory store."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from minik8s_modules.store.cache import CachedObject, WatchCache
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.memory import MemoryStore
from tests.support.watching import Events, stored

PODS = "/registry/core/pods/"
KEY = PODS + "default/web"
WAIT_S = 60.0
AT_ONCE_S = 0.05


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(store: MemoryStore) -> Iterator[WatchCache]:
    store.create(PODS + "default/first", stored("first"))
    made = WatchCache(store)
    made.start()
    assert made.wait_ready(WAIT_S)
    yield made
    made.stop()


def made(key: str, value: bytes, revision: int) -> CachedObject:
    data, parsed = with_revision(value, revision)
    return CachedObject(key, data, revision, parsed["metadata"].get("labels") or {})


def test_a_write_that_is_next_is_shown_without_the_watch(store, cache):
    events = Events()
    cache.subscribe(PODS, cache.revision, events)
    with store.unwatched():
        first = store.create(KEY, stored("web"))
        assert cache.wrote(KEY, made(KEY, stored("web"), first), first, AT_ONCE_S)
        second = store.update(KEY, stored("web", {"a": "1"}), first)
        assert cache.wrote(KEY, made(KEY, stored("web", {"a": "1"}), second), second, AT_ONCE_S)
        assert cache.revision == second
        assert cache.get(KEY).labels == {"a": "1"}
        third = store.delete(KEY, second)
        assert cache.wrote(KEY, None, third, AT_ONCE_S)
        assert cache.get(KEY) is None
        seen = [(event.type, event.revision) for event in events.wait(3)]
    assert seen == [("ADDED", first), ("MODIFIED", second), ("DELETED", third)]
    last = store.create(KEY, stored("web"))
    assert cache.wait_for(last, WAIT_S)
    assert [event.revision for event in events.wait(4)] == [first, second, third, last]


def test_what_the_watch_brings_is_the_same(store, cache):
    value = stored("web", {"a": "1"})
    with store.unwatched():
        revision = store.create(KEY, value)
        cache.wrote(KEY, made(KEY, value, revision), revision, AT_ONCE_S)
        own = cache.get(KEY)
    other = WatchCache(store)
    other.start()
    assert other.wait_for(revision, WAIT_S)
    brought = other.get(KEY)
    assert own is not None
    assert brought is not None
    assert (own.data, own.labels, own.revision) == (brought.data, brought.labels, brought.revision)
    other.stop()


def test_a_write_waits_for_those_before_it(store, cache):
    with store.unwatched():
        first = store.create(PODS + "default/a", stored("a"))
        second = store.create(PODS + "default/b", stored("b"))
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(
                cache.wrote, PODS + "default/b", made(PODS + "default/b", stored("b"), second), second, WAIT_S
            )
            assert not cache.wait_for(second, AT_ONCE_S)
            assert cache.get(PODS + "default/b") is None
            assert cache.wrote(PODS + "default/a", made(PODS + "default/a", stored("a"), first), first, WAIT_S)
            assert later.result(WAIT_S)
        assert cache.revision == second


def test_a_write_after_somebody_elses_is_shown_when_the_watch_brings_that(store, cache):
    with store.unwatched():
        store.create("/elsewhere/claim", b"x")
        own = store.create(KEY, stored("web"))
        assert not cache.wrote(KEY, made(KEY, stored("web"), own), own, AT_ONCE_S)
        assert cache.get(KEY) is None
    assert cache.wait_for(own, WAIT_S)
    assert cache.get(KEY).revision == own


def test_a_write_that_the_watch_brought_first_changes_nothing(store, cache):
    events = Events()
    cache.subscribe(PODS, cache.revision, events)
    first = store.create(KEY, stored("web"))
    second = store.update(KEY, stored("web", {"a": "2"}), first)
    assert cache.wait_for(second, WAIT_S)
    assert cache.wrote(KEY, made(KEY, stored("web"), first), first, AT_ONCE_S)
    assert cache.get(KEY).revision == second
    assert [event.revision for event in events.wait(2)] == [first, second]


def test_writers_in_any_order_make_one_history(store, cache):
    """Sixteen writers that dawdle, and one whose writes the cache learns from the watch alone."""
    events, lock = Events(), threading.Lock()
    cache.subscribe(PODS, cache.revision, events)
    start = cache.revision

    def write(number: int) -> int:
        key = f"{PODS}default/{number:03}"
        with lock:
            revision: int = store.create(key, stored(str(number)))
        for _ in range(random.randrange(2_000)):
            pass
        if number % 16:
            assert cache.wrote(key, made(key, stored(str(number)), revision), revision, WAIT_S)
            assert cache.get(key).revision == revision
        return revision

    with ThreadPoolExecutor(16) as pool:
        revisions = sorted(pool.map(write, range(400)))
    assert cache.wait_for(revisions[-1], WAIT_S)
    assert [event.revision for event in events.wait(400)] == revisions == list(range(start + 1, start + 401))
    assert [item.revision for item in cache.list(PODS + "default/").items[:-1]] == [
        entry.revision for entry in store.range(PODS + "default/").entries[:-1]
    ]
