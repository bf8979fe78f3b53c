"""What a scheduling decision costs: ``python -m tests.benchmarks.deciding.scheduling``, about two minutes.

CPU time, one thread.

The workloads are those of kube-scheduler's scheduler_perf (test/integration/scheduler_perf of Kubernetes 1.32) in node
count, pod count and shape of the pods; nodes are objects of 4 CPUs, 32 Gi and 110 pods. Measured is deciding alone: the
snapshot is brought up to date, a node is chosen, the pod is assumed there; the pods there are before do not count. The
bars are given as milliseconds a pod. Then the slowest cycles on 1,000 nodes, and what a scheduler of 5,000 nodes and
50,000 pods holds in memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import decide
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Event
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings
from minik8s_modules.scheduler.queueing.queue import SchedulingQueue
from minik8s_modules.scheduler.running.scheduler import kept
from tests.benchmarks.figures import Figure

NODES = 5000
_SHOWN = Path(__file__).with_name("running_pod.json")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_BLUE = {"matchLabels": {"color": "blue"}}


class Case(NamedTuple):
    """One workload; ``least`` is the bar in pods a second."""

    name: str
    before: int
    measured: int
    least: float
    spec: JsonObject
    zones: int = 3
    nodes: int = NODES
    cpu: str = "100m"
    before_cpu: str = "100m"
    priority: int = 0
    hopeless: int = 0
    """After so many pods comes one that fits nowhere."""


def _near(key: str) -> JsonObject:
    return {"topologyKey": key, "labelSelector": _BLUE}


def _even(when: str) -> JsonObject:
    rule = {"maxSkew": 5, "topologyKey": _ZONE, "whenUnsatisfiable": when, "labelSelector": _BLUE}
    return {"topologySpreadConstraints": [rule]}


_IN_ZONES = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": ["zone0", "zone1"]}]}
_NODE_AFFINITY = {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_IN_ZONES]}}}}
_WEIGHED = {"weight": 1, "podAffinityTerm": _near(_HOST)}
CASES = (
    Case("SchedulingBasic", 1000, 10_000, 1500, {}),
    Case("SchedulingNodeAffinity", 5000, 10_000, 600, _NODE_AFFINITY),
    Case("TopologySpreading", 5000, 5000, 460, _even("DoNotSchedule")),
    Case("PreferredTopologySpreading", 5000, 5000, 125, _even("ScheduleAnyway")),
    Case("SchedulingPodAffinity", 5000, 5000, 150, {"affinity": {"podAffinity": {_REQUIRED: [_near(_ZONE)]}}}, zones=1),
    Case("SchedulingPodAntiAffinity", 1000, 2000, 200, {"affinity": {"podAntiAffinity": {_REQUIRED: [_near(_HOST)]}}}),
    Case("SchedulingPreferredPodAffinity", 5000, 5000, 200, {"affinity": {"podAffinity": {_PREFERRED: [_WEIGHED]}}}),
    Case("PreemptionBasic, 500 nodes", 2000, 500, 100, {}, nodes=500, cpu="3", before_cpu="900m", priority=10),
    Case("PreemptionBasic", 4 * NODES, 500, 100, {}, cpu="3", before_cpu="900m", priority=10),
    Case("Unschedulable pods beside", 0, 10_000, 600, {}, hopeless=100),
)


def _node(number: int, zones: int) -> JsonObject:
    name = f"node-{number:05}"
    return {
        "metadata": {"name": name, "labels": {_HOST: name, _ZONE: f"zone{number % zones}"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(name: str, cpu: str, spec: JsonObject, priority: int = 0) -> JsonObject:
    requests = {"cpu": cpu, "memory": "500Mi"}
    containers = [{"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}]
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"color": "blue"}, "uid": name},
        "spec": {"containers": containers, "priority": priority, **spec},
        "status": {"phase": "Pending"},
    }


class _Cluster:
    """A cluster of objects, and how it decides."""

    def __init__(self, case: Case) -> None:
        self.case, self.cache, self.snapshot = case, ClusterCache(), Snapshot()
        self.bench = bench(ProfileSettings())
        for number in range(case.nodes):
            self.cache.update_node(None, _node(number, case.zones))
        for number in range(case.before):
            made = PodInfo.of(_pod(f"before{number}", case.before_cpu, case.spec))
            self.cache.assume(made, f"node-{number % case.nodes:05}")
        self.cache.update(self.snapshot)

    def place(self, pod: JsonObject) -> bool:
        """Decide for one pod; send its victims away."""
        decision = decide(pod, self.cache.update(self.snapshot), self.bench)
        node = decision.node
        if not node and decision.nomination is not None and decision.nomination.node:
            node = decision.nomination.node
            for victim in decision.nomination.victims:
                self.cache.forget(victim)
        if node:
            self.cache.assume(PodInfo.of(pod), node)
            self.snapshot.turn += 1
        return bool(node)


def run(case: Case) -> tuple[float, list[float]]:
    """Return pods a second and what each decision took in ms, sorted. Raises RuntimeError for a pod without a node."""
    cluster, unplaced = _Cluster(case), 0
    cycles: list[float] = []
    pods = [_pod(f"p{number}", case.cpu, case.spec, case.priority) for number in range(case.measured)]
    begun = time.process_time()
    for number, pod in enumerate(pods):
        before = time.process_time()
        unplaced += not cluster.place(pod)
        cycles.append((time.process_time() - before) * 1000)
        if case.hopeless and number % case.hopeless == 0:
            cluster.place(_pod(f"hopeless{number}", "100", case.spec))
    took_s = time.process_time() - begun
    if unplaced:
        raise RuntimeError(f"{case.name}: {unplaced} of {case.measured} pods have no node")
    return case.measured / took_s, sorted(cycles)


def run_gated(gated: int = 10_000, deleted: int = 20_000, measured: int = 20_000) -> float:
    """Return pods a second while gated pods wait and one of those on the only node goes for every 20 that come."""
    case = Case("SchedulingWhileGated", deleted, measured, 900, {}, nodes=1)
    cluster = _Cluster(case._replace(before=0))
    roomy = _node(0, 1)
    roomy["status"]["allocatable"] = {"cpu": "40000", "memory": "1000Ti", "pods": "90000"}
    cluster.cache.update_node(None, roomy)
    profile = cluster.bench.profile
    assert profile is not None
    gates = profile.pre_enqueue[0]
    queue = SchedulingQueue(
        SystemClock(), profile.queue_sort.less, lambda pod: str(gates.pre_enqueue(pod) or ""),
        lambda _, plugin: profile.wakes(plugin),
    )  # fmt: skip
    for number in range(gated):
        queue.add(PodInfo.of(_pod(f"gated{number}", "1m", {"schedulingGates": [{"name": "a.b/c"}]})))
    old = [{**made, "spec": {**made["spec"], "nodeName": "node-00000"}} for made in
           (_pod(f"old{number}", "1m", {}) for number in range(deleted))]  # fmt: skip
    for made in old:
        cluster.cache.update_pod(None, made)
    begun = time.process_time()
    for number in range(measured):
        queue.add(PodInfo.of(_pod(f"p{number}", "1m", {})))
        if number % 20 == 0:
            cluster.cache.update_pod(old[number // 20], None)
            queue.move(Event("AssignedPod", "Delete"), old[number // 20], None)
        entry = queue.pop(0)
        if entry is None or not cluster.place(entry.pod.pod):
            raise RuntimeError(f"{case.name}: pod {number} has no node")
        queue.placed(entry)
    return measured / (time.process_time() - begun)


def held_mb(nodes: int = NODES, pods: int = 50_000) -> float:
    """Return how many MB a process holds once it knows so many nodes and pods, as an API server shows them."""
    cache, informed = ClusterCache(), []
    for number in range(nodes):
        cache.update_node(None, _node(number, 3))
    shown = _SHOWN.read_bytes()
    for number in range(pods):
        text = shown.replace(b"NUMBER", b"%05d" % number).replace(b"NODE", b"node-%05d" % (number % nodes))
        informed.append(kept(orjson.loads(text)))
        cache.update_pod(None, informed[-1])
    cache.update(Snapshot())
    resident = Path("/proc/self/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGESIZE") / 1e6


def measure(wanted: Callable[[str], Any] = lambda _: True) -> Iterator[Figure]:
    """Yield what a pod of each workload costs, the slowest cycles, and the memory."""
    for case in CASES:
        if wanted(case.name):
            yield _figure(case.name, case.least, *run(case))
    if wanted("SchedulingWhileGated"):
        yield _figure("SchedulingWhileGated", 900, run_gated(), [])
    for case in CASES:
        if wanted("cycles") and case.nodes == NODES:
            small = case._replace(nodes=1000, before=case.before // 5, measured=min(case.measured, 800))
            rate, cycles = run(small)
            slowest = cycles[len(cycles) * 99 // 100]
            yield Figure(f"cycles on 1,000 nodes, {case.name}", slowest, "ms p99", 20, f"{rate:.0f} pods/s")
    if wanted("memory"):
        with get_context("spawn").Pool(1) as alone:
            yield Figure("memory, 5,000 nodes and 50,000 pods", alone.apply(held_mb), "MB", 400)


def _figure(name: str, least: float, rate: float, cycles: list[float]) -> Figure:
    text = f"{rate:.0f} pods/s, bar {least:g}" + (f"; the longest decision {cycles[-1]:.0f} ms" if cycles else "")
    return Figure(name, 1000 / rate, "ms/pod", 1000 / least, text)


def main() -> None:
    """Print the figures, of the workloads whose names begin with an argument, if any."""
    names = tuple(sys.argv[1:])
    for figure in measure(lambda name: not names or name.startswith(names)):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
