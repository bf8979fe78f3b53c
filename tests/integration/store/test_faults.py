"""etcd killed, cut off, frozen, compacted and emptied under a store, its watches and the cache."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.errors import Compacted, KeyExists, StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.wire.connection import Tls
from tests.support.etcd import EtcdServer, free_port
from tests.support.pki import Authority
from tests.support.servers.proxy import Proxy
from tests.support.watching import Events, Recorder, stored

PODS = "/registry/core/pods/"


class Writer:
    """Creates keys in a thread, as fast as it can, through every failure."""

    def __init__(self, store: EtcdStore) -> None:
        self.written = 0
        self.unavailable = 0
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def until(self, count: int) -> None:
        """Wait until ``count`` keys are written."""
        deadline = time.monotonic() + 60
        while self.written < count:
            assert time.monotonic() < deadline, f"only {self.written} of {count} writes were done"
            time.sleep(0.01)

    def stop(self) -> None:
        """End the thread after its current write."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._store.create(f"{PODS}default/{self.written:06}", stored("web"))
            except StoreUnavailable:
                self.unavailable += 1
                time.sleep(0.02)
                continue
            except KeyExists:
                pass  # the write whose answer was lost
            self.written += 1
            time.sleep(0.001)


@pytest.fixture
def store(own_etcd: EtcdServer) -> Iterator[EtcdStore]:
    made = EtcdStore([own_etcd.endpoint], timeout_s=2)
    yield made
    made.close()


@pytest.fixture
def proxy(own_etcd: EtcdServer) -> Iterator[Proxy]:
    made = Proxy(own_etcd.port)
    yield made
    made.cut()


def test_killing_etcd_amid_writes_loses_and_doubles_nothing(own_etcd, store):
    recorder = Recorder(store.watch(PODS, store.revision()))
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(60)
    events = Events()
    cache.subscribe(PODS, cache.revision, events)
    writer = Writer(store)
    for count in (100, 200, 300):
        writer.until(count)
        own_etcd.kill9()
        time.sleep(0.2)
        own_etcd.start()
    writer.until(400)
    writer.stop()
    assert writer.unavailable
    truth = sorted((entry.revision, entry.key) for entry in store.range(PODS).entries)
    assert len(truth) == writer.written
    assert [(change.revision, change.key) for change in recorder.wait(len(truth))] == truth
    assert [(event.revision, event.key) for event in events.wait(len(truth))] == truth
    assert [(item.revision, item.key) for item in cache.list(PODS).items] == truth
    recorder.stop()
    cache.stop()


def test_cutting_the_connection_amid_writes_loses_and_doubles_nothing(own_etcd, store, proxy):
    remote = EtcdStore([proxy.endpoint], timeout_s=2)
    recorder = Recorder(remote.watch(PODS, store.revision()))
    writer = Writer(store)
    for count in (100, 200, 300):
        writer.until(count)
        proxy.cut()
        time.sleep(0.1)
        proxy.heal()
    writer.until(400)
    writer.stop()
    truth = sorted((entry.revision, entry.key) for entry in store.range(PODS).entries)
    assert [(change.revision, change.key) for change in recorder.wait(len(truth))] == truth
    recorder.stop()
    remote.close()


def test_a_frozen_connection_ends_in_unavailable_within_the_deadline(proxy):
    store = EtcdStore([proxy.endpoint], timeout_s=0.5)
    revision = store.create(PODS + "a", b"{}")
    proxy.freeze()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.update(PODS + "a", b"{}", revision)
    assert time.monotonic() - started < 10  # a busy machine adds seconds, a call without a deadline never ends
    proxy.thaw()
    assert store.get(PODS + "a")
    store.close()


def test_an_unreachable_etcd_is_told_within_seconds():
    store = EtcdStore([f"http://127.0.0.1:{free_port()}"])
    started = time.monotonic()
    for call in (lambda: store.get("/a"), lambda: store.create("/a", b""), store.revision):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            call()
    assert time.monotonic() - started < 15
    store.close()


def test_reads_and_writes_go_to_the_next_endpoint_when_one_is_gone(own_etcd):
    dead = f"http://127.0.0.1:{free_port()}"
    for call in (lambda store: store.create(PODS + "a", b"{}"), lambda store: store.get(PODS + "a")):
        store = EtcdStore([dead, own_etcd.endpoint], timeout_s=2)
        assert call(store)
        store.close()


