"""Volumes on a real NFS server: two machines with kernels of their own, one of them the server.

S-20 to S-23 of the original: a claim is bound, a pod writes, goes, and its successor on the other machine reads what it
wrote; a claim that goes leaves the data. The original's own manifests do so, too, and volumes that are made for claims
on the server. Then faults: the server is away, a machine dies while it has the volume mounted, somebody unmounts it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.volumes.mounts import parse_mountinfo
from tests.machines.test_ipvs_whole import IMAGE, MEMORY_MIB, QUICK, lend
from tests.support.clusters.labcluster import LabCluster

SERVER, OTHER = "control1", "worker1"
EXPORT = "/srv/minik8s"
SHOP = f"{EXPORT}/shop"
WAIT_S, AWAY_S = 400, 60


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """The cluster; MINIK8S_NFS in the environment names a lab to use again, and to keep."""
    name = os.environ.get("MINIK8S_NFS") or lab_name
    made = LabCluster(
        name,
        workers=1,
        control_is_node=True,
        kind="uml",
        memory_mib=MEMORY_MIB,
        beside=["lab_ipvs", "lab_nfs"],
        variables=QUICK,
    )
    try:
        made.up()
        if not made.kubeconfig.exists():
            for machine in (SERVER, OTHER):
                lend(made, machine)
            made.install()
        made.on(SERVER, ["install", "-d", "-m", "0777", SHOP])
        made.apply(volume(made), claim())
        wait(made, lambda: made.get("pvc", "shop")["status"].get("phase") == "Bound")
        yield made
    finally:
        if name == lab_name:
            made.close()


def volume(cluster: LabCluster, name: str = "shop", path: str = SHOP) -> JsonObject:
    """Return a volume on the server; its clients give up after 3 times 5 s instead of waiting for ever."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "nfs",
        "persistentVolumeReclaimPolicy": "Retain",
        "mountOptions": ["vers=4.2"],
        "nfs": {"server": cluster.address(SERVER), "path": path},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str = "shop") -> JsonObject:
    """Return a claim that any volume of the class can serve."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "nfs",
        "resources": {"requests": {"storage": "500Mi"}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, node: str, source: JsonObject | None = None, *containers: str) -> JsonObject:
    """Return a pod of a node, each container with the volume at /data."""
    made = [
        {
            "name": each,
            "image": IMAGE,
            "command": ["sleep", "100000"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        for each in containers or ("app",)
    ]
    volumes = [{"name": "data", **(source or {"persistentVolumeClaim": {"claimName": "shop"}})}]
    spec = {"nodeName": node, "containers": made, "volumes": volumes, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def wait(cluster: LabCluster, condition: Callable[[], Any], told: str = "") -> None:
    """Wait until something is so; a UML machine beside busy processes takes minutes for a pod."""
    cluster.until(condition, WAIT_S, told)


def mounted(cluster: LabCluster, machine: str) -> list[str]:
    """Return where a machine has NFS mounted for pods; the server has the type "nfsd" mounted as well, for itself."""
    found = parse_mountinfo(cluster.on(machine, ["cat", "/proc/self/mountinfo"]))
    return [each.point for each in found if each.kind in {"nfs", "nfs4"}]


def free(cluster: LabCluster, machine: str) -> bool:
    """Return whether a machine has nothing mounted for pods."""
    return not mounted(cluster, machine)


def gone(cluster: LabCluster, name: str) -> None:
    """Delete a pod and wait until nothing of it is left."""
    cluster.kubectl("delete", "pod", name, "--wait=false")
    wait(cluster, lambda: f"pod/{name}" not in cluster.kubectl("get", "pods", "-o", "name"), f"{name} is deleted")


def test_a_pods_data_is_there_for_its_successor_on_another_machine(cluster: LabCluster) -> None:
    cluster.apply(pod("first", OTHER, None, "app", "sidecar"))
    wait(cluster, lambda: cluster.ready("first"))
    assert len(mounted(cluster, OTHER)) == 1, "both containers share one mount"
    cluster.kubectl("exec", "first", "-c", "app", "--", "sh", "-c", "echo kept >/data/file")
    assert cluster.kubectl("exec", "first", "-c", "sidecar", "--", "cat", "/data/file") == "kept\n"
    gone(cluster, "first")
    wait(cluster, lambda: not mounted(cluster, OTHER), "the mount is taken away")
    assert cluster.on(SERVER, ["cat", f"{SHOP}/file"]) == "kept\n"
    cluster.apply(pod("second", SERVER))
    wait(cluster, lambda: cluster.ready("second"))
    assert cluster.inside("second", "cat", "/data/file") == "kept\n"
    gone(cluster, "second")


def test_an_inline_volume_is_mounted_and_healed(cluster: LabCluster) -> None:
    cluster.apply(pod("inline", OTHER, {"nfs": {"server": cluster.address(SERVER), "path": EXPORT}}))
    wait(cluster, lambda: cluster.ready("inline"))
    (place,) = mounted(cluster, OTHER)
    cluster.on(OTHER, ["umount", "-l", place])
    wait(cluster, lambda: mounted(cluster, OTHER) == [place], "it is mounted again")
    gone(cluster, "inline")


def test_a_wrong_export_is_told_and_mended(cluster: LabCluster) -> None:
    cluster.apply(pod("lost", OTHER, {"nfs": {"server": cluster.address(SERVER), "path": "/srv/none"}}))
    wait(cluster, lambda: "FailedMount" in cluster.kubectl("get", "events", "-o", "custom-columns=R:.reason"))
    assert "/srv/none" in cluster.kubectl("get", "events")
    gone(cluster, "lost")


def test_pods_go_on_after_the_server_was_away(cluster: LabCluster) -> None:
    cluster.apply(pod("patient", OTHER))
    wait(cluster, lambda: cluster.ready("patient"))
    writer = "i=0; while :; do i=$((i+1)); echo $i >/data/count; sync; sleep 0.2; done >/dev/null 2>&1 &"
    cluster.inside("patient", "sh", "-c", writer)
    wait(cluster, lambda: cluster.on(SERVER, ["cat", f"{SHOP}/count"]).strip())
    cluster.on(SERVER, ["systemctl", "stop", "nfs-server"], timeout_s=120)
    begun = time.monotonic()
    try:
        stopped = int(cluster.on(SERVER, ["cat", f"{SHOP}/count"]).strip() or 0)
        cluster.apply(pod("held", OTHER))  # cannot start, and holds up nobody
        cluster.apply(pod("free", OTHER, {"emptyDir": {}}))
        wait(cluster, lambda: cluster.ready("free"), "a pod without the volume starts beside the silent server")
        assert not cluster.ready("held")
        wait(cluster, lambda: time.monotonic() > begun + AWAY_S, "a minute has passed")
    finally:
        cluster.on(SERVER, ["systemctl", "start", "nfs-server"], timeout_s=120)
    wait(cluster, lambda: int(cluster.on(SERVER, ["cat", f"{SHOP}/count"]).strip() or 0) > stopped + 1, "it goes on")
    wait(cluster, lambda: cluster.ready("held"))
    for name in ("patient", "held", "free"):
        gone(cluster, name)


def test_a_folder_that_the_server_has_forgotten_is_mounted_again(cluster: LabCluster) -> None:
    """Its handle is stale: the folder is deleted and made anew behind the mount."""
    place = f"{EXPORT}/replaced"
    cluster.on(SERVER, ["install", "-d", "-m", "0777", place])
    source = {"nfs": {"server": cluster.address(SERVER), "path": place}}
    cluster.apply(pod("before", OTHER, source))
    wait(cluster, lambda: cluster.ready("before"))
    cluster.on(SERVER, ["sh", "-c", f"rm -r {place} && install -d -m 0777 {place} && echo new >{place}/file"])
    cluster.apply(pod("after", OTHER, source))
    wait(cluster, lambda: cluster.ready("after"), "a Pod that comes then has the new folder")
    assert cluster.inside("after", "cat", "/data/file") == "new\n"
    (uid,) = [cluster.get("pod", "before")["metadata"]["uid"]]
    script = f"for m in $(grep -o '/[^ ]*{uid}[^ ]*' /proc/self/mountinfo); do cat $m/file; done 2>/dev/null || true"
    told = "the stale mount is made again, by the look that every node gets each five minutes"
    cluster.until(lambda: cluster.on(OTHER, ["sh", "-c", script]) == "new\n", 3 * WAIT_S, told)
    for name in ("before", "after"):
        gone(cluster, name)


SMALL = """
set -e
truncate --size 24M /small.img
mkfs.ext4 -q -m 0 /small.img
mkdir -p /srv/small
mount -o loop /small.img /srv/small
chmod 0777 /srv/small
echo '/srv/small *(rw,sync,no_subtree_check)' >/etc/exports.d/small.exports
exportfs -ra
"""


def test_a_full_disk_of_the_server_is_told_and_takes_nothing_away(cluster: LabCluster) -> None:
    cluster.on(SERVER, ["sh", "-c", SMALL])
    try:
        source = {"nfs": {"server": cluster.address(SERVER), "path": "/srv/small"}}
        cluster.apply(pod("filler", OTHER, source))
        wait(cluster, lambda: cluster.ready("filler"))
        fill = (
            "echo kept >/data/kept; dd if=/dev/zero of=/data/much bs=1M count=64; sync; cat /data/kept; rm /data/much"
        )
        told = cluster.inside("filler", "sh", "-c", f"{{ {fill}; }} 2>&1")
        assert "No space left on device" in told
        assert "kept" in told.splitlines()
        assert cluster.inside("filler", "sh", "-c", "echo again >/data/again && cat /data/again") == "again\n"
        gone(cluster, "filler")
        wait(cluster, lambda: not mounted(cluster, OTHER), "the mount is taken away")
    finally:
        undo = "rm -f /etc/exports.d/small.exports; exportfs -ra; exportfs -f; umount /srv/small; rm /small.img"
        cluster.on(SERVER, ["sh", "-c", undo])


def boot(cluster: LabCluster) -> str:
    """Return which start of the machine the pod "doomed" was last seen to run in: that of its container."""
    states = cluster.get("pod", "doomed")["status"].get("containerStatuses") or [{}]
    return str(states[0].get("containerID"))


def test_a_machine_that_dies_while_it_has_the_volume_leaves_the_data(cluster: LabCluster) -> None:
    cluster.apply(pod("doomed", OTHER))
    wait(cluster, lambda: cluster.ready("doomed"))
    cluster.inside("doomed", "sh", "-c", "echo written >/data/last; sync")
    before = boot(cluster)
    cluster.lab.power_cut(OTHER)
    assert cluster.on(SERVER, ["cat", f"{SHOP}/last"]) == "written\n"
    cluster.lab.start(OTHER)
    wait(cluster, lambda: boot(cluster) != before and cluster.ready("doomed"), "it is there again")
    wait(cluster, lambda: len(mounted(cluster, OTHER)) == 1)
    assert cluster.inside("doomed", "cat", "/data/last") == "written\n"
    gone(cluster, "doomed")


def test_a_claim_that_goes_leaves_the_data(cluster: LabCluster) -> None:
    cluster.on(SERVER, ["sh", "-c", f"echo stays >{SHOP}/stays"])
    cluster.kubectl("delete", "pvc", "shop", "--wait=false")
    wait(cluster, lambda: cluster.get("pv", "shop")["status"].get("phase") == "Released")
    assert cluster.on(SERVER, ["cat", f"{SHOP}/stays"]) == "stays\n"


def storage_class(cluster: LabCluster, name: str, policy: str) -> JsonObject:
    """Return a class of volumes on the server."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "minik8s.io/nfs",
        "reclaimPolicy": policy,
        "parameters": {"server": cluster.address(SERVER), "share": EXPORT},
    }


