"""An editor of a namespace gets no IPv6 address that is another Service's, a Pod's or outside the range of Services.

The attacks: name it in another spelling, second beside an address of one's own, by each way to write, as one of IPv4
that is written as IPv6; take it by a type that claims nothing, and go back. Nor does anybody have nodes forward to
themselves by Endpoints, whatever the spelling, or to a Pod of their own what others ask the cluster's DNS, where
``externalIPs`` are allowed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer, ApiServerProcess, own_server

TAKEN, RANGE = "fd00:96::7", "fd00:96::/112"
SPELLINGS = (TAKEN, "FD00:96::7", "fd00:0096:0:0:0:0:0:7", "fd00:96::0.0.0.7")
NAME_SERVER = "fd00:169:254:20::10"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    folder = tmp_path_factory.mktemp("dual")
    told: JsonObject = {"external_ips": True, "dns": {"listen": NAME_SERVER}}
    with own_server(folder, dual_stack=True, service_cidr_ipv6=RANGE, **told) as server:
        victim = {"metadata": {"name": "victim"}, "spec": {"ports": [{"port": 80}], "clusterIP": TAKEN}}
        assert server.request("POST", "/api/v1/namespaces/default/services", victim).code == 201
        yield server


class Mallory:
    """Whoever may edit in one namespace, and nowhere else."""

    def __init__(self, server: ApiServerProcess) -> None:
        name = f"t-{uuid.uuid4().hex[:8]}"
        assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
        self._server, self._client = server, editor_of(Namespace(server, name))
        self._path = f"/api/v1/namespaces/{name}/services"

    def create(self, name: str, **spec: object) -> Answer:
        """Create a Service."""
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        return self._server.request("POST", self._path, body, client=self._client)

    def patch(self, name: str, **spec: object) -> Answer:
        """Change one."""
        path, body = f"{self._path}/{name}", {"spec": spec}
        return self._server.request("PATCH", path, body, client=self._client, headers=MERGE)


def both(second: str) -> JsonObject:
    first = "100.0.0.99"
    return {"clusterIP": first, "clusterIPs": [first, second], "ipFamilyPolicy": "RequireDualStack"}


def test_an_address_of_another_service_is_taken_in_no_spelling(dual: ApiServerProcess) -> None:
    mallory = Mallory(dual)
    for spelled in SPELLINGS:
        for spec in ({"clusterIP": spelled}, both(spelled)):
            answer = mallory.create("thief", **spec)
            assert answer.code == 422, spelled
            assert "is already allocated to service default/victim" in answer.json["message"]
    assert mallory.create("single").code == 201
    first = mallory.patch("single", sessionAffinity="None").json["spec"]["clusterIP"]
    for spelled in SPELLINGS:
        wanted = {"clusterIPs": [first, spelled], "ipFamilyPolicy": "RequireDualStack"}
        assert mallory.patch("single", **wanted).code == 422
    # one that holds no address may name none
    assert mallory.create("away", type="ExternalName", externalName="example.org", clusterIPs=[TAKEN]).code == 422
    assert mallory.create("away", type="ExternalName", externalName="example.org").code == 201
    assert mallory.patch("away", type="ClusterIP", externalName=None, clusterIP=TAKEN).code == 422
    # what was refused holds nothing
    assert mallory.create("mine", **both("fd00:96::8")).code == 201


@pytest.mark.parametrize("address", ["fd00:10:244::7", "::1", "fe80::1", "fe80::1%eth0", "::ffff:100.0.0.9", "ff02::1"])
def test_an_address_outside_the_range_is_given_to_nobody(dual: ApiServerProcess, address: str) -> None:
    mallory = Mallory(dual)
    for spec in ({"clusterIP": address}, both(address)):
        assert mallory.create("outside", **spec).code == 422


@pytest.mark.parametrize(
    "address", ["::1", "0:0::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:127.0.0.1", "::FFFF:7f00:1"]
)
def test_endpoints_lead_to_no_nodes_loopback(dual: ApiServerProcess, address: str) -> None:
    path, name = "/api/v1/namespaces/default/endpoints", f"t-{uuid.uuid4().hex[:8]}"
    good, bad = ([{"addresses": [{"ip": each}], "ports": [{"port": 80}]}] for each in ("2001:db8::7", address))
    body: JsonObject = {"metadata": {"name": name}}
    assert dual.request("POST", path, {**body, "subsets": bad}).code == 422
    assert dual.request("POST", path, {**body, "subsets": good}).code == 201
    assert dual.request("PATCH", f"{path}/{name}", {"subsets": bad}, headers=MERGE).code == 422
    assert dual.request("PUT", f"{path}/{name}", {**body, "subsets": bad}).code == 422
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    told = {**body, "addressType": "IPv6", "endpoints": [{"addresses": [address]}], "ports": [{"port": 80}]}
    assert dual.request("POST", slices, told).code == 422


@pytest.mark.parametrize("spelled", [NAME_SERVER, "FD00:169:254:20::10", "fd00:0169:254:20:0:0:0.0.0.16"])
def test_the_clusters_dns_is_no_external_address(dual: ApiServerProcess, spelled: str) -> None:
    mallory = Mallory(dual)
    ports = [{"port": 53, "protocol": "UDP"}]
    assert mallory.create("dns", ports=ports, ipFamilies=["IPv6"], externalIPs=["2001:db8::9"]).code == 201
    answers = [
        mallory.create("taken", ports=ports, ipFamilies=["IPv6"], externalIPs=["2001:db8::8", spelled]),
        mallory.patch("dns", externalIPs=[spelled]),
    ]
    assert [answer.code for answer in answers] == [403, 403]
    assert all("is the address of the cluster's DNS" in answer.json["message"] for answer in answers)


@pytest.mark.parametrize("spelled", [NAME_SERVER, "FD00:169:254:20::10", "fd00:0169:254:20:0:0:0.0.0.16"])
def test_no_pod_asks_for_a_port_of_the_clusters_dns(dual: ApiServerProcess, spelled: str) -> None:
    for field, more in (("containers", {}), ("initContainers", {"restartPolicy": "Always"})):
        for address, number, code in ((spelled, 53, 403), (spelled, 8053, 201), ("2001:db8::9", 53, 201)):
            port = {"containerPort": 53, "hostPort": number, "protocol": "UDP", "hostIP": address}
            one = {"name": "dns", "image": "i", "ports": [port], **more}
            spec = {"containers": [{"name": "app", "image": "i"}], field: [one]}
            body = {"metadata": {"generateName": "p-"}, "spec": spec}
            answer = dual.request("POST", "/api/v1/namespaces/default/pods", body)
            assert answer.code == code, answer.body
            assert ("is the address of the cluster's DNS" in str(answer.json.get("message"))) is (code == 403)
