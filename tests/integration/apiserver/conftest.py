"""One API server on one etcd for the directory; each test works in a namespace of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.store.etcd import EtcdStore
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.etcd import EtcdServer


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """The etcd of ``server``."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer) -> Iterator[ApiServerProcess]:
    """A running API server; tests do not stop it."""
    store = EtcdStore([etcd.endpoint])
    past = [store.create(f"/past/{number}", b"x") for number in range(3)]
    store.compact(past[-1])  # so that the server's cache does not know it
    store.close()
    api = ApiServerProcess(tmp_path_factory.mktemp("api"), etcd.endpoint).start()
    yield api
    assert api.stop() == 0


class Namespace:
    """A namespace and short ways to its ConfigMaps and Pods."""

    def __init__(self, server: ApiServerProcess, name: str) -> None:
        self.server = server
        self.name = name

    def path(self, plural: str, *rest: str) -> str:
        """The path of a core collection or object in this namespace."""
        return "/".join((f"/api/v1/namespaces/{self.name}/{plural}", *rest))

    def create(self, name: str, **fields: Any) -> Answer:
        """Create a ConfigMap."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        return self.server.request("POST", self.path("configmaps"), {"metadata": metadata, **fields})

    def get(self, name: str, plural: str = "configmaps") -> Answer:
        """Read an object."""
        return self.server.request("GET", self.path(plural, name))


@pytest.fixture
def namespace(server: ApiServerProcess) -> Namespace:
    """A fresh namespace."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return Namespace(server, name)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A small valid pod."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec}}
