"""The pilot as a process with its own identity: real TLS, tokens of Pods, roles and Lease; killed, it is followed."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD, SERVICE, SERVICE_ACCOUNT, SIDECAR_MAPPING, SUBSET
from minik8s_modules.api.kinds import VIRTUAL_SERVICE as VIRTUAL
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, ROUTES
from tests.integration.control.conftest import Cluster, Daemon
from tests.support.etcd import free_port
from tests.support.waiting import until

LONG_S = 60.0
IPS = {"a": "10.244.9.1", "b": "10.244.9.2"}


class Pilot:
    """The daemon, and the shop that it decides on."""

    def __init__(self, cluster: Cluster, address: str = "127.0.0.1") -> None:
        self.cluster, self.port = cluster, free_port()
        self.namespace = cluster.namespace()
        made = cluster.server.authority.issue("pilot", "minik8s-pilot", addresses=(address,))
        self._config = cluster.folder / f"pilot-{self.port}.yml"  # its own: two may start at once
        configuration = {
            "kubeconfig": str(cluster.kubeconfig("pilot")),
            "listen": f"{address}:{self.port}",
            "tls": {"cert": str(made.cert), "key": str(made.key)},
            "metrics": {"listen": f"127.0.0.1:{free_port()}"},
        }
        self._config.write_text(yaml.safe_dump(configuration))
        self.daemon = self.start()

    def start(self) -> Daemon:
        """Start a process of it."""
        return Daemon("mesh", self._config).start()

    def declare(self) -> None:
        """Make a Service of two Pods, a subset of each, and a Pod of a client."""
        admin, meta = self.cluster.admin, {"namespace": self.namespace}
        admin.create(SERVICE, {"metadata": {"name": "reviews", **meta}, "spec": {"ports": [{"port": 9080}]}})
        points = [
            {"addresses": [ip], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": name}}
            for name, ip in IPS.items()
        ]
        labels = {"kubernetes.io/service-name": "reviews"}
        admin.create(
            ENDPOINT_SLICE,
            {
                "metadata": {"name": "reviews-1", "labels": labels, **meta},
                "addressType": "IPv4",
                "ports": [{"port": 8080, "protocol": "TCP"}],
                "endpoints": points,
            },
        )
        for name in IPS:
            admin.create(SUBSET, {"metadata": {"name": name, **meta}, "spec": {"pods": [name]}})
        admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot", **meta}})
        spec = {"serviceAccountName": "robot", "containers": [{"name": "app", "image": "a"}]}
        admin.create(POD, {"metadata": {"name": "client", **meta}, "spec": spec})

    def split(self, **weights: int) -> None:
        """Split the requests of the Service."""
        shares = [{"name": name, "weight": weight} for name, weight in weights.items()]
        spec = {"serviceRef": "reviews", "port": 9080, "subsets": shares}
        meta = {"name": "reviews", "namespace": self.namespace}
        virtual = {"apiVersion": "v1", "kind": "VirtualService", "metadata": meta, "spec": spec}
        self.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(virtual))

    def token(self, pod: str = "", namespace: str = "") -> str:
        """Return a token of the service account, of a Pod if it is named."""
        path = f"/api/v1/namespaces/{namespace or self.namespace}/serviceaccounts/robot/token"
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}} if pod else {}
        answer = self.cluster.server.request("POST", path, {"spec": {"expirationSeconds": 900, **bound}})
        assert answer.code == 201, answer.body
        return str(answer.json["status"]["token"])

    def sidecar(self, token: str, port: int = 0) -> Sidecar:
        """Return a sidecar that is connected, to another pilot if its port is given."""
        ca = self.cluster.server.authority.ca.read_bytes()
        return Sidecar(grpc.secure_channel(f"127.0.0.1:{port or self.port}", grpc.ssl_channel_credentials(ca)), token)


class Sidecar:
    """Envoy's side of a stream, by gRPC's own client."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        grpc.channel_ready_future(channel).result(timeout=LONG_S)
        self._more: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        headers = (("authorization", f"Bearer {token}"),)
        self._responses = stub.DeltaAggregatedResources(iter(self._more.get, None), metadata=headers, timeout=LONG_S)

    def ask(self, kind: str, *names: str, **more: Any) -> None:
        """Ask for names of a type, or for all."""
        self._more.put(discovery_pb2.DeltaDiscoveryRequest(type_url=kind, resource_names_subscribe=names, **more))

    def next_response(self) -> Any:
        """Return the next response, and take it."""
        response = self.read()
        self.take(response)
        return response

    def read(self) -> Any:
        """Return the next response."""
        return next(self._responses)

    def take(self, response: Any) -> None:
        """Say that a response is taken."""
        self._more.put(discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce))

    def leave(self) -> None:
        """End the stream."""
        self._responses.cancel()

    def weights(self) -> dict[str, int]:
        """Return the weights by address of the next response, which is of endpoints."""
        (resource,) = self.next_response().resources
        assignment = endpoint_pb2.ClusterLoadAssignment()
        assert resource.resource.Unpack(assignment)
        return {
            each.endpoint.address.socket_address.address: each.load_balancing_weight.value
            for group in assignment.endpoints
            for each in group.lb_endpoints
        }


