"""Nodes and pods in few words, for the scheduler's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minik8s_modules.api.kinds import EVENT, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi


def node(name: str, **fields: Any) -> JsonObject:
    """Return a ready node with 4 cpus, 8 GiB and 110 pods, changed by ``fields``."""
    ready = fields.get("ready", "True")
    spec = {key: fields[key] for key in ("unschedulable", "taints") if key in fields}
    amounts = {
        "cpu": fields.get("cpu", "4"),
        "memory": fields.get("memory", "8Gi"),
        "pods": str(fields.get("pods", 110)),
    }
    return {
        "metadata": {"name": name, "labels": fields.get("labels", {})},
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
        },
    }


def pod(name: str, **spec: Any) -> JsonObject:
    """Return an unbound pod with one container that asks for nothing, changed by ``spec``."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "app"}], **spec},
        "status": {"phase": "Pending"},
    }


def placed(number: int, fields: JsonObject) -> JsonObject:
    """Return a bound pod: ``{node, requests, ports, phase, labels, namespace, affinity}``."""
    container = {
        "name": "app",
        "resources": {"requests": fields.get("requests", {})},
        "ports": fields.get("ports", []),
    }
    made = pod(f"placed-{number}", nodeName=fields["node"], containers=[container])
    made["status"]["phase"] = fields.get("phase", "Running")
    made["metadata"] |= {"labels": fields.get("labels", {}), "namespace": fields.get("namespace", "default")}
    made["spec"]["affinity"] = fields.get("affinity", {})
    return made


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def node_of(api: FakeApi, name: str) -> str:
    return str(api.get(POD, name, "default")["spec"].get("nodeName", ""))


def condition_of(api: FakeApi, name: str) -> dict[str, str]:
    conditions = api.get(POD, name, "default")["status"].get("conditions", [])
    return dict(next((each for each in conditions if each["type"] == "PodScheduled"), {}))


def events(api: FakeApi) -> list[tuple[str, str]]:
    return [(event["reason"], event["message"]) for event in api.list(EVENT).items]


def claim(name: str, **fields: Any) -> JsonObject:
    """Return a claim of 1Gi, changed by ``fields``: ``{class, size, modes, volume, bound, phase, selector}``."""
    spec = {
        "accessModes": fields.get("modes", ["ReadWriteOnce"]), "storageClassName": fields.get("class", ""),
        "resources": {"requests": {"storage": fields.get("size", "1Gi")}}, "volumeName": fields.get("volume", ""),
    }  # fmt: skip
    if "selector" in fields:
        spec["selector"] = fields["selector"]
    bound = fields.get("bound", "volume" in fields)
    marks = {**fields.get("annotations", {}), **({"pv.kubernetes.io/bind-completed": "yes"} if bound else {})}
    meta = {"name": name, "namespace": fields.get("namespace", "default"), "uid": name, "annotations": marks}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, **fields.get("metadata", {})}}
    return {**made, "spec": spec, "status": {"phase": fields.get("phase", "Bound" if bound else "Pending")}}


def volume(name: str, **fields: Any) -> JsonObject:
    """Return a free volume of 1Gi, changed by ``fields``: ``{class, size, modes, hosts, labels, csi, claim, phase}``.

    Of a ``claim`` it is held; ``hosts`` says at which nodes it is, by their label kubernetes.io/hostname.
    """
    spec: JsonObject = {
        "accessModes": fields.get("modes", ["ReadWriteOnce"]), "storageClassName": fields.get("class", ""),
        "capacity": {"storage": fields.get("size", "1Gi")},
    }  # fmt: skip
    if "hosts" in fields:
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": fields["hosts"]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    if "csi" in fields:
        spec["csi"] = {"driver": fields["csi"], "volumeHandle": name}
    if "claim" in fields:
        spec["claimRef"] = {"namespace": "default", "name": fields["claim"], "uid": fields["claim"]}
    phase = fields.get("phase", "Bound" if "claim" in fields else "Available")
    meta = {"name": name, "uid": name, "labels": fields.get("labels", {})}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def storage_class(name: str, **fields: Any) -> JsonObject:
    """Return a class whose claims wait for a pod's node, changed by ``fields``: ``{mode, provisioner, topologies}``."""
    made = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": fields.get("provisioner", "kubernetes.io/no-provisioner"),
        "volumeBindingMode": fields.get("mode", "WaitForFirstConsumer"),
    }  # fmt: skip
    return {**made, "allowedTopologies": fields["topologies"]} if "topologies" in fields else made


def using(name: str, *claims: str, **spec: Any) -> JsonObject:
    """Return an unbound pod with these claims."""
    volumes = [{"name": f"v{each}", "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, volumes=volumes, **spec)


def csi_driver(name: str, *, capacity: bool = True) -> JsonObject:
    """Return a CSIDriver that says how much room it has, or does not."""
    return {"metadata": {"name": name}, "spec": {"storageCapacity": capacity}}


def storage_capacity(name: str, storage_class: str, **fields: Any) -> JsonObject:
    """Return how much room there is for a class, ``{zone, capacity, most}``; without ``zone`` for no node."""
    made: JsonObject = {"metadata": {"name": name, "namespace": "default"}, "storageClassName": storage_class}
    if "zone" in fields:
        made["nodeTopology"] = {"matchLabels": {"zone": fields["zone"]}}
    if "most" in fields:
        made["maximumVolumeSize"] = fields["most"]
    return {**made, "capacity": fields["capacity"]} if "capacity" in fields else made


def csi_node(name: str, **counts: int) -> JsonObject:
    """Return a CSINode with drivers, each with how many volumes the node can have of it."""
    drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": most}} for driver, most in counts.items()]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}
