"""What a scheduling decision costs: ``python -m tests.benchmarks.scheduling``, about two minutes. CPU time, one thread.

The workloads are those of kube-scheduler's scheduler_perf (test/integration/scheduler_perf of Kubernetes 1.32) in node
count, pod count and shape of the pods; nodes are objects of 4 CPUs, 32 Gi and 110 pods. Measured is deciding alone: the
snapshot is brought up to date, a node is chosen, the pod is assumed there; the pods there are before do not count. The
bars are given as milliseconds a pod.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import decide
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings
from tests.benchmarks.figures import Figure

NODES = 5000
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


def run(case: Case) -> tuple[float, float]:
    """Return pods a second and the longest decision in milliseconds. Raises RuntimeError for a pod without a node."""
    cluster, longest, unplaced = _Cluster(case), 0.0, 0
    pods = [_pod(f"p{number}", case.cpu, case.spec, case.priority) for number in range(case.measured)]
    begun = time.process_time()
    for number, pod in enumerate(pods):
        before = time.process_time()
        unplaced += not cluster.place(pod)
        longest = max(longest, time.process_time() - before)
        if case.hopeless and number % case.hopeless == 0:
            cluster.place(_pod(f"hopeless{number}", "100", case.spec))
    took_s = time.process_time() - begun
    if unplaced:
        raise RuntimeError(f"{case.name}: {unplaced} of {case.measured} pods have no node")
    return case.measured / took_s, longest * 1000


def measure(wanted: Callable[[Case], Any] = lambda _: True) -> Iterator[Figure]:
    """Yield what a pod of each workload costs."""
    for case in filter(wanted, CASES):
        rate, longest = run(case)
        told = f"{rate:.0f} pods/s, bar {case.least:g}; the longest decision {longest:.0f} ms"
        yield Figure(case.name, 1000 / rate, "ms/pod", 1000 / case.least, told)


def main() -> None:
    """Print the figures, of the workloads whose names begin with an argument, if any."""
    names = tuple(sys.argv[1:])
    for figure in measure(lambda case: not names or case.name.startswith(names)):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
