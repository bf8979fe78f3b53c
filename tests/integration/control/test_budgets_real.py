"""Disruption budgets: kubectl drain, the controllers as a process, a real API server; a thread plays the nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError, TooManyRequests
from minik8s_modules.api.kinds import DEPLOYMENT, NODE, POD, POD_DISRUPTION_BUDGET
from minik8s_modules.controllers.core.pods import is_active, is_ready
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.playing import STUCK, PlayingNode
from tests.support.waiting import until

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[PlayingNode]:
    node = PlayingNode(cluster.admin, ready_s=0.1).start()
    yield node
    node.stop()


def budgeted(cluster: Cluster, space: str, replicas: int, **spec: Any) -> None:
    labels = {"app": "web"}
    declared = {"selector": {"matchLabels": labels}, **spec}
    cluster.admin.create(POD_DISRUPTION_BUDGET, {"metadata": {"name": "web", "namespace": space}, "spec": declared})
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "minik8s/busybox:1"}]}}
    made = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "web", "namespace": space}, "spec": made})
    until(lambda: status(cluster, space).get("currentHealthy") == replicas, PATIENCE_S)


def status(cluster: Cluster, space: str) -> dict[str, Any]:
    return objects.status(cluster.admin.get(POD_DISRUPTION_BUDGET, "web", space))


def pods(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    return [pod for pod in cluster.admin.list(POD, space).items if is_active(pod)]


class Watching(threading.Thread):
    """Notes the least number of ready pods seen."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._space, self._over = cluster, space, threading.Event()
        self.least = 1000
        self.start()

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.is_set():
            self.least = min(self.least, sum(map(is_ready, pods(self._cluster, self._space))))
            time.sleep(0.02)

    def end(self) -> int:
        """Stop; return the least number."""
        self._over.set()
        self.join(10)
        return self.least


def test_a_drain_never_goes_below_the_budget(cluster: Cluster, daemon: Daemon, scheduler: Daemon, node: PlayingNode):
    space = cluster.namespace()
    first, second = cluster.node(), cluster.node()
    budgeted(cluster, space, 4, maxUnavailable=1)
    drained = max(
        (first, second), key=lambda name: sum(p["spec"].get("nodeName") == name for p in pods(cluster, space))
    )
    watching = Watching(cluster, space)
    cluster.server.kubectl("drain", drained, "--ignore-daemonsets", "--force", f"--timeout={PATIENCE_S:.0f}s")
    until(lambda: status(cluster, space).get("currentHealthy") == 4, PATIENCE_S)
    assert watching.end() >= 3
    assert all(pod["spec"]["nodeName"] != drained for pod in pods(cluster, space))
    for name in (first, second):
        cluster.admin.delete(NODE, name)


def evict(cluster: Cluster, pod: dict[str, Any]) -> str:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": dict(zip(("namespace", "name"), objects.key(pod), strict=True)),
    }
    try:
        cluster.admin.create(POD, body, subresource="eviction")
    except TooManyRequests as error:
        return error.causes[0].message
    except StatusError as error:
        return error.reason
    return ""


def test_many_who_evict_at_once_are_let_no_more_than_the_budget(cluster: Cluster, daemon: Daemon, node: PlayingNode):
    space = cluster.namespace()
    budgeted(cluster, space, 8, minAvailable="75%")
    until(lambda: status(cluster, space)["disruptionsAllowed"] == 2, PATIENCE_S)
    # nobody ends the deleted ones: these have a finalizer
    for pod in pods(cluster, space):
        patch = {"metadata": {"finalizers": ["example.com/held"], "labels": {STUCK: "yes"}}}
        cluster.admin.patch(POD, objects.name(pod), space, patch)
    daemon.kill9()
    with ThreadPoolExecutor(8) as pool:
        listed = list(pool.map(lambda pod: evict(cluster, pod), pods(cluster, space)))
    daemon.start()
    assert sum(not each for each in listed) == 2
    assert {each for each in listed if each} == {"The disruption budget web needs 6 healthy pods and has 8 currently"}
    going = [pod for pod in cluster.admin.list(POD, space).items if objects.is_deleting(pod)]
    assert len(going) == 2
    assert all((objects.condition(pod, "DisruptionTarget") or {})["reason"] == "EvictionByEvictionAPI" for pod in going)
    until(lambda: "disruptedPods" not in status(cluster, space), PATIENCE_S)
    for pod in cluster.admin.list(POD, space).items:
        cluster.admin.patch(POD, objects.name(pod), space, {"metadata": {"finalizers": None}})
