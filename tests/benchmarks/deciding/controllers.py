"""Figures of the workload controllers: ``python -m tests.benchmarks.deciding.controllers``, about two minutes.

A real API server on a real etcd, the controllers as a process with their own identity, pods bound to a node that runs
nothing. What a rollout needs at least is counted by unrolling it in an imagined cluster: the number of times that pods
must become ready, each ``READY_S`` long.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, NODE, POD, REPLICA_SET, Kind
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer
from minik8s_modules.controllers.core.pods import is_active, is_ready
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World, run_deciders
from tests.benchmarks.figures import Figure
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import write_kubeconfig
from tests.support.playing import PlayingNode

PODS, ROLLED, IDLE_PODS, READY_S, IDLE_S = 500, 100, 2_000, 5.0, 40.0
BAR_MS, BAR_RATIO, BAR_CPU, BAR_PSS_MB = 1000 / 150, 1.2, 1.0, 120.0
IDENTITY = "system:kube-controller-manager"


def workload(kind: Kind, name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """Return a workload whose pods are bound already."""
    container = {"name": "app", "image": "minik8s/busybox:1", "command": ["sleep", "3600"]}
    labels = {"app": name}
    pod = {"nodeName": "bench", "containers": [container]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


class Bench:
    """Server, controllers, and a copy of the pods."""

    def __init__(self, folder: Path) -> None:
        self.etcd = EtcdServer(folder / "etcd").start()
        self.server = ApiServerProcess(folder / "api", self.etcd.endpoint).start()
        self.client = ApiClient(
            self.server.url, self.server.authority.ca, self.server.admin.cert, self.server.admin.key
        )
        certificate = self.server.identity(IDENTITY)
        kubeconfig = write_kubeconfig(folder / "c.kubeconfig", self.server.url, self.server.authority.ca, certificate)
        config = folder / "controllers.yml"
        config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig)}))
        argv = [sys.executable, "-m", "minik8s_modules.controllers.main", "--config", str(config)]
        self.log = (folder / "controllers.log").open("wb")
        self.process = subprocess.Popen(argv, stderr=self.log)
        self.client.create(NODE, {"metadata": {"name": "bench"}})
        self.pods = Informer(self.client, POD)
        self.pods.start()
        self.pods.wait_synced(20)

    def close(self) -> None:
        """End all."""
        self.pods.stop()
        self.process.terminate()
        self.process.wait(20)
        self.server.stop()
        self.etcd.stop()

    def active(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a workload that count."""
        return [pod for pod in self.pods.list() if objects.labels(pod).get("app") == name and is_active(pod)]

    def wait(self, condition: Callable[[], bool], timeout_s: float = 180.0) -> float:
        """Return the seconds until ``condition``."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(Path(self.log.name).read_text(encoding="utf-8")[-3000:])
            time.sleep(0.02)
        return time.monotonic() - began

    def cpu_s(self) -> float:
        """Return the CPU the controllers have used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


