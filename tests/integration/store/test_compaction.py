"""Periodic compaction by several servers, on both stores."""

from __future__ import annotations

import threading

import pytest

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.store.compaction import TURN_KEY, Compactor
from minik8s_modules.store.errors import Compacted, StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.memory import MemoryStore
from tests.support.watching import Recorder


@pytest.fixture(params=["etcd", "memory"])
def store(request):
    """A store of this test alone: what is compacted is everybody's."""
    real = request.param == "etcd"
    made = EtcdStore([request.getfixturevalue("own_etcd").endpoint]) if real else MemoryStore()
    yield made
    made.close()


def test_history_is_kept_for_one_interval_then_forgotten(store, prefix):
    compactor = Compactor(store)
    before = store.revision()
    old = store.create(prefix + "a", b"1")
    assert compactor.turn() == 0
    young = store.update(prefix + "a", b"2", old)
    assert old < compactor.turn() < young
    recorder = Recorder(store.watch("", before))
    recorder.until_error()
    assert isinstance(recorder.error, Compacted)
    assert [entry.revision for entry in store.range(prefix, revision=young).entries] == [young]
    later = store.update(prefix + "a", b"3", young)
    assert young < compactor.turn() < later


def test_of_several_servers_one_compacts_per_interval(store):
    servers = [Compactor(store) for _ in range(3)]
    for _ in range(4):
        for server in servers:
            server.turn()
    done = [[server.turn() for server in servers] for _ in range(5)]
    assert all(sum(1 for revision in turn if revision) == 1 for turn in done)


def test_a_server_started_later_does_not_shorten_what_is_kept(store):
    first = Compactor(store)
    first.turn()
    first.turn()
    kept_from = store.revision()
    late = Compactor(store)
    assert late.turn() == 0
    list(store.range("", revision=kept_from).entries)


def test_a_key_that_vanished_is_made_again(store):
    compactor = Compactor(store)
    compactor.turn()
    store.delete(TURN_KEY, store.get(TURN_KEY).revision)
    assert [compactor.turn(), compactor.turn()] == [0, 0]
    assert compactor.turn() > 0


def test_an_unavailable_store_is_tried_again_at_the_next_interval(caplog):
    store, stop, clock = MemoryStore(), threading.Event(), FakeClock()

    class Waiting(FakeClock):
        def wait(self, event, timeout_s):
            clock.advance(timeout_s)
            store.set_available(True)
            if clock.monotonic() >= 900:
                event.set()
            return event.is_set()

    store.set_available(False)
    with pytest.raises(StoreUnavailable):
        store.get("/a")
    Compactor(store, 300, Waiting()).run(stop)
    assert "not compacted this time" in caplog.text
    assert store.get(TURN_KEY)
