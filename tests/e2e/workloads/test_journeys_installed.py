"""S-09 on the installed cluster, through its kubectl, on real pods."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import NAMESPACE
from tests.support.clusters import journeys
from tests.support.clusters.installed import Installed


@pytest.fixture
def namespace(cluster: Installed) -> Iterator[str]:
    name = f"workloads-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    cluster.drop_namespace(name)


def test_s09_a_replica_set_of_the_original(cluster: Installed, namespace: str):
    def kubectl(*arguments: str, stdin: str = "") -> str:
        return cluster.kubectl("-n", namespace, *arguments, stdin=stdin).stdout

    journeys.replica_set(kubectl, cluster.until)