def original(name: str, kind: str, **spec: str) -> JsonObject:
    """Return a volume or claim as the original MiniK8s has them."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": {"storageClassName": "nfs", **spec}}


def phase(cluster: LabCluster, kind: str, name: str) -> str:
    """Return the phase of a volume or claim, "" where there is none."""
    if f"/{name}\n" not in cluster.kubectl("get", kind, "-o", "name"):
        return ""
    return str(cluster.get(kind, name).get("status", {}).get("phase"))


def folder(cluster: LabCluster, name: str) -> str:
    """Return the folder of a volume on the server."""
    path = str(cluster.get("pv", name)["spec"]["nfs"]["path"])
    wait(cluster, lambda: cluster.on(SERVER, ["sh", "-c", f"test -d {path} && echo yes || true"]), "it is made")
    return path


def test_the_originals_volumes_stand_on_nfs(cluster: LabCluster) -> None:
    """S-20 to S-23: test-pv has 1Gi and is given to test-pvc-1; one is made for test-pvc-2."""
    cluster.apply(storage_class(cluster, "nfs", "Retain"), original("test-pv", "PersistentVolume", capacity="1Gi"))
    wait(cluster, lambda: phase(cluster, "pv", "test-pv") == "Available")
    cluster.apply(original("test-pvc-1", "PersistentVolumeClaim", request="500Mi"))
    wait(cluster, lambda: phase(cluster, "pv", "test-pv") == "Bound" == phase(cluster, "pvc", "test-pvc-1"))
    data = folder(cluster, "test-pv")
    cluster.apply(original("test-pvc-2", "PersistentVolumeClaim", request="500Mi"))
    wait(cluster, lambda: phase(cluster, "pvc", "test-pvc-2") == "Bound")
    assert cluster.get("pv", "pv-test-pvc-2")["spec"]["capacity"] == {"storage": "500Mi"}
    for machine, before in ((OTHER, "none"), (SERVER, "kept")):
        made = pod("pvc-pod", machine, {"persistentVolumeClaim": {"claimName": "test-pvc-1"}}, "c1", "sidecar")
        made["spec"]["volumes"].append({"name": "scratch", "emptyDir": {}})
        made["spec"]["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
        cluster.apply(made)
        wait(cluster, lambda: cluster.ready("pvc-pod"))
        look = "cat /data/x 2>/dev/null || echo none; ls /scratch; echo kept >/data/x; touch /scratch/y"
        assert cluster.kubectl("exec", "pvc-pod", "-c", "c1", "--", "sh", "-c", look).split() == [before]
        assert cluster.kubectl("exec", "pvc-pod", "-c", "sidecar", "--", "cat", "/data/x") == "kept\n"
        assert mounted(cluster, machine)
        gone(cluster, "pvc-pod")
        wait(cluster, partial(free, cluster, machine), "the mount is taken away")
    cluster.kubectl("delete", "pvc", "test-pvc-1", "--wait=false")
    wait(cluster, lambda: phase(cluster, "pv", "test-pv") == "Available")
    assert "claimRef" not in cluster.get("pv", "test-pv")["spec"]
    assert cluster.on(SERVER, ["cat", f"{data}/x"]) == "kept\n"


def test_a_volume_is_made_on_the_server_and_goes_with_its_claim(cluster: LabCluster) -> None:
    wanted = claim("made")
    wanted["spec"]["storageClassName"] = "gone-after"
    cluster.apply(storage_class(cluster, "gone-after", "Delete"), wanted)
    wait(cluster, lambda: phase(cluster, "pvc", "made") == "Bound")
    name = str(cluster.get("pvc", "made")["spec"]["volumeName"])
    data = folder(cluster, name)
    source = {"persistentVolumeClaim": {"claimName": "made"}}
    plain = pod("plain", OTHER, source)
    plain["spec"]["securityContext"] = {"runAsUser": 1000}
    cluster.apply(pod("root", SERVER, source), plain)
    for each in ("root", "plain"):
        wait(cluster, partial(cluster.ready, each))
        cluster.inside(each, "sh", "-c", f"mkdir /data/{each} && echo text >/data/{each}/file")
    for each in ("root", "plain"):
        gone(cluster, each)
    assert cluster.on(SERVER, ["ls", data]).split() == ["plain", "root"]
    cluster.kubectl("delete", "pvc", "made", "--wait=false")
    wait(cluster, lambda: not phase(cluster, "pv", name), "the volume goes")
    left = cluster.on(SERVER, ["ls", "-A", EXPORT]).split()
    assert "shop" in left
    assert not [each for each in left if str(data.rsplit("/", 1)[-1]) in each or each.startswith(".")]


def test_who_names_the_export_finds_nobodys_volumes(cluster: LabCluster) -> None:
    cluster.apply(pod("curious", OTHER, {"nfs": {"server": cluster.address(SERVER), "path": EXPORT}}))
    wait(cluster, lambda: cluster.ready("curious"))
    tried = "ls /data || echo unlisted; touch /data/file || echo unwritten"
    assert cluster.inside("curious", "sh", "-c", f"{{ {tried}; }} 2>/dev/null") == "unlisted\nunwritten\n"
    gone(cluster, "curious")
