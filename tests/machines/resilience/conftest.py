"""The shared cluster, whole after each test of this folder, and so before the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clusters import standing
from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.wholeness import assert_whole


@pytest.fixture(scope="package")
def whole(installed: LabCluster) -> LabCluster:
    """The cluster, whole before the first test."""
    assert_whole(installed)
    return installed


@pytest.fixture
def cluster(whole: LabCluster) -> Iterator[LabCluster]:
    """The cluster, whole after the test; what a test made in the namespace goes with it."""
    yield whole
    for machine in (*whole.control, *whole.workers):  # where a test has failed half-way
        whole.lab.start(machine)
        whole.lab.rejoin(machine)
    whole.until(whole.ready_nodes)
    for kinds in (
        "ingresses,services,deployments,statefulsets",
        "pods",
    ):  # with their pods, which are not replaced then
        whole.kubectl("delete", kinds, "--all", "--cascade=foreground", "-n", standing.NAMESPACE, timeout_s=300)
    whole.until(lambda: not standing.pods(whole), told="the test's pods do not end")
    assert_whole(whole)
