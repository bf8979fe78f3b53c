"""Attack: who may create Pods has a job's results written into ConfigMaps that he may not write himself.

A Pod names a ConfigMap for its results, and the daemon of virtual nodes writes there. It may do so only where the
ConfigMap says that it takes results, which whoever may write the ConfigMap says; and only its data. A node's own
certificate gives the same. Nobody may make or delete a ConfigMap by it.
"""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.pods.slurm import RESULTS, RESULTS_TO, TAKES_RESULTS
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.pki import Certificate
from tests.support.waiting import until

MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
TAKEN = {"annotations": {TAKES_RESULTS: "true"}}


class World:
    """A virtual node of the carrier's and a machine; ``taken`` takes results, ``plain`` does not; Pods name both."""

    def __init__(self, namespace: Namespace) -> None:
        self.server, self.path = namespace.server, namespace.path
        self.carrier = self.server.identity("system:minik8s:virtual")
        far, near = f"far-{namespace.name}", f"near-{namespace.name}"
        self.own = self.server.identity(f"system:node:{near}", "system:nodes")
        node = {"metadata": {"name": far, "annotations": {"minik8s.io/carried-by": ""}}}
        assert self.server.request("POST", "/api/v1/nodes", node, client=self.carrier).code == 201
        assert self.server.request("POST", "/api/v1/nodes", {"metadata": {"name": near}}).code == 201
        for name, more in (("taken", TAKEN), ("plain", {}), ("unnamed", TAKEN)):
            made = self.server.request("POST", self.path("configmaps"), {"metadata": {"name": name, **more}})
            assert made.code == 201, made.body
        for at in (far, near):
            for name in ("taken", "plain", "missing"):
                one = pod(f"{name}-{at}", nodeName=at)
                one["metadata"]["annotations"] = {RESULTS: "*", RESULTS_TO: name}
                assert self.server.request("POST", self.path("pods"), one).code == 201

    def put(self, client: Certificate, name: str, **change: Any) -> int:
        """Replace a ConfigMap with ``change``, as its own metadata stay unless that has some; return the answer."""
        found = self.server.request("GET", self.path("configmaps", name)).json
        meta = {**found["metadata"], **change.pop("metadata", {})}
        body = {**found, **change, "metadata": meta}
        return self.server.request("PUT", self.path("configmaps", name), body, client=client).code


@pytest.fixture
def world(namespace: Namespace) -> World:
    return World(namespace)


def clients(world: World) -> list[Certificate]:
    return [world.carrier, world.own]


def test_only_what_takes_results_and_is_named_is_filled(world: World) -> None:
    for client in clients(world):
        assert world.put(client, "taken", data={"a": "1"}, binaryData={"b": "AAA="}) == 200
        assert world.put(client, "plain", data={"a": "1"}) == 403
        assert world.put(client, "unnamed", data={"a": "1"}) == 403
        assert world.server.request("GET", world.path("configmaps", "plain"), client=client).code == 200
        assert world.server.request("GET", world.path("configmaps", "unnamed"), client=client).code == 403
    stranger = world.server.identity("jane")
    assert world.put(stranger, "taken", data={"a": "2"}) == 403


def test_nothing_but_data_is_changed(world: World) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    changes: list[dict[str, Any]] = [
        {"immutable": True},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {**TAKEN["annotations"], "a": "b"}}},
        {"metadata": {"annotations": {}}},
        {"metadata": {"finalizers": ["example.com/kept"]}},
        {"metadata": {"ownerReferences": [owner]}},
    ]
    for client in clients(world):
        for change in changes:
            assert world.put(client, "taken", **change) == 403, change
        assert world.put(client, "taken", data={"a": "1"}) == 200


def test_nothing_is_made_patched_or_deleted(world: World) -> None:
    for client in clients(world):
        missing = {"metadata": {"name": "missing", **TAKEN}, "data": {"a": "1"}}
        assert world.server.request("POST", world.path("configmaps"), missing, client=client).code == 403
        path = world.path("configmaps", "missing")
        assert world.server.request("PUT", path, missing, client=client).code == 403
        applied = {"apiVersion": "v1", "kind": "ConfigMap", **missing}
        code = world.server.request("PATCH", f"{path}?fieldManager=x", applied, client=client, headers=APPLY).code
        assert code == 403
        taken = world.path("configmaps", "taken")
        assert world.server.request("PATCH", taken, {"data": {}}, client=client, headers=MERGE).code == 403
        assert world.server.request("DELETE", taken, client=client).code == 403


def test_a_carrier_marks_nothing_as_taking_results(world: World) -> None:
    for client in clients(world):
        assert world.put(client, "plain", metadata=TAKEN) == 403


def test_who_may_patch_config_maps_by_a_role_is_no_carrier_for_it(world: World) -> None:
    """Programs that apply manifests often have every verb on nodes, and need no ``update``; nobody else gains by it."""
    name = "gitops-" + world.path("x").split("/")[4]
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["plain"], "verbs": ["get", "patch"]},
    ]
    role = {"metadata": {"name": name}, "rules": rules}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert world.server.request("POST", f"{rbac}/clusterroles", role).code == 201
    bound = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    assert world.server.request("POST", f"{rbac}/clusterrolebindings", bound).code == 201
    client = world.server.identity(name)
    change = {"metadata": {"labels": {"a": "b"}}, "data": {"a": "1"}}

    def patched(config_map: str) -> int:
        path = world.path("configmaps", config_map)
        return world.server.request("PATCH", path, change, client=client, headers=MERGE).code

    until(lambda: patched("plain") != 403)
    assert patched("plain") == 200
    assert patched("taken") == 403
    assert world.put(client, "plain", data={"a": "2"}) == 403
    assert world.put(client, "taken", data={"a": "2"}) == 403
