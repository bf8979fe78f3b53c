"""Endpoints of IPv6, of Pods and of a user, from a real API server and the controllers as a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Cluster, pod
from tests.support.apiserver import own_server
from tests.support.waiting import until

SERVICE_NAME = "kubernetes.io/service-name"
PORTS = [{"port": 80, "protocol": "TCP", "targetPort": 80}]


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster of both families with its controllers."""
    folder = tmp_path_factory.mktemp("dual")
    with own_server(folder, dual_stack=True, service_cidr_ipv6="fd00:96::/112") as server:
        made = Cluster(folder, server)
        daemon = made.daemon("controllers").start()
        yield made
        daemon.stop()
        made.admin.close()


def service(name: str, space: str, **spec: object) -> JsonObject:
    """Return a Service."""
    return {"metadata": {"name": name, "namespace": space}, "spec": {"ports": PORTS, **spec}}


def slices(client: ApiClient, space: str, name: str) -> list[tuple[str, list[str]]]:
    """Return the address type and addresses of a Service's slices."""
    own = [one for one in client.list(ENDPOINT_SLICE, space).items if objects.labels(one)[SERVICE_NAME] == name]
    return sorted((one["addressType"], [each["addresses"][0] for each in one["endpoints"]]) for one in own)


def test_endpoints_of_a_service_hold_the_addresses_of_its_first_family(dual: Cluster) -> None:
    client, space, node = dual.admin, dual.namespace(), dual.node()
    body = pod("web", space, nodeName=node)
    client.create(POD, {**body, "metadata": {**body["metadata"], "labels": {"app": "web"}}})
    both = {"selector": {"app": "web"}, "ipFamilyPolicy": "RequireDualStack"}
    client.create(SERVICE, service("alone", space, selector={"app": "web"}, ipFamilies=["IPv6"]))
    client.create(SERVICE, service("first", space, **both, ipFamilies=["IPv6", "IPv4"]))
    client.create(SERVICE, service("second", space, **both))
    ready = {"type": "Ready", "status": "True"}
    addresses = {"podIP": "10.244.1.7", "podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00:244:1::7"}]}
    client.patch(POD, "web", space, {"status": {**addresses, "conditions": [ready]}}, subresource="status")
    for name, address in {"alone": "fd00:244:1::7", "first": "fd00:244:1::7", "second": "10.244.1.7"}.items():
        until(lambda: _told(client, space, name) == [address])  # noqa: B023 - asked at once
    assert slices(client, space, "first") == [("IPv4", ["10.244.1.7"]), ("IPv6", ["fd00:244:1::7"])]
    shown = dual.server.kubectl("get", "endpoints", "alone", "-n", space, "--no-headers").stdout
    assert "[fd00:244:1::7]:80" in shown


def test_what_a_user_wrote_has_a_slice_for_each_family(dual: Cluster) -> None:
    client, space = dual.admin, dual.namespace()
    client.create(SERVICE, service("db", space))
    addresses = [{"ip": "192.0.2.7"}, {"ip": "2001:db8::7"}]
    subset = {"addresses": addresses, "ports": [{"port": 5432, "protocol": "TCP"}]}
    client.create(ENDPOINTS, {"metadata": {"name": "db", "namespace": space}, "subsets": [subset]})
    until(lambda: slices(client, space, "db") == [("IPv4", ["192.0.2.7"]), ("IPv6", ["2001:db8::7"])])
    later = {"subsets": [{**subset, "addresses": addresses[1:]}]}
    client.patch(ENDPOINTS, "db", space, later)
    until(lambda: slices(client, space, "db") == [("IPv6", ["2001:db8::7"])])


def _told(client: ApiClient, space: str, name: str) -> list[str]:
    found = [one for one in client.list(ENDPOINTS, space).items if objects.name(one) == name]
    subsets = [each for one in found for each in one.get("subsets") or []]
    return [each["ip"] for one in subsets for each in one.get("addresses") or []]
