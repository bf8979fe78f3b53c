"""kill -9 of every part of the cluster at random moments, while pods come and go."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from minik8s_modules.api.errors import AlreadyExists, NotFound, StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.base.errors import TemporaryError
from tests.support.docker_watch import DockerWatch
from tests.support.installed import Installed, JsonObject, is_ready

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
)
PASSING = {"play worker", "warm interpreter"}  # there only while an item runs, or 30 s after it
CONVERGES_S = 30.0
KEPT = 2  # churning pods wanted at any time
SEED = int(os.environ.get("MINIK8S_FAULT_SEED", time.time_ns()))


class Churn:
    """Creates and deletes pods in a thread, whatever the API says; ``wanted`` is what must run in the end."""

    def __init__(self, cluster: Installed, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.wanted: list[str] = []
        self.made = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self._step()
        except BaseException as error:  # noqa: BLE001 - the test shall see it
            self.error = error

    def _step(self) -> None:
        try:
            if len(self.wanted) < KEPT:
                name = f"churn-{self.made}"
                self._create(name)
                self.made += 1
                self.wanted.append(name)
            else:
                self._delete(self.wanted[0], grace_s=self.made % 3)
                self.wanted.pop(0)
        except TemporaryError:
            return
        except StatusError as error:
            if error.code < 500:
                raise

    def _create(self, name: str) -> None:
        try:
            self._cluster.pod(name, self._namespace, ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.2; done"])
        except AlreadyExists:
            return  # the answer to an earlier try was lost

    def _delete(self, name: str, grace_s: int) -> None:
        try:
            self._cluster.admin.delete(POD, name, self._namespace, grace_s=grace_s)
        except NotFound:
            return

    @contextmanager
    def running(self) -> Iterator[Churn]:
        """Churn during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(60)
        assert self.error is None, self.error


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
    with DockerWatch(cluster.node) as docker:
        with Churn(cluster, namespace).running() as churn:
            for _ in range(3 if part in PASSING else 1):
                time.sleep(chance.uniform(0.4, 1.5))
                killed = cluster.kill(part)
                assert killed, f"there was no {part} to kill (seed {SEED})"
            time.sleep(chance.uniform(0.2, 1.0))
            cluster.until(cluster.whole, CONVERGES_S, f"{part} killed, seed {SEED}")
            begun = churn.made
            cluster.until(lambda: churn.made > begun + 1, CONVERGES_S, f"no pods are made after {part}, seed {SEED}")
        wanted = {*churn.wanted, "still-0", "still-1"}
        cluster.until(lambda: converged(cluster, namespace, wanted), CONVERGES_S, f"{wanted} seed {SEED}")
    assert not docker.doubles, (SEED, docker.doubles)
    assert identities(cluster, namespace) == before, SEED
    assert not psutil.pid_exists(killed) or part in PASSING
    assert all(restarts(pod) == 0 for name, pod in cluster.pods(namespace).items() if name.startswith("still"))


def restarts(pod: JsonObject) -> int:
    """Return the restarts of a pod's containers."""
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
