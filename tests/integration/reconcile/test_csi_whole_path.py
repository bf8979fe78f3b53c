"""A CSI driver in a cluster: registered, asked to attach and mount, and its data outlives the Pods that use it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import CSI_DRIVER, CSI_NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.kinds import VOLUME_ATTACHMENT as ATTACHMENT
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster
from tests.support.servers.csi_driver import Running, csi_driver

REGISTRY = {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry", "type": "Directory"}}


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Iterator[Running]:
    """A driver that runs, with a Pod that could have registered it."""
    with csi_driver(f"t{uuid.uuid4().hex[:10]}.csi.test", tmp_path) as running:
        cluster.create("registrar", volumes=[REGISTRY])
        yield running
        cluster.delete("registrar", grace_s=0)


def user(cluster: Cluster, name: str, command: str) -> None:
    """Create a Pod that has the claim."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "app", "image": IMAGE, "command": ["sh", "-c", command], "volumeMounts": mounts}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create(name, containers=[container], volumes=volumes)


def attachments(cluster: Cluster, volume: str) -> list[JsonObject]:
    """Return those of the volume."""
    found = cluster.admin.list(ATTACHMENT).items
    return [one for one in found if one["spec"]["source"]["persistentVolumeName"] == volume]


def attached(cluster: Cluster, volume: str) -> JsonObject | None:
    """Do what an external-attacher does, once it is asked."""
    for one in attachments(cluster, volume):
        told = {"status": {"attached": True, "attachmentMetadata": {"device": "sdb"}}}
        return cluster.admin.patch(ATTACHMENT, one["metadata"]["name"], "", told, subresource="status")
    return None


def test_data_on_a_drivers_volume_outlives_its_pods(cluster: Cluster, driver: Running):
    volume, admin = driver.name, cluster.admin
    rows = cluster.until(lambda: admin.get(CSI_NODE, cluster.node.name)["spec"].get("drivers"))
    row = {"name": driver.name, "nodeID": "i-1", "topologyKeys": [f"{driver.name}/zone"], "allocatable": {"count": 3}}
    assert row in rows
    admin.create(CSI_DRIVER, {"metadata": {"name": driver.name}, "spec": {"podInfoOnMount": True}})
    modes, size = ["ReadWriteOnce"], {"storage": "1Gi"}
    source = {"driver": driver.name, "volumeHandle": "h-1"}
    declared = {"accessModes": modes, "capacity": size, "csi": source, "storageClassName": driver.name}
    admin.create(PERSISTENT_VOLUME, {"metadata": {"name": volume}, "spec": declared})
    wanted = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": driver.name}
    admin.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "data", "namespace": "default"}, "spec": wanted})
    user(cluster, "first", "echo kept > /data/file; sleep 3600")
    cluster.until(lambda: any("is not attached" in one for one in cluster.events("first")))
    assert cluster.until(lambda: attached(cluster, volume))["spec"]["nodeName"] == cluster.node.name
    cluster.until(lambda: cluster.ready("first"))
    (published,) = [call for call in driver.calls() if call["method"] == "NodePublishVolume"]
    assert published["publish_context"] == {"device": "sdb"}
    assert published["volume_context"]["csi.storage.k8s.io/pod.name"] == "first"
    driver.stop()
    cluster.delete("first", grace_s=1)
    cluster.until(lambda: len(cluster.node.ids("app")) == 1)
    assert not cluster.gone("first"), "its volume is mounted still"
    driver.start()
    cluster.until(lambda: cluster.gone("first"))
    cluster.until(lambda: not attachments(cluster, volume))
    user(cluster, "second", "cat /data/file; sleep 3600")
    cluster.until(lambda: attached(cluster, volume))
    cluster.until(lambda: cluster.kubectl("logs", "second", check=False).stdout == "kept\n")
    cluster.delete("second", grace_s=1)
    cluster.until(lambda: cluster.gone("second"))
    assert (driver.folder / "h-1" / "file").read_text() == "kept\n"
    for kind, name, space in ((PERSISTENT_VOLUME_CLAIM, "data", "default"), (PERSISTENT_VOLUME, volume, "")):
        admin.delete(kind, name, space)
    admin.delete(CSI_DRIVER, driver.name)
    assert not [one for one in admin.list(POD, "default").items if one["metadata"]["name"] in {"first", "second"}]
