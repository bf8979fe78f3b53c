"""Virtual machines on several machines: a guest's disk moves with it, and a lost node never leads to two guests.

Guests are User-Mode Linux, and their disk is a claim on a folder that all nodes share. What a node that is lost does,
nobody knows: so the guest starts elsewhere only once somebody says that the node is off, and where that was not true,
the lock on the disk holds the second guest back.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import LabCluster, is_true
from tests.support.docker.virt_launcher import kernel
from tests.support.docker.vm_guests import UML_DISK, disk_image, uml_disk

PLAYBOOK = "extensions/virtual-machines/playbooks/install.yml"
WAIT_S = 400
SHARED = "/mnt/host/claim"
NAME = "one"
UNREACHABLE, OUT_OF_SERVICE = (
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
)
SOON = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for key in (UNREACHABLE, "node.kubernetes.io/not-ready")
]


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """A control plane and two nodes; MINIK8S_VMS in the environment names a lab to use again, and to keep."""
    name = os.environ.get("MINIK8S_VMS") or lab_name
    made = LabCluster(name, workers=2)
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
        shutil.copy(kernel(), made.lab.folder / "share" / "linux")
        made.play(PLAYBOOK, "-e", "launcher_qemu=false", "-e", "launcher_uml=/mnt/host/linux")
        disk_image(UML_DISK, uml_disk())
        made.load_image(UML_DISK)
        made.on("control1", ["mkdir", "-p", SHARED])
        yield made
    finally:
        if name == lab_name:
            made.close()


@pytest.fixture
def vm(cluster: LabCluster) -> Iterator[LabCluster]:
    """The cluster with a machine that runs, whose disk says ``kept``; nothing of it stays."""
    cluster.on("control1", ["sh", "-c", f"rm -f {SHARED}/*"])
    room = {"storage": "8Mi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": room, "hostPath": {"path": SHARED}}
    claim = {**common, "resources": {"requests": room}, "volumeName": "disk"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": claim},
        machine(),
    )
    wait(cluster, lambda: page(cluster) == "guest", "the guest answers")
    script = "printf '%s\\n' \"$1\" | /usr/bin/vmctl console"
    line = "printf kept > /tmp/x; dd if=/tmp/x of=/dev/ubdb conv=fsync,notrunc"
    cluster.inside(pod(cluster), "/bin/busybox", "sh", "-c", script, "type", line)
    yield cluster
    for node in cluster.workers:  # where a test has failed half-way
        cluster.lab.start(node)
        cluster.lab.rejoin(node)
    wait(cluster, lambda: {*cluster.workers} <= {*cluster.ready_nodes()})
    for node in cluster.workers:
        cluster.kubectl("uncordon", node)
        if OUT_OF_SERVICE.partition("=")[0] in cluster.kubectl("get", "node", node, "-o", "jsonpath={.spec.taints}"):
            cluster.kubectl("taint", "node", node, f"{OUT_OF_SERVICE}-")
    cluster.kubectl("delete", "vm", NAME, "--timeout=300s", timeout_s=330)
    cluster.kubectl("delete", "pvc,pv", "--all", "--timeout=120s", timeout_s=150)


def machine() -> JsonObject:
    """Return a machine of User-Mode Linux that leaves a lost node soon, with a disk on the claim."""
    devices: JsonObject = {"disks": [{"name": name, "disk": {}} for name in ("root", "data")]}
    spec = {
        "domain": {"machine": {"type": "uml"}, "memory": {"guest": "64Mi"}, "devices": devices},
        "tolerations": SOON,
        "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "root", "containerDisk": {"image": UML_DISK}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
        ],
    }
    template = {"metadata": {"labels": {"app": NAME}}, "spec": spec}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": NAME},
        "spec": {"runStrategy": "Always", "template": template},
    }


def wait(cluster: LabCluster, condition: Callable[[], Any], told: str = "") -> Any:
    """Wait until something is so."""
    return cluster.until(condition, WAIT_S, f"{told} {cluster.kubectl('get', 'vm,vmi', '-o', 'yaml')[-3000:]}")


def pods(cluster: LabCluster) -> list[JsonObject]:
    """Return the machine's pods."""
    return list(cluster.get("pods", "-l", f"vm.kubevirt.io/name={NAME}")["items"])


