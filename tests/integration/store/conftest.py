"""Fixtures: one etcd for the whole directory, and both stores behind one name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.interface import Store
from minik8s_modules.store.memory import MemoryStore
from tests.support.etcd import EtcdServer


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


@pytest.fixture(params=["etcd", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each of the two stores."""
    real = request.param == "etcd"
    made: Store = EtcdStore([request.getfixturevalue("etcd").endpoint]) if real else MemoryStore()
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    """A key prefix nobody else uses."""
    return f"/registry/core/pods/{uuid.uuid4().hex}/"
