"""What asking costs: ``plan`` of a Deployment of 100 replicas on three nodes, and ``why`` of a pod; one minute.

The commands are run as a person runs them, against a whole cluster whose nodes are network namespaces of this machine.
Walls depend on the load; the CPU beside them is that of the command with kubectl, the API server, the reconciler and
the nodes. The first plan after the start opens connections, and is not counted.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from minik8s_modules.api.kinds import POD
from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.hundred_nodes import GIVE_UP_S, NODES, Hundred
from tests.integration.executor.conftest import wait_for
from tests.integration.reconcile.conftest import IMAGE, ROOT
from tests.support.pki import write_kubeconfig

REPLICAS, ROUNDS = 100, 7
PLAN_S, WHY_S = 1.5, 0.5
PARTS = ("apiserver", "etcd", "reconcile", NODES)
APP = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}


class Few(Hundred):
    """A whole cluster of three nodes."""

    count = 3


class Taken(NamedTuple):
    """What one command took."""

    wall_s: float
    cpu_s: dict[str, float]
    """By part; ``command`` is the command itself with kubectl."""


def deployment() -> dict[str, object]:
    """Return a Deployment of ``REPLICAS``."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [APP]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def run(cluster: Few, kubeconfig: Path, words: Sequence[str]) -> Taken:
    """Run a command of ours, which must succeed."""
    before, children = cluster.spent(), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    argv = [sys.executable, "-m", "minik8s_modules.cli.main", *words]
    subprocess.run(argv, env={**os.environ, "KUBECONFIG": str(kubeconfig)}, cwd=ROOT, check=True, capture_output=True)
    wall_s, after = time.perf_counter() - began, cluster.spent()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = ended.ru_utime + ended.ru_stime - children.ru_utime - children.ru_stime
    return Taken(wall_s, {"command": own_s} | {part: after[part] - before[part] for part in PARTS})


def figure(name: str, bar_s: float, found: Sequence[Taken]) -> Figure:
    """Return the median wall, with the CPU by part beside it."""
    cpu_s = {part: statistics.median(one.cpu_s[part] for one in found) for part in found[0].cpu_s}
    text = ", ".join(f"{part} {value:.2f}" for part, value in cpu_s.items())
    text = f"CPU {sum(cpu_s.values()):.2f} s: {text}; load {os.getloadavg()[0]:.1f}"
    return Figure(name, statistics.median(one.wall_s for one in found), "s", bar_s, text)


def measure() -> Iterator[Figure]:
    """Yield the figures of both commands."""
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cluster = Few(folder)
    try:
        cluster.start()
        wait_for(lambda: cluster.nodes_ready() == cluster.count, f"{cluster.count} nodes Ready", GIVE_UP_S)
        cluster.calm()
        kubeconfig = folder / "admin.kubeconfig"
        write_kubeconfig(kubeconfig, cluster.server.url, cluster.server.authority.ca, cluster.server.admin)
        manifest = folder / "web.yml"
        manifest.write_text(yaml.safe_dump(deployment()))
        pod = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [APP]}}
        cluster.admin.create(POD, {**pod, "spec": {"containers": [APP], "nodeSelector": {"disk": "none"}}})
        asked = {
            f"plan of a Deployment of {REPLICAS} on {cluster.count} nodes": (PLAN_S, ["plan", "-f", str(manifest)]),
            "why of a pod that fits nowhere": (WHY_S, ["why", "pod/web"]),
        }
        for name, (bar_s, words) in asked.items():
            run(cluster, kubeconfig, words)
            yield figure(name, bar_s, [run(cluster, kubeconfig, words) for _ in range(ROUNDS)])
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    for one in measure():
        print(one.line(), flush=True)


if __name__ == "__main__":
    main()
