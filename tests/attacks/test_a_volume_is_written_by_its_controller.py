"""Whoever gets at the reconciler's certificate gives no volume another place, and lets none go.

The attack: the reconciler says that a volume's folder is deleted. With a right to write volumes it could lead a claim
to another folder of a machine, or take away what protects data; what it writes is the status alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver import ApiServerProcess

MERGE = {"Content-Type": "application/merge-patch+json"}
VOLUMES = "/api/v1/persistentvolumes"
NAME = "held"


@pytest.fixture(scope="module")
def volume(server: ApiServerProcess) -> str:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data/held"}}
    meta = {"name": NAME, "finalizers": ["minik8s.io/volume-folder"]}
    assert server.request("POST", VOLUMES, {"metadata": meta, "spec": spec}).code == 201
    return f"{VOLUMES}/{NAME}"


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("PATCH", {"spec": {"claimRef": {"namespace": "default", "name": "c"}}}),
        ("PATCH", {"metadata": {"finalizers": None}}),
        ("PATCH", {"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "minik8s.io/nfs"}}}),
        ("PUT", {"metadata": {"name": NAME}}),
        ("DELETE", None),
    ],
)
def test_the_reconciler_changes_no_volume(server: ApiServerProcess, volume: str, method: str, body: Any) -> None:
    thief = server.identity("system:minik8s:reconciler")
    assert server.request(method, volume, body, client=thief, headers=MERGE).code == 403


def test_by_a_status_it_writes_the_status_alone(server: ApiServerProcess, volume: str) -> None:
    reconciler = server.identity("system:minik8s:reconciler")
    body = {
        "metadata": {"finalizers": None},
        "spec": {"claimRef": {"name": "c"}},
        "status": {"reason": "FolderDeleted"},
    }
    answer = server.request("PATCH", f"{volume}/status", body, client=reconciler, headers=MERGE)
    assert answer.code == 200, answer.body
    found = server.request("GET", volume).json
    assert found["status"]["reason"] == "FolderDeleted"
    assert found["metadata"]["finalizers"][0] == "minik8s.io/volume-folder"
    assert "claimRef" not in found["spec"]


def test_of_a_claim_it_says_its_size_and_leads_it_nowhere(server: ApiServerProcess) -> None:
    reconciler, claims = (
        server.identity("system:minik8s:reconciler"),
        "/api/v1/namespaces/default/persistentvolumeclaims",
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert server.request("POST", claims, {"metadata": {"name": "mine"}, "spec": spec}).code == 201
    thief = {"spec": {"volumeName": "anothers"}, "status": {"capacity": {"storage": "1Gi"}}}
    for method in ("PATCH", "PUT", "DELETE"):
        answer = server.request(method, f"{claims}/mine", thief, client=reconciler, headers=MERGE)
        assert answer.code == 403, answer.body
    response = server.request("PATCH", f"{claims}/mine/status", thief, client=reconciler, headers=MERGE)
    assert response.code == 200, response.body
    found = server.request("GET", f"{claims}/mine").json
    assert found["status"]["capacity"] == {"storage": "1Gi"}
    assert "volumeName" not in found["spec"]
