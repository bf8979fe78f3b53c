"""A thread that puts something right goes on when the cache cuts its subscription off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.rounds import Rounds
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.cached import CacheEvent
from minik8s_modules.store.memory import MemoryStore
from tests.support.waiting import until
from tests.support.watching import stored

PODS, NODES = "/registry/core/pods/", "/registry/core/nodes/"


class Looking(Rounds):
    """Notes which keys it was told of and how often it looked; a key that ends in ``bad`` is one mistake too many."""

    def __init__(self, cache: WatchCache) -> None:
        backend = cast("Backend", SimpleNamespace(cache=cache))
        super().__init__(backend, "looking", "what is looked at", (PODS, NODES), Backoff(0.01, 0.01))
        self.told: list[str] = []
        self.looked = 0

    def _round(self) -> float:
        self.looked += 1
        return 60.0

    def _on_event(self, event: CacheEvent) -> None:
        self.told.append(event.key)
        if event.key.endswith("bad"):
            raise RuntimeError("a defect")
        super()._on_event(event)


@pytest.fixture
def world() -> Iterator[tuple[MemoryStore, Looking]]:
    store = MemoryStore()
    cache = WatchCache(store)
    cache.start()
    looking = Looking(cache)
    looking.start()
    until(lambda: looking.looked)
    yield store, looking
    looking.stop()
    cache.stop()


def _put(store: MemoryStore, *keys: str) -> None:
    for key in keys:
        store.create(key, stored(key.rpartition("/")[2]))


def test_who_was_cut_off_looks_again_and_is_told_of_what_comes_then(world: Any):
    store, looking = world
    _put(store, f"{PODS}default/bad")
    until(lambda: looking.looked >= 2)  # what it missed meanwhile, this round has seen
    _put(store, f"{PODS}default/good")
    until(lambda: f"{PODS}default/good" in looking.told)


def test_nothing_is_told_twice_after_one_of_two_was_cut_off(world: Any):
    store, looking = world
    _put(store, f"{PODS}default/bad")
    until(lambda: looking.looked >= 2)
    _put(store, f"{NODES}one", f"{PODS}default/good")
    until(lambda: {f"{NODES}one", f"{PODS}default/good"} <= {*looking.told})
    assert len(looking.told) == len({*looking.told})


def test_it_ends_while_it_waits(world: Any):
    _, looking = world
    looking.stop()
    assert "looking" not in {thread.name for thread in threading.enumerate()}