def pod(cluster: LabCluster) -> str:
    """Return the name of the machine's one pod, "" while there is none."""
    found = pods(cluster)
    assert len(found) < 2, [objects.name(each) for each in found]
    return objects.name(found[0]) if found else ""


def node_of(cluster: LabCluster) -> str:
    """Return the node of the machine's pod."""
    return next((str(each["spec"].get("nodeName") or "") for each in pods(cluster)), "")


def page(cluster: LabCluster, path: str = "") -> str:
    """Return what the guest serves to its own node, "" while it does not answer."""
    found = next(iter(pods(cluster)), {})
    address = objects.status(found).get("podIP")
    if not address:
        return ""
    script = f"curl -s -m 5 http://{address}/{path} | tr -d '\\0'"
    return cluster.on(found["spec"]["nodeName"], ["sh", "-c", script]).strip()


def kept(cluster: LabCluster) -> bool:
    """Return whether the guest answers, with the disk as it was left."""
    return page(cluster, "ubdb").startswith("kept")


def ready(cluster: LabCluster) -> JsonObject:
    """Return the machine's condition Ready."""
    return objects.condition(cluster.get("vm", NAME), "Ready") or {}


def launchers(cluster: LabCluster, node: str) -> list[str]:
    """Return the containers of launchers that run on a node."""
    return cluster.on(node, ["docker", "ps", "--quiet", "--filter", "label=minik8s.io/container=compute"]).split()


def test_a_disk_moves_with_its_guest(vm: LabCluster) -> None:
    """Stopped and started elsewhere; then drained to where it was."""
    first = node_of(vm)
    vm.kubectl("cordon", first)
    vm.kubectl("patch", "vm", NAME, "--type=merge", "-p", '{"spec": {"runStrategy": "Halted"}}')
    wait(vm, lambda: not pods(vm), "it stops")
    vm.kubectl("patch", "vm", NAME, "--type=merge", "-p", '{"spec": {"runStrategy": "Always"}}')
    wait(vm, functools.partial(kept, vm), "it finds its disk")
    second = node_of(vm)
    assert second != first

    vm.kubectl("uncordon", first)
    vm.kubectl("drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s", timeout_s=330)
    wait(vm, lambda: node_of(vm) == first and kept(vm), "it is there again")


def leave(cluster: LabCluster, node: str) -> None:
    """Wait until the cluster has given the pod of a silent node up, and see that no second one comes."""
    wait(cluster, lambda: ready(cluster).get("reason") == "PodTerminating", "its pod is to go")
    assert f"once node {node} is certainly off" in ready(cluster)["message"]
    assert node_of(cluster) == node
    assert pod(cluster)


def test_after_a_power_cut_it_runs_once_and_once_only(vm: LabCluster) -> None:
    node = node_of(vm)
    vm.lab.power_cut(node)
    leave(vm, node)
    vm.kubectl("taint", "node", node, OUT_OF_SERVICE)
    wait(vm, lambda: node_of(vm) != node and kept(vm), "it runs on the other node")
    vm.lab.start(node)
    wait(vm, lambda: is_true(vm.get("node", node), "Ready"), "the node is back")
    vm.kubectl("taint", "node", node, f"{OUT_OF_SERVICE}-")
    wait(vm, lambda: not launchers(vm, node), "nothing of it is left on the node that was off")
    assert kept(vm)
    assert node_of(vm) != node
    assert pod(vm)


def test_a_node_that_was_not_off_keeps_the_disk_until_it_is_back(vm: LabCluster) -> None:
    """Somebody says that a node is off, and it is only cut off: its guest runs on."""
    node = node_of(vm)
    vm.lab.cut_off(node)
    leave(vm, node)
    vm.kubectl("taint", "node", node, OUT_OF_SERVICE)
    wait(vm, lambda: ready(vm).get("reason") == "DiskInUse", "the disk is in use")
    assert "in use by another machine" in ready(vm)["message"]
    assert node_of(vm) != node
    assert not kept(vm)
    vm.lab.rejoin(node)
    wait(vm, functools.partial(kept, vm), "the guest on the other node has the disk")
    wait(vm, lambda: not launchers(vm, node), "nothing of it is left on the node that was cut off")
