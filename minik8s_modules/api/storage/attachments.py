"""Attachments of CSI volumes to nodes: whether a driver wants any, and what they are called. Pure.

Source: kubernetes ``pkg/volume/csi`` (``csi_attacher.go``, ``getAttachmentName``; ``csi_plugin.go``, ``skipAttach``).
"""

from __future__ import annotations

import hashlib

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


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