def measure() -> list[Figure]:
    """Start everything, measure, stop everything."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        try:
            return [*replica_sets(bench), *rollout(bench), *idle(bench)]
        finally:
            bench.close()


def replica_sets(bench: Bench) -> list[Figure]:
    """Return what a pod costs when a replica set goes from 0 to 500 and back."""
    bench.client.create(REPLICA_SET, workload(REPLICA_SET, "many", 0))
    bench.wait(lambda: objects.status(bench.client.get(REPLICA_SET, "many", "default")).get("observedGeneration") == 1)
    figures = []
    for what, replicas in (("up", PODS), ("down", 0)):
        cpu_s = bench.cpu_s()
        bench.client.patch(REPLICA_SET, "many", "default", {"spec": {"replicas": replicas}})
        took_s = bench.wait(lambda wanted=replicas: len(bench.active("many")) == wanted)  # type: ignore[misc]
        text = f"{PODS / took_s:.0f} pods/s, controllers {(bench.cpu_s() - cpu_s) / PODS * 1e3:.2f} ms of CPU a pod"
        figures.append(Figure(f"ReplicaSet 0 to {PODS}: {what}", took_s / PODS * 1e3, "ms a pod", BAR_MS, text))
    for pod in bench.pods.list():
        bench.client.delete(POD, objects.name(pod), "default", grace_s=0)
    return figures


def rollout(bench: Bench) -> list[Figure]:
    """Return how long 100 pods take to be replaced, against what readiness makes necessary."""
    node = PlayingNode(bench.client, ready_s=READY_S).start()
    try:
        bench.client.create(DEPLOYMENT, workload(DEPLOYMENT, "rolled", ROLLED))
        bench.wait(lambda: _available(bench, "rolled") == ROLLED)
        change = {"spec": {"template": {"metadata": {"labels": {"app": "rolled", "again": "1"}}}}}
        cpu_s, began = bench.cpu_s(), time.monotonic()
        bench.client.patch(DEPLOYMENT, "rolled", "default", change)
        bench.wait(lambda: _rolled(bench))
        took_s = time.monotonic() - began
    finally:
        node.stop()
    least_s = waves() * READY_S
    text = f"{took_s:.1f} s for {waves()} waves of {READY_S:g} s, {bench.cpu_s() - cpu_s:.1f} s of CPU"
    return [Figure(f"Deployment of {ROLLED} rolled", took_s / least_s, "x necessary", BAR_RATIO, text)]


def _available(bench: Bench, name: str) -> int:
    return int(objects.status(bench.client.get(DEPLOYMENT, name, "default")).get("availableReplicas") or 0)


def _rolled(bench: Bench) -> bool:
    active = bench.active("rolled")
    return len(active) == ROLLED and all(is_ready(pod) and "again" in objects.labels(pod) for pod in active)


def waves() -> int:
    """Return how often pods must become ready, one after the other, in a rollout of ``ROLLED``."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    declared = workload(DEPLOYMENT, "rolled", ROLLED, strategy=rolling)
    declared["metadata"]["uid"] = "1"
    world = World([declared], now)
    rounds = 0

    def live(_world: World) -> bool:
        return False

    def become_ready(world: World) -> bool:
        nonlocal rounds
        waiting = [pod for pod in world.all(POD) if not is_ready(pod)]
        for pod in waiting:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            world.put(POD, {**pod, "status": status})
        rounds += bool(waiting)
        return bool(waiting)

    def until_ready() -> None:
        run_deciders(world, DECIDERS.items(), live)
        while become_ready(world):
            run_deciders(world, DECIDERS.items(), live)

    until_ready()
    rounds = 0
    latest = world.all(DEPLOYMENT)[0]
    template = latest["spec"]["template"]
    changed = {**template, "metadata": {"labels": {"app": "rolled", "again": "1"}}}
    world.put(DEPLOYMENT, {**latest, "spec": {**latest["spec"], "template": changed}})
    until_ready()
    return rounds


def idle(bench: Bench) -> list[Figure]:
    """Return what the controllers use while 2,000 pods run and nothing changes."""
    node = PlayingNode(bench.client).start()
    for number in range(4):
        name = f"idle{number}"
        bench.client.create(REPLICA_SET, workload(REPLICA_SET, name, IDLE_PODS // 4))
    try:
        bench.wait(lambda: sum(map(is_ready, bench.pods.list())) >= IDLE_PODS, 300)
    finally:
        node.stop()
    time.sleep(15)
    cpu_s = bench.cpu_s()
    time.sleep(IDLE_S)
    percent = (bench.cpu_s() - cpu_s) / IDLE_S * 100
    pss_mb = psutil.Process(bench.process.pid).memory_full_info().pss / 1e6
    text = f"{len(bench.pods.list())} pods, {IDLE_S:.0f} s"
    return [
        Figure("controllers idle: CPU", percent, "% of a core", BAR_CPU, text),
        Figure("controllers idle: PSS", pss_mb, "MB", BAR_PSS_MB, text),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
