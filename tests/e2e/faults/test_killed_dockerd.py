"""kill -9 of dockerd, while pods come and go on it: a private one under a private control plane."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.reconcile import conftest as whole_path
from tests.integration.reconcile.conftest import Cluster
from tests.support import node as support
from tests.support.clusters.installed import is_ready
from tests.support.docker.docker_watch import DockerWatch
from tests.support.docker.dockerd import Dockerd, private_dockerd
from tests.support.load.churn import Churn

CONVERGES_S = 120.0
SEED = time.time_ns()


@pytest.fixture
def dockerd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dockerd]:
    with private_dockerd() as made:
        for module in (support, whole_path):
            monkeypatch.setattr(module, "SOCKET", str(made.socket))
        yield made


@pytest.fixture
def cluster(dockerd: Dockerd) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = Cluster(folder)
    try:
        made.start()
        made.until(made.registered, 60)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def alive(cluster: Cluster, name: str) -> set[tuple[str, str]]:
    """Return the pod's containers with their start times."""
    found = set()
    for identity in cluster.node.ids():
        inspected = cluster.node.docker.inspect(identity)
        if inspected is not None and inspected["Name"].split("_")[2] == name:
            found.add((identity, inspected["State"]["StartedAt"]))
    return found


def test_containers_outlive_dockerd_and_everything_converges(cluster: Cluster, dockerd: Dockerd) -> None:
    chance = random.Random(SEED)
    for name in ("still-0", "still-1"):
        cluster.create(name)
    cluster.until(lambda: all(cluster.ready(name) for name in ("still-0", "still-1")))
    before = alive(cluster, "still-0") | alive(cluster, "still-1")
    assert len(before) == 4
    doubles = []
    with Churn(cluster.admin, "default").running() as churn:
        for _ in range(2):
            with DockerWatch(cluster.node.name, str(dockerd.socket)) as docker:
                time.sleep(chance.uniform(0.5, 1.5))
                dockerd.kill()
            doubles += docker.doubles
            time.sleep(chance.uniform(0.1, 1.0))
            dockerd.start()
        begun = churn.made
        cluster.until(lambda: churn.made > begun + 1, CONVERGES_S)
    wanted = {*churn.wanted, "still-0", "still-1"}

    def converged() -> bool:
        pods = cluster.admin.list(POD, "default").items
        ready = all(is_ready(pod) for pod in pods)
        return (
            {one["metadata"]["name"] for one in pods} == wanted and ready and len(running(cluster)) == 2 * len(wanted)
        )

    try:
        cluster.until(converged, CONVERGES_S)
    finally:
        print(f"seed {SEED}, wanted {sorted(wanted)}", *listing(cluster), sep="\n")
    names = [one["Names"][0].rsplit("_", 1)[0] for one in running(cluster)]
    assert len(names) == len(set(names)), f"two live containers of one pod, seed {SEED}: {sorted(names)}"
    assert not doubles, (SEED, doubles)
    assert alive(cluster, "still-0") | alive(cluster, "still-1") >= before, SEED
    for name in wanted:
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [], CONVERGES_S)
    cluster.until(lambda: cluster.node.traces()["mounts"] == [], CONVERGES_S)
    traces = cluster.node.traces()
    assert traces["links"] == {cluster.node.bridge}


def running(cluster: Cluster) -> list[JsonObject]:
    """Return the node's containers that run."""
    listed = cluster.node.docker.containers({labels.NODE: cluster.node.name})
    return [one for one in listed if one["State"] == "running"]


def listing(cluster: Cluster) -> list[str]:
    """Return the node's containers with their states, for a failure's report."""
    listed = cluster.node.docker.containers({labels.NODE: cluster.node.name})
    return sorted(f"{one['Names'][0]} {one['State']} {one['Status']}" for one in listed)
