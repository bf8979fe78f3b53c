"""A backend on a memory store, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from minik8s_modules.api.kinds import NAMESPACE
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.serving.startup import RequiredObject, ensure
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def backend(clock: FakeClock) -> Iterator[Backend]:
    """A backend with the namespaces every cluster has."""
    store = MemoryStore()
    cache = WatchCache(store)
    store.create("/x", b"")  # a revision above 0, so that the cache has something to load
    cache.start()
    assert cache.wait_ready(10)
    made = Backend(store, cache, clock)
    for name in ("default", "kube-system", "kube-node-lease", "kube-public"):
        ensure(made, RequiredObject(NAMESPACE, "", name, {}))
    yield made
    cache.stop()
    store.close()


@pytest.fixture
def options() -> Options:
    return Options(dry_run=False, validation="Strict", warnings=[])
