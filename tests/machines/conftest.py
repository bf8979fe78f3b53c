"""Clusters on lab machines, made with ``LabCluster``: one for the folders that share it, one for each other module."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.support.clusters import standing
from tests.support.clusters.labcluster import LabCluster

# pressure is over soon after a full disk was freed, not after Kubernetes' five minutes
HOUSEKEEPING = {"eviction_hard": {"nodefs.available": "5%"}, "eviction_transition_s": 5, "reserved": {}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if "tests/machines" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="a lab needs root"))


@pytest.fixture(scope="module")
def lab_name() -> str:
    """A name for a lab that no other has."""
    return f"i{uuid.uuid4().hex[:7]}"


@pytest.fixture(scope="package")
def installed() -> Iterator[LabCluster]:
    """The cluster of membership and resilience: a machine of the control plane, two workers that stay, and a spare.

    MINIK8S_STANDING in the environment names a lab to use again, and to keep.
    """
    kept = os.environ.get("MINIK8S_STANDING", "")
    variables = {"control_plane_housekeeping": HOUSEKEEPING}
    cluster = LabCluster(kept or f"m{uuid.uuid4().hex[:7]}", control=1, workers=2, spare=1, variables=variables)
    try:
        cluster.up()
        if not cluster.kubeconfig.exists():
            cluster.install()
        cluster.apply(standing.namespace())
        yield cluster
    finally:
        if not kept:
            cluster.close()
