"""kill -9 of every part of the cluster at random moments, while pods come and go."""

from __future__ import annotations

import os
import random
import time

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.installed import Installed, is_ready
from tests.support.docker.docker_watch import DockerWatch
from tests.support.load.churn import Churn

PARTS = (
    "apiserver",
    "apiserver worker",
    "etcd",
    "scheduler",
    "controllers",
    "reconciler",
    "play",
    "play worker",
    "warm interpreter",
    "gateway",
    "streams",
)
PASSING = {"play worker", "warm interpreter"}  # there only while an item runs, or 30 s after it
CONVERGES_S = 120.0
SEED = int(os.environ.get("MINIK8S_FAULT_SEED", time.time_ns()))


def identities(cluster: Installed, namespace: str) -> dict[str, tuple[str, str]]:
    """Return id and start time of each container of the untouched pods."""
    found = {}
    for pod in cluster.pods(namespace).values():
        if not pod["metadata"]["name"].startswith("still"):
            continue
        for name, identity in cluster.containers(pod["metadata"]["uid"]).items():
            inspected = cluster.docker.inspect(identity)
            assert inspected is not None
            found[name] = (identity, inspected["State"]["StartedAt"])
    return found


def converged(cluster: Installed, namespace: str, wanted: set[str]) -> bool:
    """Return whether exactly the wanted pods are there, Ready, with exactly their containers on the node."""
    pods = cluster.pods(namespace)
    if set(pods) != wanted or not all(is_ready(pod) for pod in pods.values()):
        return False
    alive = {name for name in cluster.containers(alive=True) if f"_{namespace}_" in name}
    every = {name for name in cluster.containers() if f"_{namespace}_" in name}
    return len(alive) == 2 * len(wanted) and len(every) <= 3 * len(wanted)


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back_and_everything_converges(cluster: Installed, namespace: str, part: str) -> None:
    chance = random.Random(f"{SEED} {part}")
    for number in range(2):
        cluster.pod(f"still-{number}", namespace)
    cluster.until(lambda: all(cluster.ready(f"still-{number}", namespace) for number in range(2)))
    before = identities(cluster, namespace)
    killed: list[int] = []
    with DockerWatch(cluster.node) as docker:
        with Churn(cluster.admin, namespace).running() as churn:
            for _ in range(3 if part in PASSING else 1):
                time.sleep(chance.uniform(0.4, 1.5))
                killed.append(cluster.kill(part))
                assert killed[-1], f"there was no {part} to kill (seed {SEED})"
            time.sleep(chance.uniform(0.2, 1.0))
            cluster.until(cluster.whole, CONVERGES_S, f"{part} killed, seed {SEED}")
            begun = churn.made
            cluster.until(lambda: churn.made > begun + 1, CONVERGES_S, f"no pods are made after {part}, seed {SEED}")
        wanted = {*churn.wanted, "still-0", "still-1"}
        cluster.until(lambda: converged(cluster, namespace, wanted), CONVERGES_S, f"{wanted} seed {SEED}")
    assert not docker.doubles, (SEED, docker.doubles)
    assert identities(cluster, namespace) == before, SEED
    assert not any(one.pid in killed for found in cluster.parts().values() for one in found)
    assert all(restarts(pod) == 0 for name, pod in cluster.pods(namespace).items() if name.startswith("still"))


def restarts(pod: JsonObject) -> int:
    """Return the restarts of a pod's containers."""
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
