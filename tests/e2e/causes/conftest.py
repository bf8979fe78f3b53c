"""The installed cluster, and a namespace of its own for each module."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import NAMESPACE
from tests.support.installed import KUBECONFIG, Installed


@pytest.fixture(scope="session")
def cluster() -> Iterator[Installed]:
    if not KUBECONFIG.exists():
        pytest.fail(f"{KUBECONFIG} does not exist: run `make cluster` first")
    made = Installed()
    made.until(made.whole, 30, "the cluster is not whole before the test")
    yield made
    made.close()


@pytest.fixture(scope="module")
def namespace(cluster: Installed) -> Iterator[str]:
    name = f"causes-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    cluster.drop_namespace(name)
