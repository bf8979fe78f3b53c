"""A Deployment is rolled out under load while controllers and API server are killed: no request fails."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import DEPLOYMENT, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.services.conftest import READY, SERVER, Cluster, answers, fetch

# as Kubernetes asks of servers: they go on accepting until the rules have left, which takes as long as the API is away
LASTING = f"trap '' TERM; {SERVER}"
# what loses requests on Kubernetes
ENDING_AT_ONCE = f"trap 'kill $!; exit 0' TERM; {SERVER.replace('exec ', '')} & wait; wait"
REPLICAS = 3
SURGE_ONLY = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def template(version: str) -> JsonObject:
    """Return the template of a server that answers with its version."""
    container = {
        "name": "app",
        "image": "minik8s/busybox:1",
        "command": ["sh", "-c", LASTING],
        "env": [{"name": "POD", "value": version}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": READY,
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 300}
    return {"metadata": {"labels": {"app": "shop", "version": version}}, "spec": spec}


def deployment() -> JsonObject:
    """Return the Deployment."""
    selector = {"matchLabels": {"app": "shop"}}
    spec = {"replicas": REPLICAS, "selector": selector, "strategy": SURGE_ONLY, "template": template("one")}
    return {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec}


def ready(cluster: Cluster, version: str) -> int:
    """Return how many pods of a version are Ready."""
    pods = cluster.admin.list(POD, "default", label_selector=f"app=shop,version={version}").items
    conditions = [one for pod in pods for one in pod["status"].get("conditions") or []]
    return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def replaced(cluster: Cluster) -> bool:
    """Return whether only new pods are to stay, and all of them are ready."""
    pods = cluster.admin.list(POD, "default", label_selector="app=shop").items
    versions = [pod["metadata"]["labels"]["version"] for pod in pods if not objects.is_deleting(pod)]
    return versions == ["two"] * REPLICAS and ready(cluster, "two") == REPLICAS


def remove(cluster: Cluster) -> None:
    """Delete the Deployment and all its pods at once."""
    cluster.admin.delete(DEPLOYMENT, "shop", "default")
    cluster.admin.delete(SERVICE, "shop", "default")

    def gone() -> bool:
        pods = cluster.admin.list(POD, "default", label_selector="app=shop").items
        for pod in pods:
            with suppress(NotFound):
                cluster.admin.delete(POD, objects.name(pod), "default", grace_s=0)
        return not pods

    cluster.until(gone, 60)


@contextmanager
def load(address: str) -> Iterator[Counter[str]]:
    """Ask without a pause, one connection a request; give who answered."""
    seen, over = Counter[str](), threading.Event()

    def client() -> None:
        while not over.is_set():
            seen[fetch(address, timeout_s=20)] += 1

    thread = threading.Thread(target=client)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_killed_controllers_and_api_server_in_the_middle_of_a_rollout_fail_no_request(cluster: Cluster) -> None:
    cluster.admin.create(DEPLOYMENT, deployment())
    address = cluster.service("shop", {"app": "shop"})
    cluster.until(lambda: ready(cluster, "one") == REPLICAS and len(cluster.endpoints("shop")) == REPLICAS, 60)
    cluster.until(lambda: set(answers(address, 5)) == {"one"}, 60)
    controllers = cluster.daemons["controllers"]
    with load(address) as seen:
        cluster.admin.patch(DEPLOYMENT, "shop", "default", {"spec": {"template": template("two")}})
        # an old pod is deleted as soon as a new one is ready: each death falls into that
        cluster.until(lambda: ready(cluster, "two") == 1, 60)
        controllers.kill()
        controllers.start()
        cluster.until(lambda: ready(cluster, "two") == 2, 60)
        cluster.server.kill9()
        cluster.server.start()
        cluster.until(lambda: replaced(cluster), 90)
        cluster.until(lambda: set(answers(address, 5)) == {"two"}, 120)
    assert set(seen) == {"one", "two"}, seen
    remove(cluster)


@pytest.fixture
def with_stop_delay(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a reconciler that delays the signals of deleted pods."""
    reconciler = cluster.daemons["reconcile"]
    before = reconciler.config.read_text()

    def restart(text: str) -> None:
        reconciler.stop()
        reconciler.config.write_text(text)
        reconciler.start()

    restart(yaml.safe_dump({**yaml.safe_load(before), "pod_stop_delay_s": 15}))
    try:
        yield cluster
    finally:
        restart(before)


def test_a_rollout_restart_of_servers_that_end_at_once_fails_no_request(with_stop_delay: Cluster) -> None:
    cluster = with_stop_delay
    body = deployment()
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", ENDING_AT_ONCE]
    cluster.admin.create(DEPLOYMENT, body)
    address = cluster.service("shop", {"app": "shop"})
    cluster.until(lambda: ready(cluster, "one") == REPLICAS and len(cluster.endpoints("shop")) == REPLICAS, 60)
    cluster.until(lambda: set(answers(address, 5)) == {"one"}, 60)
    old = {pod["metadata"]["uid"] for pod in cluster.admin.list(POD, "default", label_selector="app=shop").items}
    with load(address) as seen:
        # as kubectl rollout restart does
        restarted = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
        cluster.admin.patch(DEPLOYMENT, "shop", "default", {"spec": {"template": restarted}})

        def over() -> bool:
            pods = cluster.admin.list(POD, "default", label_selector="app=shop").items
            uids = {pod["metadata"]["uid"] for pod in pods}
            return len(uids) == REPLICAS and not uids & old and ready(cluster, "one") == REPLICAS

        cluster.until(over, 120)
    assert set(seen) == {"one"}, seen
    remove(cluster)
