"""The shared cluster, for tests in which its spare machine comes and goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.membership.members import Members
from tests.support.clusters.labcluster import LabCluster


@pytest.fixture(scope="module")
def members(installed: LabCluster) -> Members:
    """The cluster, with words for its machines."""
    return Members(installed)


@pytest.fixture
def served(members: Members) -> Iterator[Members]:
    """The cluster with a Deployment behind a Service, and a client on worker1 that counts what fails."""
    members.serve()
    yield members
    members.clear()
