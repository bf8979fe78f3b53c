"""Errands that write to a real etcd over one connection: with TLS, killed, cut off, and with new certificates."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from minik8s_modules.store.errors import KeyExists, StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.wire.connection import LOOK_S, Tls
from tests.integration.store.conftest import TlsEtcd
from tests.support.etcd import EtcdServer
from tests.support.looped import Looped
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until

MANY = 200


@pytest.fixture
def loop() -> Iterator[Looped]:
    made = Looped()
    yield made
    made.close()


def _have_ended(loop: Looped, names: list[str]) -> bool:
    return set(names) <= set(loop.ended)


def write(store: EtcdStore, loop: Looped, prefix: str, count: int = MANY) -> list[object]:
    """Return what becomes of errands that create a key each, all at once."""
    names = [f"{prefix}{number:04}" for number in range(count)]
    loop.ended.clear()
    for name in names:
        loop.begin(name, partial(store.create, name, name.encode() * 10))
    loop.until(lambda: set(names) <= set(loop.ended))
    return [loop.results[name] for name in names]


def shared(store: EtcdStore, loop: Looped, prefix: str) -> object:
    """Return the connection that errands share, once there is one."""
    assert all(isinstance(each, int) for each in write(store, loop, prefix, 1))
    return until(lambda: store._connections._shared)


def test_many_write_at_once_over_one_connection(etcd: EtcdServer, loop: Looped, prefix: str):
    store = EtcdStore([etcd.endpoint], timeout_s=60)
    connection = shared(store, loop, f"{prefix}first")
    before = len(store._connections._open)
    revisions = write(store, loop, prefix)
    assert all(isinstance(each, int) for each in revisions)
    assert len(set(revisions)) == MANY
    assert store._connections._shared is connection
    assert len(store._connections._open) == before
    found = {each.key: each.revision for each in store.range(prefix).entries}
    assert [found[f"{prefix}{number:04}"] for number in range(MANY)] == revisions
    again = write(store, loop, prefix)
    assert all(isinstance(each, KeyExists) for each in again)
    loop.begin("large", lambda: store.create(f"{prefix}large", b"x" * 200_000))
    loop.until(lambda: "large" in loop.results)
    loop.begin("read", lambda: store.get(f"{prefix}large"))
    loop.until(lambda: "read" in loop.results)
    assert loop.results["read"].value == b"x" * 200_000
    store.close()


def test_it_is_a_connection_with_tls_and_certificates_are_renewed(tls_etcd: TlsEtcd, loop: Looped, tmp_path: Path):
    own = Tls(*(tmp_path / each.name for each in tls_etcd.tls))
    for source, path in zip(tls_etcd.tls, own, strict=True):
        shutil.copy(source, path)
    store = EtcdStore([tls_etcd.server.endpoint], own)
    connection = shared(store, loop, "/first")
    assert all(isinstance(each, int) for each in write(store, loop, "/a"))
    assert store._connections._shared is connection
    for path in own:
        os.utime(path, (time.time() + 5, time.time() + 5))
    numbers = iter(range(1_000))

    def renewed() -> bool:
        assert all(isinstance(each, int) for each in write(store, loop, f"/b{next(numbers)}-", 5))
        time.sleep(LOOK_S / 4)
        return store._connections._shared not in {None, connection}

    until(renewed)
    assert all(isinstance(each, int) for each in write(store, loop, "/c"))
    assert len([each for each in store._connections._open if each is getattr(connection, "channel", None)]) == 0
    store.close()


def test_killing_etcd_loses_nothing_that_was_told_and_hangs_nobody(own_etcd: EtcdServer, loop: Looped):
    store = EtcdStore([own_etcd.endpoint], timeout_s=2)
    shared(store, loop, "/first")
    told: dict[str, int] = {}
    for number in range(6):
        names = [f"/k{number}-{each}" for each in range(50)]
        for name in names:
            loop.begin(name, partial(store.create, name, b"x"))
        loop.turn()
        if number % 2:
            own_etcd.kill9()
        loop.until(partial(_have_ended, loop, names))
        found = [loop.results[name] for name in names]
        assert all(isinstance(each, int | StoreUnavailable) for each in found)
        told |= {name: each for name, each in zip(names, found, strict=True) if isinstance(each, int)}
        if number % 2:
            own_etcd.start()
            until(store.revision)
    assert len(told) >= 150
    kept = {each.key: each.revision for each in store.range("/k").entries}
    assert told.items() <= kept.items()
    assert all(isinstance(each, int) for each in write(store, loop, "/after"))
    store.close()


def test_a_link_that_is_lost_ends_writes_in_time_and_heals(own_etcd: EtcdServer, loop: Looped):
    proxy = Proxy(own_etcd.port)
    store = EtcdStore([proxy.endpoint], timeout_s=1)
    shared(store, loop, "/first")
    proxy.freeze()
    began = time.monotonic()
    assert all(isinstance(each, StoreUnavailable) for each in write(store, loop, "/frozen", 20))
    assert time.monotonic() - began < 30
    proxy.thaw()
    assert all(isinstance(each, int) for each in write(store, loop, "/thawed", 20))
    proxy.cut()
    assert all(isinstance(each, StoreUnavailable) for each in write(store, loop, "/cut", 20))
    proxy.heal()
    assert all(isinstance(each, int) for each in write(store, loop, "/healed", 20))
    store.close()
    proxy.cut()
