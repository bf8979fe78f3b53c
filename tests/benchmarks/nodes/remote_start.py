"""A Pod's start on other machines and on the control plane's own: ``python -m tests.benchmarks.nodes.remote_start``.

A lab of three native machines, installed by the playbooks: the control plane, which is a node, too, and two workers
behind SSH, with Debian 12 and 13. Pods that name their node are made in turn on all; the clock runs from the create
request to the watch event that says Running. The machines share this one's processors and kernel, so what is left is
the way (SSH, its warm interpreter, the gateway's forwarded socket) and, between the workers, what their releases bring:
Docker 20.10 and 26.1, Python 3.11 and 3.13. ``--lab NAME --nodes LOCAL,REMOTE,NEWER`` measures on a lab cluster that
stands.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence

from minik8s_modules.api.kinds import POD
from minik8s_modules.client.api import ApiClient
from tests.benchmarks.figures import Figure
from tests.lab.records import Release
from tests.support.clusters.labcluster import LabCluster

ROUNDS, BAR_MS, TIMEOUT_S = 15, 100.0, 120
IMAGE = "minik8s/busybox:1"
NODES = ("control1", "worker1", "worker2")


def start_ms(api: ApiClient, node: str) -> float:
    """Return how long a pod took from the request until it was seen Running; it is gone afterwards."""
    name = f"start-{uuid.uuid4().hex[:8]}"
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
    spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
    revision = api.list(POD, "default").resource_version
    watch = api.watch(POD, "default", resource_version=revision, timeout_s=TIMEOUT_S)
    begun = time.perf_counter()
    try:
        api.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        for event in watch:
            mine = event.object["metadata"].get("name") == name
            if mine and event.object.get("status", {}).get("phase") == "Running":
                return (time.perf_counter() - begun) * 1000
        raise AssertionError(f"{name} is not Running on {node} within {TIMEOUT_S} s")
    finally:
        watch.close()
        api.delete(POD, name, "default", grace_s=0)
        time.sleep(1)  # what its removal leaves to do is no part of the next one's start


def figures(api: ApiClient, nodes: Sequence[str]) -> Iterator[Figure]:
    """Yield the figures of starts on the local node, the remote one and that with the newer release, in turn."""
    for node in nodes:
        start_ms(api, node)  # warms up
    found: list[tuple[float, ...]] = []
    for turn in range(ROUNDS):
        order = range(len(nodes)) if turn % 2 else reversed(range(len(nodes)))
        took = {at: start_ms(api, nodes[at]) for at in order}
        found.append(tuple(took[at] for at in range(len(nodes))))
    text = f"n={ROUNDS} in turns; load {os.getloadavg()[0]:.1f}"
    local, remote, newer = (statistics.median(column) for column in zip(*found, strict=True))
    more = statistics.median(one[1] - one[0] for one in found)
    yield Figure("pod start on a remote machine over the local one, p50", more, "ms", BAR_MS, text)
    yield Figure("pod start on the local machine, p50", local, "ms", None, text)
    yield Figure("pod start on a remote machine, p50", remote, "ms", None, text)
    yield Figure("pod start on a remote machine with Debian 13, p50", newer, "ms", None, text)


def measured_on(cluster: LabCluster, nodes: Sequence[str]) -> list[Figure]:
    """Measure on a cluster that stands."""
    api = cluster.client()
    try:
        return list(figures(api, nodes))
    finally:
        api.close()


def measure() -> list[Figure]:
    """Measure on a lab of its own."""
    name = f"b{uuid.uuid4().hex[:7]}"
    releases: dict[str, Release] = {"worker2": "trixie"}
    with LabCluster(name, control=1, workers=2, releases=releases, control_is_node=True) as cluster:
        return measured_on(cluster, NODES)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", default="", help="a lab cluster that stands, instead of one of its own")
    parser.add_argument("--nodes", default=",".join(NODES), help="its local node and its remote ones")
    given = parser.parse_args()
    nodes = given.nodes.split(",")
    found = measured_on(LabCluster(given.lab), nodes) if given.lab else measure()
    for figure in found:
        print(figure.line())


if __name__ == "__main__":
    main()
