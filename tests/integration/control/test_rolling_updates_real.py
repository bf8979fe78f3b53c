"""RollingUpdates on the real API server: pilot and controllers with their own rights, killed one after the other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE, SERVICE, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS
from tests.integration.control.conftest import Cluster, Daemon
from tests.integration.control.test_pilot_real import Pilot, Sidecar
from tests.support.playing import PlayingNode
from tests.support.waiting import until

TOTAL = 4
PATIENCE_S = 120.0


class Node(PlayingNode):
    """Gives each Pod an address of its own, a new one to each that comes."""

    numbers = itertools.count(1)

    def begin(self, pod: JsonObject) -> JsonObject:
        """Return the next."""
        ip = f"10.244.7.{next(self.numbers)}"
        return {"podIP": ip, "podIPs": [{"ip": ip}]} if objects.name(pod).startswith("web") else {}


class Shop:
    """A Service of some Pods, a client with a sidecar, and who replaces the Pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.pilot = cluster, Pilot(cluster)
        self.namespace = self.pilot.namespace
        admin, meta = cluster.admin, {"namespace": self.namespace}
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        admin.create(SERVICE, {"metadata": {"name": "web", **meta}, "spec": spec})
        admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot", **meta}})
        app = {"serviceAccountName": "robot", "containers": [{"name": "app", "image": "a"}]}
        admin.create(POD, {"metadata": {"name": "client", **meta}, "spec": with_sidecar(app)})
        for number in range(TOTAL):
            named = {"name": f"web-{number}", "labels": {"app": "web"}, **meta}
            admin.create(POD, {"metadata": named, "spec": self.spec("web:1")})

    @staticmethod
    def spec(image: str) -> JsonObject:
        """Return the spec of a Pod."""
        return {"containers": [{"name": "app", "image": image, "ports": [{"containerPort": 8080}]}]}

    def update(self, name: str, image: str, alive: int) -> None:
        """Have the Pods replaced."""
        spec = {"serviceRef": "web", "port": 80, "minimumAlive": alive, "newPodSpec": self.spec(image)}
        meta = {"name": name, "namespace": self.namespace}
        self.cluster.admin.create(ROLLING_UPDATE, {"metadata": meta, "spec": spec})

    def want(self, name: str, state: str) -> None:
        """Have an update paused, aborted, undone or gone on with."""
        self.cluster.admin.patch(ROLLING_UPDATE, name, self.namespace, {"spec": {"state": state}})

    def status(self, name: str) -> JsonObject:
        """Return how far an update is."""
        return objects.status(self.cluster.admin.get(ROLLING_UPDATE, name, self.namespace))

    def images(self) -> list[str]:
        """Return the images of the Pods that are ready."""
        pods = [pod for pod in self.cluster.admin.list(POD, self.namespace).items if objects.name(pod) != "client"]
        return sorted(pod["spec"]["containers"][0]["image"] for pod in pods if objects.condition(pod, "Ready"))

    def addresses(self) -> set[str]:
        """Return the addresses of the Pods that are not being deleted."""
        pods = [pod for pod in self.cluster.admin.list(POD, self.namespace).items if not objects.is_deleting(pod)]
        return {str(objects.status(pod).get("podIP")) for pod in pods}

    def served(self) -> set[str]:
        """Return the addresses of the Pods behind the Service."""
        pods = [pod for pod in self.cluster.admin.list(POD, self.namespace).items if objects.labels(pod)]
        return {str(objects.status(pod).get("podIP")) for pod in pods if objects.name(pod) != "client"}


