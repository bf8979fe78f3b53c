"""One cluster for all tests of this folder: two workers that stay, and spare machines that come and go."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.machines.membership.members import Members
from tests.support import standing
from tests.support.labcluster import LabCluster


@pytest.fixture(scope="package")
def members() -> Iterator[Members]:
    """The cluster; MINIK8S_MEMBERS in the environment names a lab to use again, and to keep."""
    kept = os.environ.get("MINIK8S_MEMBERS", "")
    cluster = LabCluster(kept or f"m{uuid.uuid4().hex[:7]}", control=1, workers=2, spare=1)
    try:
        cluster.up()
        if not cluster.kubeconfig.exists():
            cluster.install()
        cluster.apply(standing.namespace())
        yield Members(cluster)
    finally:
        if not kept:
            cluster.close()


@pytest.fixture
def served(members: Members) -> Iterator[Members]:
    """The cluster with a Deployment behind a Service, and a client on worker1 that counts what fails."""
    members.serve()
    yield members
    members.clear()
