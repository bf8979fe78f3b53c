"""How long new work waits when the control plane is lost: ``python -m tests.benchmarks.server.failover``, six minutes.

Of three lab machines of a control plane and a worker, the machine that leads (its reconciler holds the shard's Lease)
loses its power, three times, each followed by a calm minute with all three; at once a Pod is created at a machine
that is left, and the clock runs from the cut to its readiness. Then a control plane of one machine is restarted, with
etcd, and the clock runs from the order to a new Pod's readiness.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import Iterator

from tests.benchmarks.figures import Figure, load
from tests.support.clusters import standing
from tests.support.clusters.labcluster import LabCluster, is_true

LOSSES, READY_S, CALM_S, GIVE_UP_S = 3, 15.0, 60.0, 300.0
LEASE = "minik8s-reconciler-default"
UNITS = "systemctl list-units --plain --no-legend 'minik8s-*.service' | cut -d' ' -f1"


def holder(cluster: LabCluster) -> str:
    """Return the machine that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    done = cluster.kubectl("get", "lease", LEASE, "-n", "kube-system", "-o", path, control=cluster.control[0])
    return done.partition("_")[0]


def prepare(cluster: LabCluster) -> None:
    """Have the node take Pods, and one that has run."""
    cluster.load_image(standing.IMAGE)
    cluster.apply(standing.namespace())
    for control in cluster.control:
        cluster.fetch_kubeconfig(control)
        new_pod(cluster, control)


def new_pod(cluster: LabCluster, control: str) -> None:
    """Have a new Pod made through a machine's server; return once it was Ready."""
    config = f"--kubeconfig={cluster.folder / control}.kubeconfig"
    name = f"new-{uuid.uuid4().hex[:6]}"
    text = json.dumps(standing.pod(name, standing.server_spec()))
    argv = ("get", "pod", name, "-n", standing.NAMESPACE, "-o", "json")
    cluster.until(lambda: cluster.kubectl(config, "apply", "-f", "-", stdin=text), GIVE_UP_S)
    cluster.until(lambda: is_true(json.loads(cluster.kubectl(config, *argv)), "Ready"), GIVE_UP_S)


def lost(cluster: LabCluster) -> float:
    """Cut the power of the machine that leads; return the seconds until a new Pod was Ready, with it back again."""
    leader = cluster.until(lambda: holder(cluster))
    other = next(control for control in cluster.control if control != leader)
    begun = time.monotonic()
    cluster.lab.power_cut(leader)
    new_pod(cluster, other)
    spent_s = time.monotonic() - begun
    cluster.lab.start(leader)
    new_pod(cluster, leader)
    time.sleep(CALM_S)
    return spent_s


def restarted(cluster: LabCluster) -> float:
    """Restart all of the one machine of a control plane; return the seconds until a new Pod was Ready."""
    (control,) = cluster.control
    begun = time.monotonic()
    cluster.on(control, ["sh", "-c", f"systemctl restart $({UNITS})"], timeout_s=GIVE_UP_S)
    new_pod(cluster, control)
    return time.monotonic() - begun


def measure() -> Iterator[Figure]:
    """Yield the figures, each of a lab of its own."""
    with LabCluster(f"b{uuid.uuid4().hex[:7]}", control=3, workers=1) as cluster:
        prepare(cluster)
        spent = [lost(cluster) for _ in range(LOSSES)]
        text = f"n={LOSSES}, slowest {max(spent):.1f} s; load {load():.1f}"
        name = "leading machine of three loses power, until a new Pod is Ready, p50"
        yield Figure(name, statistics.median(spent), "s", READY_S, text)
    with LabCluster(f"b{uuid.uuid4().hex[:7]}", control=1, workers=1) as cluster:
        prepare(cluster)
        spent = [restarted(cluster) for _ in range(LOSSES)]
        text = f"n={LOSSES}, slowest {max(spent):.1f} s; etcd and all daemons; load {load():.1f}"
        name = "a control plane of one machine restarted, until a new Pod is Ready, p50"
        yield Figure(name, statistics.median(spent), "s", READY_S, text)


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
