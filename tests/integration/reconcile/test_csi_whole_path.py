"""A CSI driver in a cluster: registered, asked to attach and mount, and its data outlives the Pods that use it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import CSI_DRIVER, CSI_NODE, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD
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
        fields = {"status": {"attached": True, "attachmentMetadata": {"device": "sdb"}}}
        return cluster.admin.patch(ATTACHMENT, one["metadata"]["name"], "", fields, subresource="status")
    return None


def in_use(cluster: Cluster) -> list[str]:
    """Return what the Node says that it may have mounted."""
    return list((cluster.admin.get(NODE, cluster.node.name)["status"]).get("volumesInUse") or [])


@pytest.fixture
def volume(cluster: Cluster, driver: Running) -> Iterator[str]:
    """A volume of the driver, and the claim ``data`` that may have it."""
    admin, modes, size = cluster.admin, ["ReadWriteOnce"], {"storage": "1Gi"}
    admin.create(CSI_DRIVER, {"metadata": {"name": driver.name}, "spec": {"podInfoOnMount": True}})
    source = {"driver": driver.name, "volumeHandle": "h-1"}
    declared = {"accessModes": modes, "capacity": size, "csi": source, "storageClassName": driver.name}
    admin.create(PERSISTENT_VOLUME, {"metadata": {"name": driver.name}, "spec": declared})
    wanted = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": driver.name}
    admin.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "data", "namespace": "default"}, "spec": wanted})
    yield driver.name
    for kind, name, space in ((PERSISTENT_VOLUME_CLAIM, "data", "default"), (PERSISTENT_VOLUME, driver.name, "")):
        admin.delete(kind, name, space)
    cluster.until(lambda: not [one for one in admin.list(PERSISTENT_VOLUME_CLAIM, "default").items if _is_data(one)])
    admin.delete(CSI_DRIVER, driver.name)


def _is_data(claim: JsonObject) -> bool:
    return bool(claim["metadata"]["name"] == "data")


def test_data_on_a_drivers_volume_outlives_its_pods(cluster: Cluster, driver: Running, volume: str):
    admin = cluster.admin
    rows = cluster.until(lambda: admin.get(CSI_NODE, cluster.node.name)["spec"].get("drivers"))
    row = {"name": driver.name, "nodeID": "i-1", "topologyKeys": [f"{driver.name}/zone"], "allocatable": {"count": 3}}
    assert row in rows
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
    assert not [one for one in admin.list(POD, "default").items if one["metadata"]["name"] in {"first", "second"}]


def test_a_volume_grows_while_a_pod_has_it(cluster: Cluster, driver: Running, volume: str):
    """What an external-resizer does is done here: it enlarges the volume, and leaves its file system to the node."""
    admin, pending = cluster.admin, {"type": "FileSystemResizePending", "status": "True"}
    user(cluster, "growing", "sleep 3600")
    cluster.until(lambda: attached(cluster, volume))
    cluster.until(lambda: cluster.ready("growing"))
    driver.calls()
    admin.patch(PERSISTENT_VOLUME, volume, "", {"spec": {"capacity": {"storage": "2Gi"}}})
    fields = {"status": {"conditions": [pending]}}
    admin.patch(PERSISTENT_VOLUME_CLAIM, "data", "default", fields, subresource="status")
    cluster.until(lambda: claim(cluster)["status"]["capacity"] == {"storage": "2Gi"})
    cluster.until(lambda: not claim(cluster)["status"].get("conditions"))
    (expanded,) = [call for call in driver.calls() if call["method"] == "NodeExpandVolume"]
    assert expanded["capacity_range"] == {"required_bytes": str(2 << 30)}
    assert cluster.pod("growing")["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.delete("growing", grace_s=1)
    cluster.until(lambda: cluster.gone("growing"))


def claim(cluster: Cluster) -> JsonObject:
    return cluster.admin.get(PERSISTENT_VOLUME_CLAIM, "data", "default")


def test_a_volume_stays_attached_while_its_node_has_it_though_its_pod_was_deleted_by_force(
    cluster: Cluster, driver: Running, volume: str
):
    user(cluster, "third", "sleep 3600")
    cluster.until(lambda: attached(cluster, volume))
    cluster.until(lambda: cluster.ready("third"))
    name = f"kubernetes.io/csi/{driver.name}^h-1"
    assert in_use(cluster) == [name]
    driver.stop()
    cluster.delete("third", grace_s=0)
    cluster.until(lambda: cluster.gone("third"))
    cluster.until(lambda: len(cluster.node.ids("app")) == 1)  # the registrar's
    assert attachments(cluster, volume), "its node has the volume mounted still"
    assert in_use(cluster) == [name]
    driver.start()
    cluster.until(lambda: not attachments(cluster, volume))
    assert not in_use(cluster)
