"""Volumes, claims and what a node can have of them, as upstream's tests make them: bound before anybody looks.

Source: kubernetes ``test/utils/runners.go`` (``CreatePodWithPersistentVolume``, ``NodeAllocatableStrategy``).
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CSI_NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import Api
from tests.benchmarks.deciding.scheduler_perf.making import create

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
_BOUND = {"status": {"phase": "Bound"}}


def bound_pair(volume: JsonObject, claim: JsonObject, namespace: str, index: int) -> tuple[JsonObject, JsonObject]:
    """Return a volume and a claim that are bound to each other, for the pod of an index."""
    name, claimed = f"{namespace}-vol-{index}", f"pvc-{index}"
    spec = {**objects.spec(volume), "claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claimed,
    }}  # fmt: skip
    if "csi" in spec:
        spec["csi"] = {**spec["csi"], "volumeHandle": name}
    meta = {**objects.metadata(claim), "name": claimed, "namespace": namespace}
    bound = {**claim, "metadata": meta, "spec": {**objects.spec(claim), "volumeName": name}}
    return {**volume, "metadata": {**objects.metadata(volume), "name": name}, "spec": spec}, bound


def create_pair(client: Api, volume: JsonObject, claim: JsonObject) -> None:
    """Make both; their phase is written apart, as creating an object leaves its status out."""
    create(client, PERSISTENT_VOLUME_CLAIM, claim)
    name, namespace = objects.name(claim), objects.namespace(claim)
    client.patch(PERSISTENT_VOLUME_CLAIM, name, namespace, _BOUND, subresource="status")
    create(client, PERSISTENT_VOLUME, volume)
    client.patch(PERSISTENT_VOLUME, objects.name(volume), "", _BOUND, subresource="status")


def with_claim(pod: JsonObject, claim: JsonObject) -> JsonObject:
    """Return a pod whose only volume is the claim's."""
    volume = {"name": "vol", "persistentVolumeClaim": {"claimName": objects.name(claim)}}
    return {**pod, "spec": {**objects.spec(pod), "volumes": [volume]}}


def with_allocatable(node: JsonObject, more: JsonObject) -> JsonObject:
    """Return a node that also has these amounts for pods."""
    status = objects.status(node)
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **more}}}


def create_csi_node(client: Api, name: str, strategy: JsonObject) -> None:
    """Say how many volumes of each driver a node can have."""
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": allocatable}
        for driver, allocatable in (strategy.get("csiNodeAllocatable") or {}).items()
    ]
    annotations = {_MIGRATED: ",".join(strategy.get("migratedPlugins") or [])}
    create(client, CSI_NODE, {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}})
