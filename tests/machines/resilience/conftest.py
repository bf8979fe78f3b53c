"""One cluster for all tests of this folder: a machine of the control plane and two workers, whole before each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.support import standing
from tests.support.labcluster import LabCluster
from tests.support.wholeness import assert_whole

# pressure is over soon after a full disk was freed, not after Kubernetes' five minutes
HOUSEKEEPING = {"eviction_hard": {"nodefs.available": "5%"}, "eviction_transition_s": 5, "reserved": {}}


@pytest.fixture(scope="package")
def installed() -> Iterator[LabCluster]:
    """The cluster; MINIK8S_STANDING in the environment names a lab to use again, and to keep."""
    kept = os.environ.get("MINIK8S_STANDING", "")
    name = kept or f"r{uuid.uuid4().hex[:7]}"
    cluster = LabCluster(name, control=1, workers=2, variables={"control_plane_housekeeping": HOUSEKEEPING})
    try:
        cluster.up()
        if not cluster.kubeconfig.exists():
            cluster.install()
        cluster.apply(standing.namespace())
        yield cluster
    finally:
        if not kept:
            cluster.close()


@pytest.fixture
def cluster(installed: LabCluster) -> Iterator[LabCluster]:
    """The cluster, whole before and after the test; what a test made in the namespace goes with it."""
    assert_whole(installed)
    yield installed
    for machine in (*installed.control, *installed.workers):  # where a test has failed half-way
        installed.lab.start(machine)
        installed.lab.rejoin(machine)
    installed.until(installed.ready_nodes)
    for kinds in (
        "ingresses,services,deployments,statefulsets",
        "pods",
    ):  # with their pods, which are not replaced then
        installed.kubectl("delete", kinds, "--all", "--cascade=foreground", "-n", standing.NAMESPACE, timeout_s=300)
    installed.until(lambda: not standing.pods(installed), told="the test's pods do not end")
    assert_whole(installed)
