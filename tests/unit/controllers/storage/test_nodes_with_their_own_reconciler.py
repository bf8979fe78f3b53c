"""Folders of volumes on nodes that reconcile themselves: nobody would make them there, or delete them."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.steps import Create, RecordEvent
from minik8s_modules.controllers.storage.claims import Around, decide_claim
from minik8s_modules.controllers.storage.controllers import alone
from minik8s_modules.controllers.storage.provisioning import homes
from minik8s_modules.controllers.storage.volumes import decide_volume, host_of, waits_for_folder

NODES: list[JsonObject] = [
    {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
    for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("liar", "10.0.0.2"))
]


def storage_class(provisioner: str, policy: str = "Delete", **parameters: str) -> JsonObject:
    return {
        "metadata": {"name": "made"}, "provisioner": provisioner, "reclaimPolicy": policy, "parameters": parameters,
        "volumeBindingMode": "Immediate",
    }  # fmt: skip


ON_DISK, ON_SERVER = storage_class(claims.HOSTPATH, node="n1"), storage_class(claims.NFS, server="10.0.0.2", share="/s")
SIZE, MODES = {"requests": {"storage": "1Gi"}}, ["ReadWriteMany"]
CLAIM: JsonObject = {
    "metadata": {"name": "c", "namespace": "default", "uid": "u"},
    "spec": {"storageClassName": "made", "resources": SIZE, "accessModes": MODES},
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize(
    ("made", "node", "found"),
    [
        (ON_DISK, None, ["n1"]),
        (storage_class(claims.HOSTPATH), NODES[1], ["n2"]),
        (storage_class(claims.HOSTPATH), None, []),
        (ON_SERVER, None, ["n2", "liar"]),
        (storage_class("example.com/other"), NODES[1], []),
        (None, NODES[1], []),
    ],
)
def test_where_a_folder_would_be(made: JsonObject | None, node: JsonObject | None, found: list[str]):
    assert homes(made, node, NODES) == found


@pytest.mark.parametrize(
    ("leases", "asked", "found"),
    [
        ({}, ["n1"], ""),
        ({"n1": "me"}, ["n1"], "n1"),
        ({"n1": ""}, ["n1"], ""),
        ({"liar": "me"}, ["n2", "liar"], ""),  # who says that it has a server's address keeps nobody from it
        ({}, [], ""),
    ],
)
def test_a_node_is_alone_while_its_own_reconciler_holds_its_lease(leases: dict[str, str], asked: list[str], found: str):
    api = FakeApi()
    for name, holder in leases.items():
        meta = {"name": f"minik8s-reconciler-node.{name}", "namespace": "kube-system"}
        api.create(LEASE, {"metadata": meta, "spec": {"holderIdentity": holder} if holder else {}})
    assert alone(api, asked) == found


def decided(made: JsonObject) -> str:
    around = Around(storage_class=made, alone="n1", machines=frozenset(["10.0.0.2"]))
    (step,) = decide_claim(CLAIM, around)
    return step.message if isinstance(step, RecordEvent) else type(step).__name__


def test_no_volume_is_promised_whose_folder_nobody_would_make_or_delete():
    assert "n1 has a reconciler of its own, which deletes no folders" in decided(ON_DISK)
    assert "n1 has a reconciler of its own, which makes no folders" in decided(ON_SERVER)
    assert decided(storage_class(claims.HOSTPATH, "Retain", node="n1")) == Create.__name__


def test_a_volume_whose_node_became_such_a_one_says_why_it_stays():
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    volume: JsonObject = {
        "metadata": {"name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [claims.VOLUME_FOLDER]},
        "spec": {
            "hostPath": {"path": "/data/v"}, "persistentVolumeReclaimPolicy": "Delete",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
        "status": {"phase": "Released"},
    }  # fmt: skip
    assert waits_for_folder(volume)
    assert host_of(volume) == "n1"
    (step,) = decide_volume(volume, None, None, "n1")
    assert isinstance(step, RecordEvent)
    assert step.reason == "VolumeFailedDelete"
    assert "persistentVolumeReclaimPolicy: Retain" in step.message
    assert decide_volume(volume, None, None) == []
