"""A mesh of real Envoys beside real Pods: shares, paths, and daemons that are killed under load (S-14 to S-16).

Sidecars come by the Namespace's label, rules by the node. What is asked for is busybox's httpd, in three Pods.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SERVICE,
    SIDECAR_MAPPING,
    SUBSET,
    VIRTUAL_SERVICE,
    Kind,
)
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import INJECT
from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.reconcile.conftest import IMAGE, PILOT, Cluster, running
from tests.support.docker.envoy import envoy_images
from tests.support.gateway_api import definitions
from tests.support.node import SOCKET, command

SPACE, WITHIN, WAIT_S = "shop", 0.04, 180.0
VERSIONS = {"reviews-v1a": "v1a", "reviews-v1b": "v1b", "reviews-v2": "v2"}
SUBSETS = {"reviews-v1": ["reviews-v1a", "reviews-v1b"], "reviews-v2": ["reviews-v2"]}
SERVE = "mkdir -p /www/reviews && cd /www && for i in 0 1 2 9; do echo {} >reviews/$i; done && exec httpd -f -p 9080"
ASK = """
i=0
while [ $i -lt "$1" ]; do wget -q -O - "$2" 2>/dev/null || echo failed; i=$((i + 1)); done
"""
UNTIL_TOLD = """
while [ ! -e /tmp/enough ]; do wget -q -O - "$1" 2>/dev/null || echo failed; done
"""


class Shop:
    """A Service of three Pods in two subsets, and a client; all have sidecars, for which their Namespace asks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        made = {"metadata": {"name": SPACE, "labels": {INJECT: "enabled"}}}
        cluster.admin.create(NAMESPACE, made)
        spec = {"selector": {"app": "reviews"}, "ports": [{"port": 9080}]}
        service = cluster.admin.create(SERVICE, {"metadata": self.meta("reviews"), "spec": spec})
        self.url = f"http://{service['spec']['clusterIP']}:9080/reviews/"
        for name, version in VERSIONS.items():
            self.pod(name, ["sh", "-c", SERVE.format(version)], {"app": "reviews"})
        self.pod("client", ["sleep", "1000000"])
        for name, pods in SUBSETS.items():
            cluster.admin.create(SUBSET, {"metadata": self.meta(name), "spec": {"pods": pods}})
        for name in (*VERSIONS, "client"):
            cluster.until(partial(self.ready, name), WAIT_S)

    @staticmethod
    def meta(name: str, **more: Any) -> JsonObject:
        """Return metadata of an object of the shop."""
        return {"name": name, "namespace": SPACE, **more}

    def pod(self, name: str, words: list[str], marks: dict[str, str] | None = None, **meta: Any) -> None:
        """Create a Pod."""
        pilot = {"ip": f"{self.cluster.node.range}.1", "hostnames": [PILOT]}
        app = {"name": "app", "image": IMAGE, "command": words, "ports": [{"containerPort": 9080}]}
        spec = {"containers": [app], "hostAliases": [pilot], "terminationGracePeriodSeconds": 1}
        self.cluster.admin.create(POD, {"metadata": self.meta(name, labels=marks or {}, **meta), "spec": spec})

    def get(self, name: str) -> JsonObject:
        """Return a Pod."""
        return self.cluster.admin.get(POD, name, SPACE)

    def ready(self, name: str) -> bool:
        """Return whether a Pod is ready."""
        return (objects.condition(self.get(name), "Ready") or {}).get("status") == "True"

    def has(self, kind: Kind, name: str) -> bool:
        """Return whether there is an object."""
        return any(objects.name(each) == name for each in self.cluster.admin.list(kind, SPACE).items)

    def container(self, pod: str, name: str) -> str:
        """Return the id of a container that runs."""
        wanted = {labels.POD_UID: objects.uid(self.get(pod)), labels.CONTAINER: name}
        (found,) = (one["Id"] for one in self.cluster.node.docker.containers(wanted) if one["State"] == "running")
        return str(found)

    def split(self, *subsets: JsonObject, name: str = "reviews", service: str = "reviews") -> None:
        """Declare how requests are split."""
        spec = {"serviceRef": service, "port": 9080, "subsets": list(subsets)}
        made = {"apiVersion": "v1", "kind": "VirtualService", "metadata": self.meta(name), "spec": spec}
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(made))

    def ask(self, number: int, path: str = "0") -> Counter[str]:
        """Return who answered so many requests of the client."""
        words = ("sh", "-c", ASK, "ask", str(number), self.url + path)
        return Counter(command("docker", "exec", self.container("client", "app"), *words).split())

    def has_shares(self, **wanted: float) -> None:
        """Wait for the sidecar to know, then ask a thousand times."""
        expected = {name for name, share in wanted.items() if share}
        self.cluster.until(lambda: set(self.ask(30)) == expected, WAIT_S)
        found = self.ask(1000)
        shares = {name: count / found.total() for name, count in found.items()}
        assert shares == {name: pytest.approx(wanted[name], abs=WITHIN) for name in expected}


