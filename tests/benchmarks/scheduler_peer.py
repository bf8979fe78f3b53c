"""The scheduler beside kube-scheduler, in one run: ``python -m tests.benchmarks.scheduler_peer``, some six minutes.

kube-scheduler 1.20 and its API server lie beside the checkout (``../shared/peer``); without them there are no figures.
Each workload of upstream's scheduler_perf runs on both, in turn, on servers and etcds that have just begun, the etcds
with the same options; one driver makes the objects and measures by a watch. So API servers are in the figure: how much
of it the scheduler is stands beside it as its CPU for a pod. Pods are fewer than upstream's, as one run has to end;
``--nodes 100`` makes everything smaller, to try it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from minik8s_modules.client.api import ApiClient
from tests.benchmarks.deciding.scheduler_perf.operations import PerfCase, read
from tests.benchmarks.deciding.scheduler_perf.workload import Workload
from tests.benchmarks.figures import Figure
from tests.benchmarks.peer import PEER
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.gotools import module_path
from tests.support.pki import write_kubeconfig

UPSTREAM = ("k8s.io/kubernetes", "v1.32.3")
NODES, BEFORE, MEASURED = 5000, 1000, 2000
_SMALLEST = 20
LEAST_SAMPLES = 5


class Compared(NamedTuple):
    """A workload of upstream's, and the least share of kube-scheduler's pods a second."""

    file: str
    case: str
    workload: str
    least: float
    nodes: int = NODES
    before: int = BEFORE
    measured: int = MEASURED


COMPARED = (
    Compared("misc", "SchedulingBasic", "5000Nodes_10000Pods", 0.5),
    Compared("affinity", "SchedulingPodAffinity", "5000Nodes_5000Pods", 1.0),
    Compared("misc", "TopologySpreading", "5000Nodes_5000Pods", 1.0),
    # four pods fill a node, so that each of those that are measured preempts
    Compared("misc", "PreemptionBasic", "500Nodes", 1.0, nodes=500, before=2000, measured=500),
)


class Side(NamedTuple):
    """A cluster with a scheduler that runs: a client of all rights, and the scheduler's process."""

    client: ApiClient
    scheduler: psutil.Process


class Ran(NamedTuple):
    """What one side did.

    Attributes:
        rate: pods a second, the mean of upstream's samples.
        overall: pods a second from the first that was asked for to the last that got its node.
        samples: how many there were.
        cpu_ms: the scheduler's CPU for one of all pods.
    """

    rate: float
    overall: float
    samples: int
    cpu_ms: float


def measure(nodes: int = NODES, names: Collection[str] = ()) -> Iterator[Figure]:
    """Yield how much longer a pod takes than with kube-scheduler, in the workloads of these names or all.

    Nothing where there is no peer.
    """
    if not (PEER / "peer.sh").exists():
        return
    folder = module_path(*UPSTREAM) / "test" / "integration" / "scheduler_perf"
    for one in COMPARED:
        if names and one.case not in names:
            continue
        case = read(folder / one.file / "performance-config.yaml", one.case, one.workload, sizes(one, nodes / NODES))
        theirs, mine = _run(case, _peer), _run(case, ours)
        text = f"{mine.rate:.0f} beside {theirs.rate:.0f} pods/s, {mine.overall:.0f} beside {theirs.overall:.0f} with "
        text += f"what the first one took; CPU of the scheduler {mine.cpu_ms:.1f} beside {theirs.cpu_ms:.1f} ms a pod; "
        text += f"{case.name}, {sizes(one, nodes / NODES)}"
        yield Figure(f"{one.case} beside kube-scheduler, time", ratio(mine, theirs), "x", 1 / one.least, text)


def ratio(mine: Ran, theirs: Ran) -> float:
    """Return how much longer a pod took: by upstream's samples, where both sides took long enough for that."""
    if min(mine.samples, theirs.samples) < LEAST_SAMPLES:
        return theirs.overall / mine.overall
    return theirs.rate / mine.rate


def sizes(one: Compared, share: float) -> dict[str, int]:
    """Return the numbers of a workload that is made smaller as a whole; never so small that nothing is measured."""
    wanted = {"initNodes": one.nodes, "initPods": one.before, "measurePods": one.measured}
    found = {name: max(_SMALLEST, round(count * share)) for name, count in wanted.items()}
    # what fills all nodes fills them at any size
    return {**found, "initPods": found["initNodes"] * 4} if one.before == 4 * one.nodes else found


def _run(case: PerfCase, side: Callable[[Path], AbstractContextManager[Side]]) -> Ran:
    with tempfile.TemporaryDirectory(prefix="scheduler-peer-") as directory, side(Path(directory)) as found:
        workload = Workload(found.client, case)
        workload.run()
        spent = found.scheduler.cpu_times()
        pods = sum(one.times for one in case.operations if one.code == "createPods")
        (sampler,) = workload.samplers
        found.client.close()
        cpu_ms = (spent.user + spent.system) * 1000 / pods
        return Ran(sampler.average, sampler.overall, len(sampler.samples), cpu_ms)


@contextmanager
def _peer(directory: Path) -> Iterator[Side]:
    kept = {**os.environ, "PEER_DIR": str(directory)}
    try:
        subprocess.run([PEER / "peer.sh", "scheduler"], env=kept, check=True, stdout=subprocess.DEVNULL)
        pid = int((directory / "kube-scheduler.pid").read_text(encoding="utf-8"))
        yield Side(ApiClient.from_kubeconfig(directory / "kubeconfig"), psutil.Process(pid))
    finally:
        subprocess.run([PEER / "peer.sh", "down"], env=kept, check=False)


@contextmanager
def ours(directory: Path) -> Iterator[Side]:
    """Run a new cluster of this checkout: etcd, API server, scheduler."""
    etcd = EtcdServer(directory / "etcd", quick=False).start()
    server = ApiServerProcess(directory / "api", etcd.endpoint)
    scheduler = None
    try:
        server.start()
        identity = server.identity("system:kube-scheduler")
        kubeconfig = write_kubeconfig(directory / "kubeconfig", server.url, server.authority.ca, identity)
        config = directory / "scheduler.yml"
        config.write_text(yaml.safe_dump({"kubeconfig": str(kubeconfig)}), encoding="utf-8")
        argv = [sys.executable, "-m", "minik8s_modules.scheduler.main", "--config", str(config)]
        with (directory / "scheduler.log").open("wb") as log:
            scheduler = subprocess.Popen(argv, stderr=log)
        yield Side(ApiClient.from_kubeconfig(server.kubeconfig), psutil.Process(scheduler.pid))
    finally:
        if scheduler is not None:
            scheduler.terminate()
            scheduler.wait(30)
        server.stop()
        etcd.stop()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="of most workloads; pods in proportion")
    known = [one.case for one in COMPARED]
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(known)}; none: all")
    asked = parser.parse_args()
    if unknown := sorted({*asked.names} - {*known}):
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(known)}")
    for figure in measure(asked.nodes, asked.names):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
