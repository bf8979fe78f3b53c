"""A setting of the inventory becomes a resource of the Node, and a device in the container that asks for it."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE
from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.reconcile.conftest import IMAGE, Cluster

RESOURCE = "example.com/zero"
ASKED: dict[str, Any] = {"resources": {"limits": {RESOURCE: "1"}}}
MISSING = "/dev/minik8s-no-such"


@pytest.fixture(scope="module")
def zero() -> Iterator[str]:
    """A device like /dev/zero that containers have by nobody else's doing."""
    path = f"/dev/minik8s-{uuid.uuid4().hex[:8]}"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    yield path
    Path(path).unlink()


def declare(cluster: Cluster, setting: list[dict[str, Any]]) -> None:
    """Write the setting into the daemons' inventory, as a playbook does."""
    path = cluster.folder / "hosts.yml"
    inventory = yaml.safe_load(path.read_text())
    inventory["all"]["hosts"][cluster.node.name]["minik8s_devices"] = setting
    path.with_suffix(".new").write_text(yaml.safe_dump(inventory))
    path.with_suffix(".new").rename(path)


def resources(cluster: Cluster) -> dict[str, str]:
    """Return the extended resources that the Node has to give."""
    allocatable = objects.status(cluster.admin.get(NODE, cluster.node.name)).get("allocatable") or {}
    return {name: amount for name, amount in allocatable.items() if "/" in name}


def devices(cluster: Cluster, name: str) -> list[str]:
    """Return the paths of the devices that the pod's container has in Docker."""
    (found,) = cluster.node.docker.containers({labels.POD_UID: objects.uid(cluster.pod(name)), labels.TYPE: "app"})
    inspect: Any = cluster.node.docker.inspect(found["Id"])
    return [each["PathOnHost"] for each in inspect["HostConfig"]["Devices"] or []]


def of(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"], **more}]}


def test_a_device_is_declared_counted_given_and_taken_away(cluster: Cluster, zero: str) -> None:
    declare(cluster, [{"resource": RESOURCE, "paths": [zero, MISSING]}])
    cluster.until(lambda: resources(cluster) == {RESOURCE: "1"}, 120)
    condition = objects.condition(cluster.admin.get(NODE, cluster.node.name), "minik8s.io/DevicesMissing") or {}
    assert condition["message"] == f"no devices on this node: {RESOURCE}: {MISSING}"

    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "first", "namespace": "default"},
        "spec": of(**ASKED),
    }
    planned = cluster.plan(objects=[body])
    assert zero in str(planned), planned
    cluster.create("first", **of(**ASKED))
    cluster.until(lambda: cluster.ready("first"), 120)
    assert devices(cluster, "first") == [zero]

    cluster.create("plain", **of())
    cluster.create("second", **of(**ASKED))
    cluster.until(lambda: cluster.ready("plain"), 120)
    assert devices(cluster, "plain") == []
    cluster.until(lambda: any(f"Insufficient {RESOURCE}" in event for event in cluster.events("second")))

    # killed, it comes back with the same device
    (found,) = cluster.node.docker.containers({labels.POD_UID: objects.uid(cluster.pod("first")), labels.TYPE: "app"})
    cluster.node.docker.kill(found["Id"], "SIGKILL")
    cluster.until(lambda: cluster.container("first")["restartCount"] == 1 and cluster.ready("first"), 120)
    assert zero in devices_of_newest(cluster, "first")
    cluster.delete("first", 0)
    cluster.until(lambda: cluster.ready("second"), 120)
    assert devices(cluster, "second") == [zero]

    # who passes the scheduler by is refused by the node: the device is somebody's
    cluster.create("pushy", nodeName=cluster.node.name, **of(**ASKED))
    cluster.until(lambda: cluster.pod("pushy")["status"].get("phase") == "Failed")
    assert cluster.pod("pushy")["status"]["reason"] == f"OutOf{RESOURCE}"

    declare(cluster, [])
    cluster.until(lambda: not resources(cluster), 120)


def devices_of_newest(cluster: Cluster, name: str) -> list[str]:
    """Return the paths of the devices of the container that runs."""
    marks = {labels.POD_UID: objects.uid(cluster.pod(name)), labels.TYPE: "app"}
    (found,) = (each for each in cluster.node.docker.containers(marks) if each["State"] == "running")
    inspect: Any = cluster.node.docker.inspect(found["Id"])
    return [each["PathOnHost"] for each in inspect["HostConfig"]["Devices"] or []]
