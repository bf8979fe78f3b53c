"""A volume that is made for a claim: its folder comes, is drift when somebody removes it, and goes with the claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    EVENT,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster

CLASS = "disk"
SPACE = "default"


@pytest.fixture
def root(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The folder of a class of volumes that go with their claims."""
    name = cluster.node.name
    cluster.admin.patch(NODE, name, "", {"metadata": {"labels": {"kubernetes.io/hostname": name}}})
    made = {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Delete"}
    parameters = {"node": name, "path": str(tmp_path / "volumes")}
    cluster.admin.create(STORAGE_CLASS, {"metadata": {"name": CLASS}, **made, "parameters": parameters})
    yield tmp_path / "volumes"
    cluster.admin.delete(STORAGE_CLASS, CLASS)


def claimed(cluster: Cluster, name: str) -> str:
    """Make a claim and wait for its volume; return the volume's name."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": CLASS,
    }
    cluster.admin.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, "namespace": SPACE}, "spec": spec})
    cluster.until(lambda: phase(cluster, name) == "Bound")
    return str(objects.spec(cluster.admin.get(PERSISTENT_VOLUME_CLAIM, name, SPACE))["volumeName"])


def phase(cluster: Cluster, claim: str) -> str:
    return str(objects.status(cluster.admin.get(PERSISTENT_VOLUME_CLAIM, claim, SPACE)).get("phase"))


def names(cluster: Cluster) -> list[str]:
    return [objects.name(each) for each in cluster.admin.list(PERSISTENT_VOLUME).items]


def user(name: str, claim: str, command: str) -> JsonObject:
    """Return a pod whose program is nobody in particular."""
    app: dict[str, Any] = {"name": "app", "image": IMAGE, "command": ["sh", "-c", f"{command}; sleep 3600"]}
    app |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": [app], "volumes": volumes, "securityContext": {"runAsUser": 1000}}
    return {
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {**spec, "terminationGracePeriodSeconds": 1},
    }


def test_a_volumes_data_lives_as_long_as_its_claim(cluster: Cluster, root: Path) -> None:
    volume = claimed(cluster, "notes")
    folder = root / volume
    cluster.admin.create(POD, user("writer", "notes", "echo text >/data/file"))
    cluster.until((folder / "file").exists)
    full = f'kubelet_volume_stats_capacity_bytes{{namespace="{SPACE}",persistentvolumeclaim="notes"}} '
    path = f"/api/v1/nodes/{cluster.node.name}/proxy/metrics"
    cluster.until(lambda: full in cluster.admin.raw("GET", path).data.decode())
    cluster.admin.delete(PERSISTENT_VOLUME_CLAIM, "notes", SPACE)
    cluster.admin.delete(PERSISTENT_VOLUME, volume)
    cluster.until(lambda: objects.is_deleting(cluster.admin.get(PERSISTENT_VOLUME, volume)))
    assert (folder / "file").read_text() == "text\n", "a pod uses it"
    cluster.daemons["reconcile"].kill()
    cluster.admin.delete(POD, "writer", SPACE)
    cluster.daemons["reconcile"].start()
    cluster.until(lambda: volume not in names(cluster))
    assert [*root.iterdir()] == []


def test_a_volume_that_is_retained_after_all_leaves_its_data(cluster: Cluster, root: Path) -> None:
    volume = claimed(cluster, "kept")
    cluster.until((root / volume).is_dir)
    cluster.admin.patch(PERSISTENT_VOLUME, volume, "", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    cluster.admin.delete(PERSISTENT_VOLUME_CLAIM, "kept", SPACE)
    found = cluster.until(lambda: _released(cluster, volume))
    assert not objects.is_deleting(found)
    cluster.admin.delete(PERSISTENT_VOLUME, volume)
    cluster.until(lambda: volume not in names(cluster))
    assert (root / volume).is_dir()


def _released(cluster: Cluster, volume: str) -> JsonObject | None:
    found = cluster.admin.get(PERSISTENT_VOLUME, volume)
    return found if objects.status(found).get("phase") == "Released" else None


def test_a_folder_that_is_gone_is_drift(cluster: Cluster, root: Path) -> None:
    volume = claimed(cluster, "drifting")
    cluster.until((root / volume).is_dir)
    node = cluster.node.name
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {"minik8s.io/drift": "folders=report"}}})
    (root / volume).rmdir()
    steps = cluster.until(lambda: cluster.plan()["nodes"].get(node, {}).get("steps"))
    assert [(step["section"], step["action"], step["key"]) for step in steps] == [("folders", "make", volume)]
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {"minik8s.io/drift": None}}})
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {"minik8s.io/observe": volume}}})
    cluster.until((root / volume).is_dir)
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {"minik8s.io/observe": None}}})
    cluster.admin.delete(PERSISTENT_VOLUME_CLAIM, "drifting", SPACE)
    cluster.until(lambda: volume not in names(cluster))


def test_a_folder_that_was_there_before_is_never_deleted(cluster: Cluster, root: Path) -> None:
    """Who may write volumes may say that we made one: only what we have made is deleted."""
    theirs = root.parent / "theirs"
    (theirs / "pvc-1").mkdir(parents=True)
    (theirs / "pvc-1" / "file").write_text("kept")
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node.name]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": str(theirs / "pvc-1")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    marks = {"pv.kubernetes.io/provisioned-by": "minik8s.io/hostpath"}
    meta = {"name": "false", "annotations": marks, "finalizers": ["minik8s.io/volume-folder"]}
    cluster.admin.create(PERSISTENT_VOLUME, {"metadata": meta, "spec": spec})
    cluster.admin.delete(PERSISTENT_VOLUME, "false")
    cluster.until(lambda: messages_of(cluster, "false"))
    assert "was not made by minik8s" in messages_of(cluster, "false")
    assert (theirs / "pvc-1" / "file").read_text() == "kept"
    cluster.admin.patch(PERSISTENT_VOLUME, "false", "", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    cluster.until(lambda: "false" not in names(cluster))
    assert (theirs / "pvc-1" / "file").read_text() == "kept"


def messages_of(cluster: Cluster, volume: str) -> str:
    found = cluster.admin.list(EVENT, "default", field_selector=f"involvedObject.name={volume}").items
    return "".join(each["message"] for each in found if each["reason"] == "VolumeFailedDelete")
