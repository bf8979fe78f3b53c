"""A RollingUpdate of real Pods while a client with a real Envoy asks (S-17), and the commands that show a mesh.

The cluster is that of test_mesh.py: the example of docs/how-to/mesh.md on two machines. How many requests a second the
client makes is up to the machines; tests/integration/mesh has 300 a second, without containers.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from minik8s_modules.api.objects import JsonObject, condition
from tests.machines.long.test_mesh import WAIT_S, cluster, split
from tests.support.clusters.labcluster import LabCluster

__all__ = ["cluster"]
MINIK8S = "minik8s"
PODS = ("reviews-v1a", "reviews-v1b", "reviews-v2")
SERVE = "mkdir -p /www/reviews && cd /www && for i in 0 1 2 9; do echo v3 >reviews/$i; done && exec httpd -f -p 9080"


ASK = """
i=0
while [ $i -lt "$1" ]; do wget -q -O - http://reviews:9080/reviews/0 2>&1 || echo "status $?"; i=$((i + 1)); done
"""


def answers(cluster: LabCluster, number: int) -> Counter[str]:
    """Return who answered so many requests of the client, or what came instead."""
    words = cluster.inside("client", "sh", "-c", ASK, "ask", str(number), timeout_s=WAIT_S)
    return Counter(words.splitlines())


class Load:
    """Requests of the client, one after the other, until it is stopped."""

    def __init__(self, cluster: LabCluster) -> None:
        self._cluster, self._over = cluster, threading.Event()
        self.answers: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self.answers += answers(self._cluster, 50)

    def stop(self) -> Counter[str]:
        """Return what was answered."""
        self._over.set()
        self._thread.join(WAIT_S)
        return self.answers


def update(cluster: LabCluster, **spec: Any) -> None:
    container = {"name": "reviews", "image": "minik8s/busybox:1", "command": ["sh", "-c", SERVE]}
    new: JsonObject = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{**container, "ports": [{"containerPort": 9080}]}],
    }
    fields = {"serviceRef": "reviews", "port": 9080, "minimumAlive": 1, "interval": 5, "newPodSpec": new, **spec}
    cluster.apply({"apiVersion": "v1", "kind": "RollingUpdate", "metadata": {"name": "to-v3"}, "spec": fields})


def phase(cluster: LabCluster) -> str:
    found = cluster.get("rollingupdate", "to-v3")
    why = condition(found, "Progressing") or {}
    return f"{found['status'].get('phase')} {why.get('reason')} {why.get('message')}"


def reaches(cluster: LabCluster, wanted: str) -> None:
    cluster.until(lambda: phase(cluster).startswith(wanted), WAIT_S, phase(cluster))


def test_no_request_fails_while_the_pods_are_replaced_and_while_they_go_back(cluster: LabCluster):
    cluster.kubectl("delete", "virtualservice", "--all", "--ignore-not-found")
    cluster.kubectl("delete", "rollingupdate", "--all", "--ignore-not-found")
    load = Load(cluster)
    update(cluster)
    reaches(cluster, "Finished")
    cluster.until(lambda: set(answers(cluster, 20)) == {"v3"}, WAIT_S, "not all answer v3")
    update(cluster, state="Undone")
    reaches(cluster, "Undone")
    found = load.stop()
    assert set(found) <= {"v1a", "v1b", "v2", "v3"}, found
    assert found["v3"] > 0
    print(f"{found.total()} requests: {dict(found)}")


def test_the_commands_show_what_the_sidecar_has(cluster: LabCluster):
    split(cluster, {"name": "reviews-v1", "url": "/reviews/1$"}, {"name": "reviews-v2", "url": "^/reviews/[2-4]"})
    kubeconfig = ["--kubeconfig", "/etc/minik8s/admin.kubeconfig"]

    def said(*words: str) -> str:
        return cluster.on("control1", [MINIK8S, *words, *kubeconfig], timeout_s=WAIT_S)

    # it ends with 1 for as long as a sidecar is behind
    status = ["sh", "-c", f"{MINIK8S} mesh status {' '.join(kubeconfig)} || true"]
    cluster.until(lambda: "synced" in cluster.on("control1", status), WAIT_S, "the sidecar is not synced")
    routes = said("mesh", "routes", "client")
    assert "path ~ /reviews/1$" in routes
    traced = said("trace", "http://reviews:9080/reviews/2", "--from", "client")
    assert "(reviews-v2, of Subset reviews-v2): 100% of them" in traced


def test_a_canary_is_led_by_what_the_sidecar_counts(cluster: LabCluster):
    split(cluster, {"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 0})
    load = Load(cluster)
    words = ["canary", "reviews", "--to", "reviews-v2", "--weight", "50", "--step", "50", "--pause", "10s"]
    done = cluster.on(
        "control1",
        [MINIK8S, *words, "--abort-on", "error-rate>1%", "--kubeconfig", "/etc/minik8s/admin.kubeconfig"],
        timeout_s=WAIT_S,
    )
    found = load.stop()
    assert "100 % of the requests go to reviews-v2" in done
    assert set(found) <= {"v1a", "v1b", "v2"}, found
    assert set(answers(cluster, 20)) == {"v2"}
