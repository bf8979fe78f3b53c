"""Attack: whoever gets at the account that carries several virtual nodes reads all Secrets and speaks for all nodes.

Its role had ``get`` on Secrets, and could patch every Node and the status of every Pod. Now it has a say in the nodes
that it has registered, and in no others, whatever it writes into them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

CARRIER = "system:minik8s:virtual"
CARRIED_BY = "minik8s.io/carried-by"
MERGE = {"Content-Type": "application/merge-patch+json"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Carried:
    """A virtual node of the carrier's with a Pod, and a machine with another; each Pod mounts a Secret of its own."""

    def __init__(self, namespace: Namespace) -> None:
        self.server, self.path = namespace.server, namespace.path
        self.own, self.machine = f"far-{namespace.name}", f"near-{namespace.name}"
        self.carrier: Certificate = self.server.identity(CARRIER)
        assert self.register(self.own, self.carrier) == CARRIER
        assert self.register(self.machine, None, asked=False) is None
        for name, node in (("mine", self.own), ("foreign", self.machine)):
            self.server.request("POST", self.path("secrets"), {"metadata": {"name": name}})
            self.server.request("POST", self.path("configmaps"), {"metadata": {"name": name}})
            volumes = [{"name": "s", "secret": {"secretName": name}}, {"name": "c", "configMap": {"name": name}}]
            made = self.server.request("POST", self.path("pods"), pod(name, nodeName=node, volumes=volumes))
            assert made.code == 201, made.body

    def register(self, name: str, client: Certificate | None, *, asked: bool = True) -> str | None:
        """Register a node; return whose it is then."""
        noted = {"annotations": {CARRIED_BY: "system:masters"}} if asked else {}
        made = self.server.request("POST", "/api/v1/nodes", {"metadata": {"name": name, **noted}}, client=client)
        assert made.code == 201, made.body
        found: str | None = (made.json["metadata"].get("annotations") or {}).get(CARRIED_BY)
        return found

    def code(self, method: str, path: str, body: Any = None) -> int:
        """Return the answer to the carrier."""
        return self.server.request(method, path, body, client=self.carrier, headers=MERGE if body else {}).code


@pytest.fixture
def carried(namespace: Namespace) -> Carried:
    return Carried(namespace)


@pytest.mark.parametrize("plural", ["secrets", "configmaps"])
def test_it_reads_what_pods_on_its_nodes_name(carried: Carried, plural: str) -> None:
    assert carried.code("GET", carried.path(plural, "mine")) == 200
    assert carried.code("GET", carried.path(plural, "foreign")) == 403
    assert carried.code("GET", carried.path(plural)) == 403
    assert carried.code("DELETE", carried.path(plural, "mine")) == 403
    assert carried.code("GET", f"/api/v1/namespaces/kube-system/{plural}/mine") == 403


def test_it_speaks_for_its_own_nodes_and_their_pods(carried: Carried) -> None:
    for node, name, code in ((carried.own, "mine", 200), (carried.machine, "foreign", 403)):
        labels, phase = {"metadata": {"labels": {"a": "b"}}}, {"status": {"phase": "Running"}}
        assert carried.code("PATCH", f"/api/v1/nodes/{node}", labels) == code
        assert carried.code("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": {"pods": "9"}}}) == code
        assert carried.code("PATCH", carried.path("pods", name), labels) == 403
        assert carried.code("PATCH", f"{carried.path('pods', name)}/status", phase) == 403, "it replaces them"
        whole = {**carried.server.request("GET", carried.path("pods", name)).json, **phase}
        assert carried.code("PUT", f"{carried.path('pods', name)}/status", whole) == code
        assert carried.code("DELETE", carried.path("pods", name)) == code


def test_it_renews_leases_of_its_own_nodes(carried: Carried) -> None:
    spec = {"holderIdentity": "x", "leaseDurationSeconds": 40}
    for node, code in ((carried.own, 200), (carried.machine, 403)):
        lease = {"metadata": {"name": node}, "spec": spec}
        assert carried.server.request("POST", LEASES, lease).code == 201
        assert carried.code("PUT", f"{LEASES}/{node}", lease) == code


@pytest.mark.parametrize("whose", [CARRIER, None])
def test_nobody_changes_whose_a_node_is(carried: Carried, whose: str | None) -> None:
    for node, before in ((carried.own, CARRIER), (carried.machine, None)):
        change = {"metadata": {"annotations": {CARRIED_BY: whose}}}
        for path in (f"/api/v1/nodes/{node}", f"/api/v1/nodes/{node}/status"):
            carried.code("PATCH", path, change)
            assert carried.server.request("PATCH", path, change, headers=MERGE).code == 200
            found = carried.server.request("GET", f"/api/v1/nodes/{node}").json["metadata"]
            assert (found.get("annotations") or {}).get(CARRIED_BY) == before


def test_a_virtual_node_that_upstreams_programs_register_is_theirs(carried: Carried, namespace: Namespace) -> None:
    for asker, kind, whose in ((CARRIER, "virtual-kubelet", CARRIER), (CARRIER, "worker", None), ("", "kwok", None)):
        meta = {"name": f"{kind}-{namespace.name}", "labels": {"type": kind}}
        made = carried.server.request(
            "POST", "/api/v1/nodes", {"metadata": meta}, client=carried.carrier if asker else None
        )
        assert made.code == 201, made.body
        assert (made.json["metadata"].get("annotations") or {}).get(CARRIED_BY) == whose


def test_the_mark_alone_gives_nothing(carried: Carried, namespace: Namespace, server: ApiServerProcess) -> None:
    name = f"self-{namespace.name}"
    node = server.identity(f"system:node:{name}", "system:nodes")
    assert carried.register(name, node) == f"system:node:{name}"
    secret = carried.path("secrets", "foreign")
    assert server.request("POST", carried.path("pods"), pod("third", nodeName=name)).code == 201
    assert server.request("GET", secret, client=node).code == 403
    thief = server.identity("jane")
    assert server.request("PATCH", f"/api/v1/nodes/{name}", {}, headers=MERGE, client=thief).code == 403
