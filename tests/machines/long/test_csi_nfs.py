"""Upstream's csi-driver-nfs on two machines, against the cluster's own NFS server; and where drivers have room.

Its manifests are applied as they are: a Deployment with provisioner, resizer, snapshotter and liveness probe, a
DaemonSet with node-driver-registrar and liveness probe. Then csi-driver-host-path comes in the form that has a
provisioner on each node and says how much room is there (CSIStorageCapacity); Pods go where there is enough.

MINIK8S_CSI_SOURCES must name checkouts of the drivers, of node-driver-registrar and of livenessprobe (upstream_csi.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import to_bytes
from minik8s_modules.module_utils.minik8s.volumes.mounts import parse_mountinfo
from tests.machines.test_ipvs_whole import IMAGE, QUICK, lend
from tests.support.clusters import upstream_csi
from tests.support.clusters.labcluster import LabCluster

SERVER, OTHER = "control1", "worker1"
SHARE = "/srv/minik8s/csi"
SPACE, CONTROLLER, NODE_PLUGIN = "kube-system", "csi-nfs-controller", "csi-nfs-node"
WAIT_S = 900
MEMORY_MIB = 2560


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """The cluster with csi-driver-nfs; MINIK8S_CSI_NFS in the environment names a lab to use again, and to keep."""
    if upstream_csi.sources("nfsplugin", "livenessprobe", "csi-node-driver-registrar") is None:
        pytest.skip(f"no checkouts of CSI drivers: {upstream_csi.VARIABLE} names none")
    name = os.environ.get("MINIK8S_CSI_NFS") or lab_name
    beside = ["lab_ipvs", "lab_nfs"]
    made = LabCluster(
        name, workers=1, control_is_node=True, kind="uml", memory_mib=MEMORY_MIB, beside=beside, variables=QUICK
    )
    try:
        made.up()
        if not made.kubeconfig.exists():
            for machine in (SERVER, OTHER):
                lend(made, machine)
            made.install()
        # root of the machines is nobody there, and makes the folders of volumes
        made.on(SERVER, ["install", "-d", "-m", "0777", SHARE])
        if not exists(made, "csidriver", upstream_csi.NFS_DRIVER):
            upstream_csi.deploy_nfs(made, OTHER)
        made.apply(storage_class(made))
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


def storage_class(cluster: LabCluster) -> JsonObject:
    """Return a class as the driver's documentation has it."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "nfs-csi"},
        "provisioner": upstream_csi.NFS_DRIVER,
        "parameters": {"server": cluster.address(SERVER), "share": SHARE},
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "mountOptions": ["nfsvers=4.2"],
    }


def claim(name: str, size: str, storage_class: str = "nfs-csi", mode: str = "ReadWriteMany") -> JsonObject:
    asked = {"accessModes": [mode], "storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": asked}


def pod(name: str, claimed: str, **spec: Any) -> JsonObject:
    """Return a Pod with a claim's volume at /data."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "100000"], "volumeMounts": mounts}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
    whole = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def gone(cluster: LabCluster, *words: str) -> None:
    """Delete an object and wait until nothing of it is left."""
    cluster.kubectl("delete", *words, "--wait=false", "--ignore-not-found")
    wait(cluster, lambda: not exists(cluster, *words), f"{' '.join(words)} is deleted")


def mounted(cluster: LabCluster, machine: str) -> list[str]:
    """Return what NFS a machine has mounted, as the driver's container did it."""
    found = parse_mountinfo(cluster.on(machine, ["cat", "/proc/self/mountinfo"]))
    return [each.point for each in found if each.kind in {"nfs", "nfs4"}]


def registered(cluster: LabCluster, machine: str, driver: str) -> bool:
    drivers = cluster.get("csinode", machine)["spec"].get("drivers") or []
    return any(one["name"] == driver for one in drivers)


def test_the_drivers_own_manifests_run(cluster: LabCluster) -> None:
    for kind, name in (("deployment", CONTROLLER), ("daemonset", NODE_PLUGIN)):
        words = ("rollout", "status", f"{kind}/{name}", "-n", SPACE, "--timeout=10s")
        wait(cluster, lambda words=words: "success" in cluster.kubectl(*words), f"{kind} {name} runs")
    for machine in (SERVER, OTHER):
        wait(cluster, partial(registered, cluster, machine, upstream_csi.NFS_DRIVER), f"it is registered on {machine}")


