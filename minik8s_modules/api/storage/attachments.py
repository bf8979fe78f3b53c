"""Attachments of CSI volumes to nodes: whether a driver wants any, what they are called, who has them. Pure.

A node lists in ``status.volumesInUse`` what it may have mounted, and mounts nothing before; the controllers list in
``status.volumesAttached`` what they will not detach. Both are fields of one object, so that of two writes one sees the
other.

Source: kubernetes ``pkg/volume/csi`` (``csi_attacher.go``, ``getAttachmentName``; ``csi_plugin.go``, ``skipAttach``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

_PLUGIN = "kubernetes.io/csi/"
_NODE_SECRETS = {"stage": "nodeStageSecretRef", "publish": "nodePublishSecretRef", "expand": "nodeExpandSecretRef"}


def driver_of(volume: JsonObject) -> str:
    """Return the CSI driver of a PersistentVolume, "" for any other."""
    return str(objects.dig(volume, "spec", "csi", "driver") or "")


def needs_attachment(driver: JsonObject | None) -> bool:
    """Return whether a driver's volumes are attached before they are mounted: unless its CSIDriver says no."""
    return driver is None or objects.spec(driver).get("attachRequired") is not False


def attachment_name(volume: JsonObject, node: str) -> str:
    """Return the name of the VolumeAttachment of a PersistentVolume to a node."""
    handle = str(objects.dig(volume, "spec", "csi", "volumeHandle") or "")
    return "csi-" + hashlib.sha256(f"{handle}{driver_of(volume)}{node}".encode()).hexdigest()


def unique_name(driver: str, handle: str) -> str:
    """Return what a Node calls a driver's volume (``csi_plugin.go``, GetVolumeName; ``util.GetUniqueVolumeName``)."""
    return f"{_PLUGIN}{driver}^{handle}"


def node_name_of(volume: JsonObject) -> str:
    """Return what Nodes call a PersistentVolume of a driver."""
    return unique_name(driver_of(volume), str(objects.dig(volume, "spec", "csi", "volumeHandle") or ""))


def in_use(node: JsonObject) -> frozenset[str]:
    """Return the volumes that a node may have mounted."""
    return frozenset(str(each) for each in objects.status(node).get("volumesInUse") or ())


def attached(node: JsonObject) -> frozenset[str]:
    """Return the volumes that are attached to a node and stay so while it uses them."""
    return frozenset(str(each.get("name") or "") for each in objects.status(node).get("volumesAttached") or ())


def with_attached(node: JsonObject, volumes: Iterable[JsonObject]) -> JsonObject:
    """Return a Node as it will be once the drivers' volumes among ``volumes`` are attached to it, and used there."""
    names = {node_name_of(volume) for volume in volumes if driver_of(volume)}
    if not names:
        return node
    lists = {"volumesInUse": sorted(in_use(node) | names), "volumesAttached": attached_rows(attached(node) | names)}
    return {**node, "status": {**objects.status(node), **lists}}


def attached_rows(names: Iterable[str]) -> list[JsonObject] | None:
    """Return ``status.volumesAttached``, None for none; the device is the driver's own affair, and empty."""
    return [{"name": name, "devicePath": ""} for name in sorted(names)] or None


def node_secrets(volume: JsonObject) -> dict[str, str]:
    """Return the Secrets that a driver is told on nodes, ``<namespace>/<name>`` by the call.

    Source: kubernetes ``pkg/api/v1/persistentvolume/util.go``, VisitPVSecretNames (kubeletVisible).
    """
    declared = objects.dig(volume, "spec", "csi") or {}
    refs = {call: declared.get(field) or {} for call, field in _NODE_SECRETS.items()}
    return {
        call: f"{ref['namespace']}/{ref['name']}"
        for call, ref in refs.items()
        if ref.get("namespace") and ref.get("name")
    }
