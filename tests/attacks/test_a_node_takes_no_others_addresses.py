"""A node's credentials give it the range of Pod addresses that is claimed for it, and claims for its own Pods.

The attacks: say a range of another family, which ended the network of all other nodes; say or claim one that contains
others'; claim an address of one's own for a Pod of another node, so that policies let the attacker in as that Pod;
tell addresses of the load balancers' pool, or have a range around it, which took them from all Services.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess, own_server

CLAIMS, ADDRESSES = "/apis/minik8s.io/v1/podcidrs", "/apis/minik8s.io/v1/podaddresses"


class Mallory:
    """A node ``name`` that has a Pod, as another one has."""

    def __init__(self, namespace: Namespace) -> None:
        self.server, self.namespace = namespace.server, namespace
        self.name, self.victim = f"n1-{namespace.name}", f"n2-{namespace.name}"
        self.certificate = self.server.identity(f"system:node:{self.name}", "system:nodes")
        self.number = int(namespace.name[2:], 16) % 250
        self.uids = {}
        for name, node in (("mine", self.name), ("other", self.victim)):
            made = self.server.request("POST", namespace.path("pods"), pod(name, nodeName=node))
            assert made.code == 201, made.body
            self.uids[name] = made.json["metadata"]["uid"]

    def code(self, method: str, path: str, body: Any = None) -> int:
        """Return the status of a request as the node."""
        return self.server.request(method, path, body, client=self.certificate).code

    def claim(self, cidr: str, node: str) -> tuple[str, dict[str, Any]]:
        """Return the name of a claim, and the claim."""
        name = cidr.replace("/", "-")
        return name, {"metadata": {"name": name}, "spec": {"cidr": cidr, "nodeName": node}}


@pytest.fixture
def mallory(namespace: Namespace) -> Mallory:
    return Mallory(namespace)


def test_a_node_says_no_range_but_its_own(mallory: Mallory) -> None:
    own, others = f"10.81.{mallory.number}.0/24", f"10.82.{mallory.number}.0/24"
    names = []
    for cidr, node in ((own, mallory.name), (others, mallory.victim)):
        name, claim = mallory.claim(cidr, node)
        assert mallory.server.request("POST", CLAIMS, claim).code == 201
        names.append(name)
    meta = {"name": mallory.name}
    for cidr in (f"fd00:{mallory.number:x}::/64", others, "10.82.0.0/16", "10.0.0.0/8"):
        for spec in ({"podCIDR": cidr}, {"podCIDRs": [cidr]}, {"podCIDR": cidr, "podCIDRs": [cidr]}):
            assert mallory.code("POST", "/api/v1/nodes", {"metadata": meta, "spec": spec}) == 403, spec
    assert mallory.code("POST", "/api/v1/nodes", {"metadata": meta}) == 201
    path, merge = f"/api/v1/nodes/{mallory.name}", {"Content-Type": "application/merge-patch+json"}
    for cidr, code in ((others, 403), ("fd00:9::/64", 403), (own, 200)):
        body = {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}
        patched = mallory.server.request("PATCH", path, body, client=mallory.certificate, headers=merge)
        assert patched.code == code, (cidr, patched.body)
    for name in names:
        mallory.server.request("DELETE", f"{CLAIMS}/{name}")
    mallory.server.request("DELETE", path)


def test_a_node_claims_no_range_that_contains_anothers(mallory: Mallory) -> None:
    name, claim = mallory.claim(f"10.83.{mallory.number}.0/24", mallory.victim)
    assert mallory.server.request("POST", CLAIMS, claim).code == 201
    for wide in ("10.83.0.0/16", f"10.83.{mallory.number}.128/25"):
        assert mallory.code("POST", CLAIMS, mallory.claim(wide, mallory.name)[1]) == 403
    mallory.server.request("DELETE", f"{CLAIMS}/{name}")


def test_a_node_claims_no_address_for_anothers_pod(mallory: Mallory) -> None:
    address = f"10.84.{mallory.number}.5"
    for name, uid, code in (
        ("other", mallory.uids["other"], 403),
        ("mine", mallory.uids["other"], 403),
        ("nobody", mallory.uids["other"], 403),
        ("mine", mallory.uids["mine"], 201),
    ):
        said = {"podUID": uid, "podName": name, "podNamespace": mallory.namespace.name, "nodeName": mallory.name}
        assert mallory.code("POST", ADDRESSES, {"metadata": {"name": address}, "spec": said}) == code, said
    mallory.server.request("DELETE", f"{ADDRESSES}/{address}")


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server that is told of ranges and of a pool."""
    ranges = {"cluster_cidr": "10.0.0.0/8", "cluster_cidr_ipv6": "fd00::/32", "dual_stack": True}
    pool = {"addresses": ["192.0.2.50-192.0.2.60"]}
    with own_server(tmp_path_factory.mktemp("pooled"), **ranges, load_balancer=pool) as server:
        yield server


def test_a_node_takes_the_pool_from_nobody(pooled: ApiServerProcess) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert pooled.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    mallory = Mallory(Namespace(pooled, name))
    path, merge = f"/api/v1/nodes/{mallory.name}", {"Content-Type": "application/merge-patch+json"}
    own = {"type": "InternalIP", "address": "192.0.2.1"}
    told = [{"type": "ExternalIP", "address": f"192.0.2.{number}"} for number in range(50, 61)]
    around = ("192.0.2.0/24", "192.0.0.0/8", "0.0.0.0/0", "::/0")
    for cidr in around:
        assert mallory.code("POST", CLAIMS, mallory.claim(cidr, mallory.name)[1]) == 403, cidr
    mine = f"10.85.{mallory.number}.0/24"
    assert mallory.code("POST", CLAIMS, mallory.claim(mine, mallory.name)[1]) == 201
    node = {"metadata": {"name": mallory.name}}
    for status in ({"addresses": [own, *told]}, {"addresses": [own, told[3]]}):
        mallory.code("POST", "/api/v1/nodes", {**node, "status": status})
        found = pooled.request("GET", path)
        assert found.code == 404 or told[3] not in found.json["status"].get("addresses", [])
    for cidr in around:
        spec = {"podCIDR": mine, "podCIDRs": [mine, cidr]}
        assert mallory.code("POST", "/api/v1/nodes", {**node, "spec": spec}) in {403, 409, 422}, cidr
    mallory.code("POST", "/api/v1/nodes", node)
    second = f"fd00:0:0:{85 * 256 + mallory.number:x}::/64"
    for ranges, code in (([mine, "::/0"], 403), ([mine, second], 200)):
        body = {"spec": {"podCIDR": mine, "podCIDRs": ranges}}
        patched = pooled.request("PATCH", path, body, client=mallory.certificate, headers=merge)
        assert patched.code == code, patched.body
    for told_now, code in (([own, *told], 403), ([own, told[3]], 403), ([own], 200)):
        written = {"status": {"addresses": told_now}}
        patched = pooled.request("PATCH", f"{path}/status", written, client=mallory.certificate, headers=merge)
        assert patched.code == code, patched.body
