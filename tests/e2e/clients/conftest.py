"""One API server for the clients that need no running pods, and the installed cluster with one for those that do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.clusters.installed import Installed


class Running(NamedTuple):
    """A Ready pod of the installed cluster that says a word a second: ``tick 1``, ``tick 2``..."""

    cluster: Installed
    namespace: str
    pod: str


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with own_server(tmp_path_factory.mktemp("server")) as api:
        yield api


@pytest.fixture
def namespace(server: ApiServerProcess) -> str:
    """A fresh namespace of ``server``."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    server.kubectl("create", "namespace", name)
    return name


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    cluster, namespace = Installed(), f"clients-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", namespace)
    try:
        loop = "n=0; while sleep 1; do n=$((n+1)); echo tick $n; done"
        cluster.pod("talker", namespace, ["/bin/sh", "-c", loop], terminationGracePeriodSeconds=0)
        cluster.until(lambda: cluster.ready("talker", namespace), 60)
        yield Running(cluster, namespace, "talker")
    finally:
        cluster.drop_namespace(namespace)
        cluster.close()