class Load:
    """The client asks without a pause, until ``answers`` are asked for."""

    def __init__(self, shop: Shop) -> None:
        self._client = shop.container("client", "app")
        command("docker", "exec", self._client, "rm", "-f", "/tmp/enough")
        words = ["docker", "exec", self._client, "sh", "-c", UNTIL_TOLD, "ask", shop.url + "0"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def answers(self) -> Counter[str]:
        """End, and return who answered."""
        command("docker", "exec", self._client, "touch", "/tmp/enough")
        return Counter(self._process.communicate(timeout=60)[0].split())


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    envoy_images(SOCKET)
    with running() as cluster:
        cluster.create("first")  # the bridge comes with the first Pod, and the pilot listens at its address
        cluster.until(partial(cluster.ready, "first"), WAIT_S)
        cluster.add_pilot()
        yield Shop(cluster)


def test_pods_of_a_service_answer_alike_and_by_weight_from_one_version_to_the_other(shop: Shop):
    shop.has_shares(v1a=1 / 3, v1b=1 / 3, v2=1 / 3)
    for first, second in ((1, 0), (1, 2), (0, 1)):
        shop.split({"name": "reviews-v1", "weight": first}, {"name": "reviews-v2", "weight": second})
        share = first / (first + second) / 2
        shop.has_shares(v1a=share, v1b=share, v2=second / (first + second))


def test_the_weights_of_pods_are_the_originals(shop: Shop):
    shop.split({"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 2})

    def weights() -> list[int]:
        spec = objects.spec(shop.cluster.admin.get(SIDECAR_MAPPING, "mesh", SPACE))
        return sorted(one["weight"] for entries in spec.values() for one in entries)

    shop.cluster.until(lambda: weights() == [1, 1, 4], WAIT_S)


def test_paths_choose_a_subset_and_every_pod_of_it_answers(shop: Shop):
    shop.split({"name": "reviews-v1", "url": "/reviews/1$"}, {"name": "reviews-v2", "url": "^/reviews/[2-4]"})
    shop.cluster.until(lambda: set(shop.ask(30, "1")) == {"v1a", "v1b"}, WAIT_S)
    assert shop.ask(50, "2") == {"v2": 50}
    words = ("wget", "-S", "-O", "-", f"{shop.url}9")
    client = shop.container("client", "app")
    refused = subprocess.run(["docker", "exec", client, *words], capture_output=True, text=True, check=False)
    assert "503 Service Unavailable" in refused.stderr


def test_a_dangling_virtual_service_has_a_reason_and_harms_nobody(shop: Shop):
    shop.split({"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 1})
    shop.split({"name": "reviews-v1", "weight": 1}, name="dangling", service="gone")

    def reasons() -> set[str]:
        status = objects.status(shop.cluster.admin.get(VIRTUAL_SERVICE, "dangling", SPACE))
        return {each["reason"] for each in status.get("conditions") or []}

    shop.cluster.until(lambda: "ServiceNotFound" in reasons(), WAIT_S)
    shop.has_shares(v1a=0.25, v1b=0.25, v2=0.5)
    shop.cluster.admin.delete(VIRTUAL_SERVICE, "dangling", SPACE)


def test_no_request_fails_while_pilot_api_server_and_gateway_are_killed_one_after_the_other(shop: Shop):
    shop.split({"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 0})
    shop.cluster.until(lambda: set(shop.ask(20)) == {"v1a", "v1b"}, WAIT_S)
    load = Load(shop)
    for room in ("mesh", "gateway", "reconcile"):
        shop.cluster.daemons[room].kill()
        shop.cluster.daemons[room].start()
    shop.cluster.server.kill9()
    shop.cluster.server.start()
    # whoever was killed decides again: the change is heard of
    shop.split({"name": "reviews-v1", "weight": 0}, {"name": "reviews-v2", "weight": 1})
    shop.cluster.until(lambda: set(shop.ask(10)) == {"v2"}, WAIT_S)
    found = load.answers()
    assert set(found) == {"v1a", "v1b", "v2"}, found


def test_a_port_that_is_left_out_passes_the_sidecar_by(shop: Shop):
    shop.split({"name": "reviews-v1", "weight": 0}, {"name": "reviews-v2", "weight": 1})
    shop.cluster.until(lambda: set(shop.ask(10)) == {"v2"}, WAIT_S)
    shop.cluster.kubectl("-n", SPACE, "annotate", "pod", "client", "minik8s.io/exclude-outbound-ports=9080")
    # the Service's own way has all three
    shop.cluster.until(lambda: set(shop.ask(30)) == {"v1a", "v1b", "v2"}, WAIT_S)
    shop.cluster.kubectl("-n", SPACE, "annotate", "pod", "client", "minik8s.io/exclude-outbound-ports-")
    shop.cluster.until(lambda: set(shop.ask(30)) == {"v2"}, WAIT_S)


def of_gateway_api(kind: str, name: str, spec: JsonObject, **meta: Any) -> JsonObject:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def test_what_a_plan_says_of_a_gateway_and_its_route_is_what_happens(shop: Shop):
    cluster, parts = shop.cluster, name_of_parts("edge")
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions()))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    http = {"name": "http", "port": 80, "protocol": "HTTP"}
    rule: JsonObject = {"backendRefs": [{"name": "reviews", "port": 9080}]}
    found = [
        of_gateway_api("GatewayClass", "ours", {"controllerName": CONTROLLER}),
        of_gateway_api("Gateway", "edge", {"gatewayClassName": "ours", "listeners": [http]}, namespace=SPACE),
        of_gateway_api("HTTPRoute", "web", {"parentRefs": [{"name": "edge"}], "rules": [rule]}, namespace=SPACE),
    ]
    planned = cluster.plan(objects=found)
    leads = f"Gateway {SPACE}/edge would lead requests to any host, port 80 otherwise: no rule → "
    (told,) = (text for text in planned["messages"] if text.startswith(leads))
    assert {each.rpartition(" ")[0] for each in told.removeprefix(leads).split(", ")} == VERSIONS.keys()
    assert (
        f"Gateway {SPACE}/edge: the controllers would create ServiceAccount, Deployment and Service {parts}"
        in (planned["messages"])
    )
    (pod,) = planned["order"]
    assert pod["pod"].startswith(f"{SPACE}/{parts}-")
    (node,) = planned["nodes"].values()

    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))
    pilot = [{"ip": f"{cluster.node.range}.1", "hostnames": [PILOT]}]  # no server of names is here
    patch = {"spec": {"template": {"spec": {"hostAliases": pilot}}}}
    cluster.until(lambda: shop.has(DEPLOYMENT, parts), WAIT_S)
    cluster.kubectl("-n", SPACE, "patch", "deployment", parts, "-p", json.dumps(patch))
    service = objects.spec(cluster.admin.get(SERVICE, parts, SPACE))
    assert service["clusterIP"] in node["diff"]["services"]["after"]
    assert str(service["ports"][0]["nodePort"]) in node["diff"]["services"]["after"]

    # at the address that its status has, at the port of its listener
    def address() -> str:
        status = objects.status(cluster.admin.get(GATEWAY_KINDS.gateways, "edge", SPACE))
        condition = objects.condition({"status": status}, "Programmed") or {}
        return str(status["addresses"][0]["value"]) if condition.get("status") == "True" else ""

    def answer() -> str:
        asked = ["curl", "-s", "-m", "10", f"http://{cluster.until(address, WAIT_S)}/reviews/0"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()

    cluster.until(lambda: answer() in VERSIONS.values(), WAIT_S)
    assert {answer() for _ in range(30)} == {*VERSIONS.values()}

    gone = cluster.plan(deleted=found[:0:-1])
    assert any(row["name"] == parts and row["kind"] == "Service" for row in gone["objects"])
    (node,) = gone["nodes"].values()
    assert service["clusterIP"] in node["diff"]["services"]["before"]
    assert any(each["action"] == "delete" and each["pod"].startswith(f"{SPACE}/{parts}-") for each in gone["order"])