def test_a_claims_folder_is_on_the_server_and_pods_of_both_machines_share_it(cluster: LabCluster) -> None:
    cluster.apply(claim("shared", "16Mi"))
    wait(cluster, lambda: cluster.get("pvc", "shared")["status"].get("phase") == "Bound", "the claim is bound")
    volume = str(cluster.get("pvc", "shared")["spec"]["volumeName"])
    assert volume in cluster.on(SERVER, ["ls", SHARE]).split()
    cluster.apply(pod("writer", "shared", nodeName=OTHER), pod("reader", "shared", nodeName=SERVER))
    for name in ("writer", "reader"):
        wait(cluster, partial(cluster.ready, name), f"{name} is ready")
    cluster.inside("writer", "sh", "-c", "echo kept >/data/file; sync")
    wait(cluster, lambda: cluster.inside("reader", "cat", "/data/file") == "kept\n", "the other reads it")
    assert mounted(cluster, OTHER)
    cluster.apply(claim("shared", "32Mi"))
    wait(cluster, lambda: cluster.get("pvc", "shared")["status"]["capacity"]["storage"] == "32Mi", "it has grown")
    for name in ("writer", "reader"):
        gone(cluster, "pod", name)
    wait(cluster, lambda: not mounted(cluster, OTHER), "the mount is taken away")
    assert cluster.on(SERVER, ["cat", f"{SHARE}/{volume}/file"]) == "kept\n"
    gone(cluster, "pvc", "shared")
    wait(cluster, lambda: not exists(cluster, "pv", volume), "the volume goes")
    assert volume not in cluster.on(SERVER, ["ls", SHARE]).split()


def test_pods_go_on_after_the_server_was_away(cluster: LabCluster) -> None:
    cluster.apply(claim("lasting", "16Mi"), pod("patient", "lasting", nodeName=OTHER))
    wait(cluster, partial(cluster.ready, "patient"), "it runs")
    cluster.inside("patient", "sh", "-c", "echo before >/data/file; sync")
    cluster.on(SERVER, ["systemctl", "stop", "nfs-server"], timeout_s=120)
    try:
        waiting = "(echo after >>/data/file; sync; echo done >/tmp/done) >/dev/null 2>&1 &"
        cluster.inside("patient", "sh", "-c", waiting)
    finally:
        cluster.on(SERVER, ["systemctl", "start", "nfs-server"], timeout_s=120)
    wait(cluster, lambda: "done" in cluster.inside("patient", "cat", "/tmp/done"), "it goes on")
    assert cluster.inside("patient", "cat", "/data/file") == "before\nafter\n"
    gone(cluster, "pod", "patient")
    gone(cluster, "pvc", "lasting")


def room(cluster: LabCluster) -> set[str]:
    """Return the classes for which a driver says how much room there is, as often as it does."""
    found = cluster.get("csistoragecapacities", "-A")["items"]
    return {f"{one['storageClassName']} {one['nodeTopology']['matchLabels']}" for one in found}


def told(cluster: LabCluster, name: str) -> str:
    conditions = cluster.get("pod", name)["status"].get("conditions") or []
    return next((str(one.get("message")) for one in conditions if one["type"] == "PodScheduled"), "")


def test_pods_go_where_a_driver_has_room(cluster: LabCluster) -> None:
    """Each machine has 10Gi of the class "slow": the second volume of 8Gi has to be on the other one."""
    if upstream_csi.sources() is None:
        pytest.skip("no checkout of csi-driver-host-path")
    if not exists(cluster, "csidriver", upstream_csi.DRIVER):
        upstream_csi.deploy_distributed(cluster)
    slow = "csi-hostpath-slow"
    wait(cluster, lambda: len(room(cluster)) == 4, "both machines tell of both classes")
    cluster.apply(claim("huge", "11Gi", slow, "ReadWriteOnce"), pod("never", "huge"))
    wait(cluster, lambda: "did not have enough free storage" in told(cluster, "never"), "no machine has 11Gi")
    cluster.apply(claim("one", "8Gi", slow, "ReadWriteOnce"), pod("first", "one"))
    wait(cluster, partial(cluster.ready, "first"), "the first runs")
    place = cluster.get("pod", "first")["spec"]["nodeName"]
    wait(cluster, lambda: smallest(cluster, slow) < 8 << 30, "its machine tells that there is less room")
    cluster.apply(claim("two", "8Gi", slow, "ReadWriteOnce"), pod("second", "two"))
    wait(cluster, partial(cluster.ready, "second"), "the second runs")
    assert {place, cluster.get("pod", "second")["spec"]["nodeName"]} == {SERVER, OTHER}
    for name in ("never", "first", "second"):
        gone(cluster, "pod", name)
    for name in ("huge", "one", "two"):
        gone(cluster, "pvc", name)


def smallest(cluster: LabCluster, storage_class: str) -> int:
    found = cluster.get("csistoragecapacities", "-A")["items"]
    return min(to_bytes(one["capacity"]) for one in found if one["storageClassName"] == storage_class)