def test_a_watch_moves_to_the_next_endpoint_when_its_own_goes(store, own_etcd, proxy):
    both = EtcdStore([proxy.endpoint, own_etcd.endpoint], timeout_s=2)
    recorder = Recorder(both.watch(PODS, store.revision()))
    first = store.create(PODS + "a", b"{}")
    recorder.wait(1)
    proxy.cut()
    second = store.create(PODS + "b", b"{}")
    assert [change.revision for change in recorder.wait(2)] == [first, second]
    recorder.stop()
    both.close()


def test_a_watch_whose_history_is_gone_when_it_returns_ends_in_compacted(store, proxy):
    remote = EtcdStore([proxy.endpoint], timeout_s=2)
    recorder = Recorder(remote.watch(PODS, store.revision()))
    first = store.create(PODS + "a", b"{}")
    recorder.wait(1)
    proxy.cut()
    for _ in range(3):
        first = store.update(PODS + "a", b"{}", first)
    store.compact(first)
    proxy.heal()
    recorder.until_error()
    assert isinstance(recorder.error, Compacted)
    remote.close()


def test_a_cache_whose_history_is_gone_emits_the_difference(store, proxy):
    remote = EtcdStore([proxy.endpoint], timeout_s=2)
    revisions = {name: store.create(PODS + "default/" + name, stored(name)) for name in ("a", "b", "c")}
    cache = WatchCache(remote)
    cache.start()
    assert cache.wait_ready(60)
    events = Events()
    cache.subscribe(PODS, cache.revision, events)
    proxy.cut()
    modified = store.update(PODS + "default/a", stored("a", {"n": "2"}), revisions["a"])
    deleted = store.delete(PODS + "default/b", revisions["b"])
    added = store.create(PODS + "default/d", stored("d"))
    store.compact(added)
    proxy.heal()
    seen = [(event.type, event.key[-1], event.revision) for event in events.wait(3)]
    assert seen == [("MODIFIED", "a", modified), ("ADDED", "d", added), ("DELETED", "b", added)]
    assert deleted < added
    cache.stop()
    remote.close()


def test_an_emptied_etcd_cuts_subscribers_off_and_is_loaded_anew(store, own_etcd):
    for number in range(5):
        store.create(f"{PODS}default/{number}", stored("web"))
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(60)
    ended = threading.Event()
    cache.subscribe(PODS, cache.revision, Events(), on_end=ended.set)
    own_etcd.kill9()
    shutil.rmtree(own_etcd.data_dir)
    own_etcd.start()
    assert ended.wait(60)
    assert cache.list(PODS).items == []
    revision = store.create(PODS + "default/new", stored("new"))
    assert cache.wait_for(revision, 60)
    assert len(cache.list(PODS).items) == 1
    cache.stop()


def test_client_certificates_are_used_and_asked_for(tls_etcd, tmp_path: Path):
    store = EtcdStore([tls_etcd.server.endpoint], tls_etcd.tls)
    assert store.create(PODS + "a", b"{}") == store.revision()
    store.close()
    stranger = Authority(tmp_path / "other", "stranger").issue("client", "apiserver")
    store = EtcdStore([tls_etcd.server.endpoint], Tls(tls_etcd.tls.ca, *stranger), timeout_s=2)
    with pytest.raises(StoreUnavailable):
        store.get(PODS + "a")
    store.close()


def test_unusable_endpoints_and_certificates_are_named():
    nowhere = Path("/nonexistent.pem")
    with pytest.raises(ConfigurationError, match="no etcd endpoint"):
        EtcdStore([])
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:2379"):
        EtcdStore(["127.0.0.1:2379"])
    with pytest.raises(ConfigurationError, match="https://HOST:PORT"):
        EtcdStore(["http://127.0.0.1:2379"], Tls(nowhere, nowhere, nowhere))
    store = EtcdStore(["https://127.0.0.1:2379"], Tls(nowhere, nowhere, nowhere))
    with pytest.raises(ConfigurationError, match=r"/nonexistent\.pem"):
        store.get("/a")
