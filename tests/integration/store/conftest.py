"""Fixtures: one etcd for the whole directory, and both stores behind one name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minik8s_modules.store.at_rest import keyring
from minik8s_modules.store.at_rest.encryption import EncryptedStore
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.interface import Store
from minik8s_modules.store.memory import MemoryStore
from minik8s_modules.store.wire.connection import Tls
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority
from tests.support.servers.proxy import Proxy


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A running etcd, shared: tests use keys of their own (``prefix``) and do not kill it."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture
def own_etcd(tmp_path) -> Iterator[EtcdServer]:
    """A running etcd of this test alone, to be killed, compacted and emptied."""
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture(params=["etcd", "memory", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each of the stores."""
    real = request.param == "etcd"
    made: Store = EtcdStore([request.getfixturevalue("etcd").endpoint]) if real else MemoryStore()
    if request.param == "encrypted":
        (tmp_path / "ring").touch(mode=0o600)
        (tmp_path / "ring").write_bytes(keyring.dump([keyring.new_key()]))
        made = EncryptedStore(made, keyring.KeyRing(tmp_path / "ring"), ("/",))
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    """A key prefix nobody else uses."""
    return f"/registry/core/pods/{uuid.uuid4().hex}/"


class Interruptible(NamedTuple):
    """A store with the means to make it unreachable and reachable again."""

    store: Store
    cut: Callable[[], None]
    heal: Callable[[], None]


@pytest.fixture(params=["etcd", "memory"])
def interruptible(request: pytest.FixtureRequest) -> Iterator[Interruptible]:
    """Each of the two stores: etcd behind a proxy, and the memory store, which can play dead."""
    if request.param == "etcd":
        proxy = Proxy(request.getfixturevalue("etcd").port)
        made = Interruptible(EtcdStore([proxy.endpoint], timeout_s=2), proxy.cut, proxy.heal)
    else:
        memory = MemoryStore()
        made = Interruptible(memory, lambda: memory.set_available(False), lambda: memory.set_available(True))
    yield made
    made.store.close()
    made.cut()


class TlsEtcd(NamedTuple):
    """An etcd that asks for certificates, and one it takes."""

    server: EtcdServer
    tls: Tls


@pytest.fixture
def tls_etcd(tmp_path: Path) -> Iterator[TlsEtcd]:
    """A running etcd with TLS that asks for client certificates."""
    authority = Authority(tmp_path / "pki", "etcd")
    pair = authority.issue("server", "localhost")
    arguments = ["--cert-file", str(pair.cert), "--key-file", str(pair.key)]
    arguments += ["--trusted-ca-file", str(authority.ca), "--client-cert-auth"]
    server = EtcdServer(tmp_path / "etcd-tls", scheme="https", arguments=arguments).start()
    yield TlsEtcd(server, Tls(authority.ca, *authority.issue("client", "apiserver")))
    server.stop()