@pytest.fixture(scope="module")
def pilot(cluster: Cluster) -> Iterator[Pilot]:
    made = Pilot(cluster)
    made.declare()
    yield made
    made.daemon.stop()


def conditions(pilot: Pilot) -> dict[str, str]:
    status = objects.status(pilot.cluster.admin.get(VIRTUAL, "reviews", pilot.namespace))
    return {each["type"]: each["reason"] for each in status.get("conditions") or []}


def shown(pilot: Pilot) -> list[int]:
    found = pilot.cluster.admin.list(SIDECAR_MAPPING, pilot.namespace).items
    return [entry["weight"] for each in found for entries in objects.spec(each).values() for entry in entries]


def test_a_sidecar_is_told_of_its_namespace_and_of_each_change(pilot: Pilot):
    sidecar, name = pilot.sidecar(pilot.token("client")), f"reviews.{pilot.namespace}:9080"
    sidecar.ask(CLUSTER)
    assert [each.name for each in sidecar.next_response().resources] == [name]
    sidecar.ask(ENDPOINTS, name)
    assert sidecar.weights() == {IPS["a"]: 1, IPS["b"]: 1}
    pilot.split(a=1, b=3)
    assert sidecar.weights() == {IPS["a"]: 1, IPS["b"]: 3}
    until(lambda: shown(pilot) == [1, 3])
    until(lambda: conditions(pilot) == {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs"})


def test_a_token_of_no_pod_opens_nothing(pilot: Pilot):
    for token in ("", "x", pilot.token()):
        with pytest.raises(grpc.RpcError) as refused:
            pilot.sidecar(token).next_response()
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_pilot_that_is_killed_is_followed_by_one_that_decides_the_same(pilot: Pilot):
    pilot.daemon.kill9()
    pilot.split(a=1, b=0)
    pilot.daemon = pilot.start()
    sidecar, name = pilot.sidecar(pilot.token("client")), f"reviews.{pilot.namespace}:9080"
    sidecar.ask(ENDPOINTS, name)
    assert sidecar.weights() == {IPS["a"]: 1}
    until(lambda: shown(pilot) == [1, 0])


def test_of_two_pilots_both_tell_the_same_and_one_writes_until_it_is_killed(pilot: Pilot, cluster: Cluster):
    """Each serves its own sidecars; whoever does not lead takes over what is written down."""
    other = Pilot(cluster)  # a pilot is the whole cluster's
    try:
        name = f"reviews.{pilot.namespace}:9080"
        both = [pilot.sidecar(pilot.token("client"), port) for port in (pilot.port, other.port)]
        found = []
        for each in both:
            each.ask(ROUTES, name)
            (resource,) = each.next_response().resources
            found.append((resource.name, resource.version))
            each.ask(ENDPOINTS, name)
            each.next_response()
        assert found[0] == found[1]
        for first, second in ((2, 5), (7, 1)):
            pilot.split(a=first, b=second)
            assert [each.weights() for each in both] == [{IPS["a"]: first, IPS["b"]: second}] * 2
            until(lambda: shown(pilot) == [first, second], LONG_S)  # noqa: B023 - at once
        pilot.daemon.kill9()  # which leads, as it had written before the other came
        pilot.split(a=3, b=4)
        assert both[1].weights() == {IPS["a"]: 3, IPS["b"]: 4}
        until(lambda: shown(pilot) == [3, 4], LONG_S)
        pilot.daemon = pilot.start()
    finally:
        other.daemon.stop()