class Envoy:
    """The client's sidecar: it takes what it is told, connects again when its pilot ends, and can be held back."""

    def __init__(self, pilot: Pilot) -> None:
        self.pilot, self.addresses = pilot, set[str]()
        self.history: list[set[str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.over:
            try:
                self._follow(self.pilot.sidecar(self.pilot.token("client")))
            except (grpc.RpcError, grpc.FutureTimeoutError, AssertionError, StopIteration):
                continue  # its pilot was killed

    def _follow(self, sidecar: Sidecar) -> None:
        name = f"web.{self.pilot.namespace}:80"
        sidecar.ask(CLUSTER)
        sidecar.next_response()
        sidecar.ask(ENDPOINTS, name)
        while not self.over:
            response = sidecar.read()
            for resource in response.resources if response.type_url == ENDPOINTS else ():
                assignment = endpoint_pb2.ClusterLoadAssignment()
                resource.resource.Unpack(assignment)
                self.addresses = {
                    each.endpoint.address.socket_address.address
                    for group in assignment.endpoints
                    for each in group.lb_endpoints
                }
                self.history.append(self.addresses)
            self.may_answer.wait()
            sidecar.take(response)


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Shop]:
    node = Node(cluster.admin).start()
    made = Shop(cluster)
    yield made
    made.pilot.daemon.stop()
    node.stop()


@pytest.fixture
def controllers(cluster: Cluster) -> Iterator[Daemon]:
    daemon = cluster.daemon("controllers").start()
    yield daemon
    daemon.stop()


@pytest.fixture
def envoy(shop: Shop) -> Iterator[Envoy]:
    made = Envoy(shop.pilot)
    yield made
    made.over = True


def test_no_pod_goes_before_the_sidecar_has_said_that_it_sends_it_nothing(
    shop: Shop, controllers: Daemon, envoy: Envoy
):
    assert controllers.process is not None
    until(lambda: len(envoy.addresses) == TOTAL, PATIENCE_S)
    before, begun = shop.addresses(), len(envoy.history)
    envoy.may_answer.clear()
    shop.update("to-2", "web:2", alive=3)
    until(lambda: len(envoy.addresses) == TOTAL - 1, PATIENCE_S)
    withheld = shop.status("to-2")["withheld"]
    until(lambda: reason(shop, "to-2") == "WaitsForSidecars", PATIENCE_S)
    assert shop.addresses() == before, "it was deleted before the sidecar had answered"
    assert len(withheld) == 1
    envoy.may_answer.set()
    until(lambda: shop.status("to-2")["phase"] == "Finished", PATIENCE_S)
    assert shop.images() == ["web:2"] * TOTAL
    assert all(len(each) >= TOTAL - 1 for each in envoy.history[begun:]), envoy.history


def test_pilot_and_controllers_killed_again_and_again_it_is_finished_and_undone(
    shop: Shop, controllers: Daemon, envoy: Envoy
):
    until(lambda: len(envoy.addresses) == TOTAL, PATIENCE_S)
    shop.update("to-2", "web:2", alive=2)
    for image, state in (("web:2", "Running"), ("web:1", "Undone")):
        shop.want("to-2", state)
        for number in range(4):
            batch = shop.status("to-2").get("batch") or 0
            until(lambda: shop.images() == [image] * TOTAL or moved(shop, batch), PATIENCE_S)  # noqa: B023 - at once
            daemon = (controllers, shop.pilot.daemon)[number % 2]
            daemon.kill9()
            daemon.start()
        phase = "Finished" if state == "Running" else state
        until(lambda: shop.status("to-2")["phase"] == phase, PATIENCE_S)  # noqa: B023 - at once
        assert shop.images() == [image] * TOTAL


def test_deleted_in_the_middle_it_leaves_every_pod_as_one_of_both(shop: Shop, controllers: Daemon, envoy: Envoy):
    until(lambda: len(envoy.addresses) == TOTAL, PATIENCE_S)
    shop.update("to-2", "web:2", alive=1)
    until(lambda: len(shop.images()) < TOTAL, PATIENCE_S)
    shop.cluster.admin.delete(ROLLING_UPDATE, "to-2", shop.namespace)
    until(lambda: is_gone(shop, "to-2"), PATIENCE_S)
    until(lambda: len(shop.images()) == TOTAL, PATIENCE_S)
    until(lambda: len(envoy.addresses) == TOTAL, PATIENCE_S)
    assert controllers.process is not None


def test_it_is_paused_resumed_aborted_and_resumed_again(shop: Shop, controllers: Daemon, envoy: Envoy):
    """Wherever it stops, all Pods are there, each as one of both, and all of them get requests."""
    assert controllers.process is not None
    until(lambda: len(envoy.addresses) == TOTAL, PATIENCE_S)
    envoy.may_answer.clear()  # which holds the batch that has begun
    shop.update("to-2", "web:2", alive=TOTAL - 1)
    for state in ("Paused", "Aborted"):
        until(lambda: reason(shop, "to-2") == "WaitsForSidecars", PATIENCE_S)
        shop.want("to-2", state)
        envoy.may_answer.set()
        until(lambda: shop.status("to-2")["phase"] == state, PATIENCE_S)  # noqa: B023 - at once
        until(lambda: len(shop.images()) == TOTAL and not shop.status("to-2").get("withheld"), PATIENCE_S)
        until(lambda: envoy.addresses == shop.served(), PATIENCE_S)
        assert shop.images().count("web:1") >= TOTAL // 2
        envoy.may_answer.clear()
        shop.want("to-2", "Running")
    envoy.may_answer.set()
    until(lambda: shop.status("to-2")["phase"] == "Finished", PATIENCE_S)
    assert shop.images() == ["web:2"] * TOTAL


def reason(shop: Shop, name: str) -> str:
    return str((objects.condition({"status": shop.status(name)}, "Progressing") or {}).get("reason"))


def moved(shop: Shop, batch: int) -> bool:
    return (shop.status("to-2").get("batch") or 0) > batch


def is_gone(shop: Shop, name: str) -> bool:
    try:
        shop.cluster.admin.get(ROLLING_UPDATE, name, shop.namespace)
    except NotFound:
        return True
    return False
