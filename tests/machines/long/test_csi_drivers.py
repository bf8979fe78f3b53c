"""Upstream's csi-driver-host-path in Pods on a machine with a kernel of its own: privileged, its mounts Bidirectional.

MINIK8S_CSI_SOURCES must name checkouts of the driver and of node-driver-registrar (upstream_csi.py); their manifests,
and those of the sidecars, are applied as they are. Claims become volumes, Pods mount them, they grow, are copied by
snapshots, and go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.machines.test_ipvs_whole import IMAGE, QUICK, lend
from tests.support.clusters import upstream_csi
from tests.support.clusters.labcluster import LabCluster

MACHINE = "control1"
PLUGIN = "csi-hostpathplugin-0"
SNAPSHOTS = "snapshot.storage.k8s.io"
WAIT_S = 600
MEMORY_MIB = 2560


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """The cluster with the driver; MINIK8S_CSI in the environment names a lab to use again, and to keep."""
    if upstream_csi.sources() is None:
        pytest.skip(f"no checkouts of CSI drivers: {upstream_csi.VARIABLE} names none")
    name = os.environ.get("MINIK8S_CSI") or lab_name
    made = LabCluster(
        name, workers=0, kind="uml", memory_mib=MEMORY_MIB, beside=["lab_ipvs", "lab_nfs"], variables=QUICK
    )
    try:
        made.up()
        if not made.kubeconfig.exists():
            lend(made, MACHINE)
            made.install()
        if not exists(made, "csidriver", upstream_csi.DRIVER):
            upstream_csi.deploy(made)
        made.apply(storage_class(), snapshot_class())
        wait(made, lambda: made.ready(PLUGIN), "the driver's Pod runs")
        wait(made, lambda: registered(made), "the driver is registered")
        yield made
    finally:
        if name == lab_name:
            made.close()


def wait(cluster: LabCluster, condition: Any, told: str = "") -> None:
    """Wait until something is so; a UML machine beside busy processes takes minutes for a Pod."""
    cluster.until(condition, WAIT_S, told)


def exists(cluster: LabCluster, *words: str) -> bool:
    """Return whether there is an object."""
    return bool(cluster.kubectl("get", *words, "--ignore-not-found", "-o", "name").strip())


def registered(cluster: LabCluster) -> bool:
    """Return whether the machine's CSINode lists the driver."""
    drivers = cluster.get("csinode", MACHINE)["spec"].get("drivers") or []
    return any(one["name"] == upstream_csi.DRIVER for one in drivers)


def storage_class() -> JsonObject:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "csi"},
        "provisioner": upstream_csi.DRIVER,
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
    }


