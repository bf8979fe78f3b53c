"""How long machines take to become nodes: ``python -m tests.benchmarks.nodes.joining``, some five minutes.

Three native lab machines (a control plane that is a node as well, two workers) are installed by site.yml, warm: what is
built once lies in the cache, Debian packages in the image. Then the same run again, then one machine is added by
node_add.yml, to Ready, and removed by node_remove.yml.
"""

from __future__ import annotations

import uuid

from tests.benchmarks.figures import Figure, load
from tests.support.clusters.labcluster import LabCluster

INSTALL_S, AGAIN_S, ADD_S = 180.0, 30.0, 60.0
SPARE = "spare1"


def measure() -> list[Figure]:
    """Install, add and remove on a lab of its own."""
    name = f"b{uuid.uuid4().hex[:7]}"
    with LabCluster(name, control=1, workers=2, spare=1, control_is_node=True, install=False) as cluster:
        first = cluster.install()
        text = f"load {load():.1f}"
        again = cluster.play("site.yml")
        cluster.nodes = [*cluster.nodes, SPARE]
        cluster.write_inventory()
        added = cluster.play("node_add.yml", "-e", f"node={SPARE}")
        removed = cluster.play("node_remove.yml", "-e", f"node={SPARE}")
        return [
            Figure("three lab nodes installed, warm cache", first.seconds, "s", INSTALL_S, text),
            Figure("installed again, nothing changed", again.seconds, "s", AGAIN_S, f"changed={again.changed}"),
            Figure("one lab node added, until it is Ready", added.seconds, "s", ADD_S, f"load {load():.1f}"),
            Figure("one lab node removed, its machine cleaned", removed.seconds, "s", None, f"load {load():.1f}"),
        ]


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()
