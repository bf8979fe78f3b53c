"""A lone API server's reader of etcd's watch rests: what somebody else writes waits for one rest, and no longer."""

from __future__ import annotations

import pytest

from minik8s_modules.store import resting
from minik8s_modules.store.cache import CachedObject, CacheEvent, WatchCache
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.resting import Rest
from tests.support.etcd import EtcdServer
from tests.support.waiting import until
from tests.support.watching import Events, stored

PODS = "/registry/core/pods/"


def test_what_somebody_else_writes_waits_for_one_rest_at_most(own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resting, "ALONE_S", 0.0)
    monkeypatch.setattr(resting, "CLAIM_S", 0.0)
    begun, ended, told = list[int](), list[int](), dict[int, int]()
    take = Rest.take

    def counted(self: Rest) -> None:
        begun.append(cache.revision)
        take(self)
        ended.append(cache.revision)

    monkeypatch.setattr(Rest, "take", counted)
    store, other, events = EtcdStore([own_etcd.endpoint]), EtcdStore([own_etcd.endpoint]), Events()
    store.create("/x", b"")
    cache = WatchCache(store)
    cache.start()

    def tell(event: CacheEvent) -> None:  # in the reader's thread, which may be at its next rest when others look
        told[event.revision] = len(begun)
        events(event)

    def look(number: int) -> None:
        until(lambda: len(ended) == len(begun))
        before, key = len(begun), f"{PODS}default/own-{number}"
        own = store.create(key, stored("own"))
        data, _ = with_revision(stored("own"), own)
        assert cache.wrote(key, CachedObject(key, data, own, {}), own, 60.0)
        until(lambda: len(begun) > before)
        rests, over = len(begun), len(ended)
        foreign = other.create(f"{PODS}default/foreign-{number}", stored("foreign"))
        was_on = over < rests and len(ended) == over
        events.until(lambda: foreign in {event.revision for event in events.seen})
        assert told[foreign] - rests <= (0 if was_on else 1)  # else the next may begin as the write comes

    try:
        assert cache.wait_ready(60.0)
        cache.subscribe(PODS, cache.revision, tell)
        for number in range(4):
            look(number)
        assert [event.revision for event in events.seen] == sorted(event.revision for event in events.seen)
    finally:
        cache.stop()
        store.close()
        other.close()