def snapshot_class() -> JsonObject:
    head = {"apiVersion": f"{SNAPSHOTS}/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "csi"}}
    return {**head, "driver": upstream_csi.DRIVER, "deletionPolicy": "Delete"}


def claim(name: str, mode: str = "ReadWriteOnce", **spec: Any) -> JsonObject:
    """Return a claim of the driver's class."""
    asked = {"accessModes": [mode], "storageClassName": "csi", "resources": {"requests": {"storage": "16Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**asked, **spec}}


def pod(name: str, volume: JsonObject) -> JsonObject:
    """Return a Pod with a volume at /data."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "100000"], "volumeMounts": mounts}
    spec = {"containers": [container], "volumes": [{"name": "data", **volume}], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def of_claim(name: str) -> JsonObject:
    return {"persistentVolumeClaim": {"claimName": name}}


def run(cluster: LabCluster, name: str, volume: JsonObject) -> None:
    """Have a Pod with the volume, and wait until it is ready."""
    cluster.apply(pod(name, volume))
    wait(cluster, partial(cluster.ready, name), f"{name} is ready")


def gone(cluster: LabCluster, *words: str) -> None:
    """Delete an object and wait until nothing of it is left."""
    cluster.kubectl("delete", *words, "--wait=false", "--ignore-not-found")
    wait(cluster, lambda: not exists(cluster, *words), f"{' '.join(words)} is deleted")


def volume_of(cluster: LabCluster, name: str) -> str:
    """Return the PersistentVolume of a claim, once it is bound."""
    wait(cluster, lambda: cluster.get("pvc", name)["status"].get("phase") == "Bound", f"{name} is bound")
    return str(cluster.get("pvc", name)["spec"]["volumeName"])


def events(cluster: LabCluster, name: str) -> str:
    return cluster.kubectl("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "wide")


def test_a_claim_becomes_a_volume_that_pods_mount_and_goes_with_it(cluster: LabCluster) -> None:
    cluster.apply(claim("data"))
    volume = volume_of(cluster, "data")
    run(cluster, "first", of_claim("data"))
    cluster.inside("first", "sh", "-c", "echo kept >/data/file")
    gone(cluster, "pod", "first")
    run(cluster, "second", of_claim("data"))
    assert cluster.inside("second", "cat", "/data/file") == "kept\n"
    gone(cluster, "pod", "second")
    gone(cluster, "pvc", "data")
    wait(cluster, lambda: not exists(cluster, "pv", volume), "the volume goes")
    assert not exists(cluster, "volumeattachments")
    assert upstream_csi.DRIVER not in cluster.on(MACHINE, ["cat", "/proc/self/mountinfo"])


def test_a_volume_grows_while_a_pod_has_it(cluster: LabCluster) -> None:
    cluster.apply(claim("grows"))
    run(cluster, "growing", of_claim("grows"))
    cluster.apply(claim("grows", resources={"requests": {"storage": "32Mi"}}))
    wait(cluster, lambda: cluster.get("pvc", "grows")["status"]["capacity"]["storage"] == "32Mi", "the claim has grown")
    assert not cluster.get("pvc", "grows")["status"].get("conditions")
    assert cluster.ready("growing")
    gone(cluster, "pod", "growing")
    gone(cluster, "pvc", "grows")


def test_a_volume_may_be_a_pods_own(cluster: LabCluster) -> None:
    run(cluster, "own", {"csi": {"driver": upstream_csi.DRIVER}})
    cluster.inside("own", "sh", "-c", "echo text >/data/file")
    gone(cluster, "pod", "own")


def test_a_snapshot_is_restored_into_a_new_claim(cluster: LabCluster) -> None:
    cluster.apply(claim("origin"))
    run(cluster, "writer", of_claim("origin"))
    cluster.inside("writer", "sh", "-c", "echo then >/data/file; sync")
    spec = {"volumeSnapshotClassName": "csi", "source": {"persistentVolumeClaimName": "origin"}}
    cluster.apply({"apiVersion": f"{SNAPSHOTS}/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s"}, "spec": spec})
    wait(cluster, lambda: (cluster.get("volumesnapshot", "s").get("status") or {}).get("readyToUse"), "it is taken")
    cluster.inside("writer", "sh", "-c", "echo now >/data/file; sync")
    source = {"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "s"}
    cluster.apply(claim("restored", dataSource=source))
    run(cluster, "reader", of_claim("restored"))
    assert cluster.inside("reader", "cat", "/data/file") == "then\n"
    assert cluster.inside("writer", "cat", "/data/file") == "now\n"
    for name in ("writer", "reader"):
        gone(cluster, "pod", name)
    gone(cluster, "volumesnapshot", "s")
    wait(cluster, lambda: not exists(cluster, "volumesnapshotcontents"), "its content goes")
    for name in ("origin", "restored"):
        gone(cluster, "pvc", name)


def test_a_claim_copies_another_one(cluster: LabCluster) -> None:
    cluster.apply(claim("template"))
    run(cluster, "writer", of_claim("template"))
    cluster.inside("writer", "sh", "-c", "echo text >/data/file; sync")
    cluster.apply(claim("copy", dataSource={"kind": "PersistentVolumeClaim", "name": "template"}))
    run(cluster, "reader", of_claim("copy"))
    assert cluster.inside("reader", "cat", "/data/file") == "text\n"
    for name in ("writer", "reader"):
        gone(cluster, "pod", name)
    for name in ("template", "copy"):
        gone(cluster, "pvc", name)


def test_a_second_pod_waits_for_a_volume_of_one_pod(cluster: LabCluster) -> None:
    cluster.apply(claim("single", "ReadWriteOncePod"))
    run(cluster, "holder", of_claim("single"))
    cluster.apply(pod("waiting", of_claim("single")))
    wait(cluster, lambda: "ReadWriteOncePod" in events(cluster, "waiting"), "an Event says why it waits")
    gone(cluster, "pod", "holder")
    wait(cluster, partial(cluster.ready, "waiting"), "it gets the volume")
    gone(cluster, "pod", "waiting")
    gone(cluster, "pvc", "single")


def test_a_driver_that_is_killed_takes_nothing_away_and_goes_on(cluster: LabCluster) -> None:
    cluster.apply(claim("kept"))
    run(cluster, "user", of_claim("kept"))
    cluster.inside("user", "sh", "-c", "echo text >/data/file; sync")
    label = "label=minik8s.io/container=hostpath"
    script = f"docker kill $(docker ps --quiet --filter {label} --filter label=minik8s.io/type=app)"
    before = restarts(cluster)
    cluster.on(MACHINE, ["sh", "-c", script])
    assert cluster.inside("user", "cat", "/data/file") == "text\n"
    gone(cluster, "pod", "user")
    wait(cluster, lambda: restarts(cluster) > before and cluster.ready(PLUGIN), "the driver runs again")
    run(cluster, "user", of_claim("kept"))
    assert cluster.inside("user", "cat", "/data/file") == "text\n"
    gone(cluster, "pod", "user")
    gone(cluster, "pvc", "kept")


def restarts(cluster: LabCluster) -> int:
    """Return how often the driver's container was started again."""
    states = cluster.get("pod", PLUGIN)["status"].get("containerStatuses") or []
    return sum(one["restartCount"] for one in states if one["name"] == "hostpath")


def test_a_driver_leaves_its_node(cluster: LabCluster) -> None:
    try:
        cluster.kubectl("scale", "statefulset/csi-hostpathplugin", "--replicas=0")
        wait(cluster, lambda: not registered(cluster), "it is not registered any more")
    finally:
        cluster.kubectl("scale", "statefulset/csi-hostpathplugin", "--replicas=1")
    wait(cluster, lambda: cluster.ready(PLUGIN) and registered(cluster), "it is there again")
