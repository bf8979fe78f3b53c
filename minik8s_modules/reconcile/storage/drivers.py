"""Volumes of CSI drivers: what the node's driver is to be told, and whether the volume is attached to the node. Pure.

Words are the kubelet's (kubernetes ``pkg/volume/csi``: ``csi_mounter.go``, ``csi_attacher.go``, ``csi_util.go``).
"""

from __future__ import annotations

import hashlib
import json

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import to_bytes
from minik8s_modules.api.storage.attachments import (
    attached,
    attachment_name,
    driver_of,
    in_use,
    needs_attachment,
    node_name_of,
    node_secrets,
)
from minik8s_modules.module_utils.minik8s.entries.volumes import Csi
from minik8s_modules.reconcile.storage.claims import Source, source_of
from minik8s_modules.reconcile.values.environment import ConfigurationMissing
from minik8s_modules.reconcile.values.values import PodInputs

_POD = "csi.storage.k8s.io/"
_GROUPED_MODES = [["ReadWriteOnce"], ["ReadWriteOncePod"]]


def csi_entry(pod: JsonObject, name: str, source: Source, inputs: PodInputs) -> Csi:
    """Return the entry of a driver's volume.

    Raises:
        ConfigurationMissing: it is not attached yet, or the driver makes no volumes of its kind.
    """
    declared: JsonObject = source.volume["csi"]
    driver = inputs.drivers.get(str(declared.get("driver") or ""))
    entry: Csi = {"kind": "csi", "driver": str(declared.get("driver") or ""), "handle": "", "inline": False}
    if source.persistent is None:
        _check_inline(declared, driver)
        entry["inline"] = True
        entry["handle"] = inline_handle(pod, name)
    else:
        entry["handle"] = str(declared.get("volumeHandle") or "")
        entry["read_only"] = source.read_only
        _take_volume(entry, source.persistent, inputs)
        if needs_attachment(driver):
            entry["publish_context"] = _attached(pod, source.persistent, inputs)
    entry["read_only"], entry["options"] = source.read_only, list(source.options)
    entry["fs_type"] = str(declared.get("fsType") or "")
    # what a driver is told of the pod stands over what the pod says itself (csi_mounter.go: mergeMap)
    entry["attributes"] = {**_attributes(declared), **_pod_attributes(pod, driver, inline=source.persistent is None)}
    if secrets := _secrets(pod, source, inputs):
        entry["secrets"] = secrets
    group = objects.dig(pod, "spec", "securityContext", "fsGroup")
    if group is not None and not source.read_only and _gives_to_group(declared, driver, source.persistent):
        entry["fs_group"] = int(group)
    return entry


def used_volumes(pod: JsonObject, inputs: PodInputs) -> frozenset[str]:
    """Return what Nodes call the attached volumes that a pod asks for; it may have none of them yet."""
    found = set()
    for volume in objects.spec(pod).get("volumes") or []:
        try:
            source = source_of(pod, volume, inputs)
        except ConfigurationMissing:
            continue
        if source.persistent is not None and (name := driver_of(source.persistent)):
            found |= {node_name_of(source.persistent)} if needs_attachment(inputs.drivers.get(name)) else set()
    return frozenset(found)


def inline_handle(pod: JsonObject, name: str) -> str:
    """Return the id that a volume of the pod's own has for its driver (kubelet's makeVolumeHandle)."""
    return "csi-" + hashlib.sha256(f"{objects.uid(pod)}{name}".encode()).hexdigest()


def _attributes(declared: JsonObject) -> dict[str, str]:
    return {key: str(value) for key, value in (declared.get("volumeAttributes") or {}).items()}


def _secrets(pod: JsonObject, source: Source, inputs: PodInputs) -> dict[str, str]:
    """Return the Secrets that a driver is told on the node, by the call; words are of ``csi_util.go``.

    Raises:
        ConfigurationMissing: one does not exist.
    """
    if source.persistent is not None:
        found = node_secrets(source.persistent)
    else:
        name = objects.dig(source.volume, "csi", "nodePublishSecretRef", "name")
        found = {"publish": f"{objects.namespace(pod)}/{name}"} if name else {}
    for reference in found.values():
        if reference not in inputs.secrets:
            space, _, name = reference.partition("/")
            why = f'failed to find the secret {name} in the namespace {space}: secrets "{name}" not found'
            raise ConfigurationMissing(f"kubernetes.io/csi: {why}")
    return found


def _check_inline(declared: JsonObject, driver: JsonObject | None) -> None:
    name = declared.get("driver")
    if "Ephemeral" not in (objects.spec(driver or {}).get("volumeLifecycleModes") or ["Persistent"]):
        raise ConfigurationMissing(
            f'kubernetes.io/csi: mounter.SetUpAt failed to check volume lifecycle mode: volume mode "Ephemeral" '
            f"not supported by driver {name} (only supports {_modes(driver)})"
        )


def _modes(driver: JsonObject | None) -> str:
    return json.dumps(objects.spec(driver or {}).get("volumeLifecycleModes") or ["Persistent"])


def _take_volume(entry: Csi, volume: JsonObject, inputs: PodInputs) -> None:
    declared = objects.spec(volume)
    entry["access_mode"] = str((declared.get("accessModes") or ["ReadWriteOnce"])[0])
    size = (declared.get("capacity") or {}).get("storage")
    if size is not None:
        entry["size_bytes"] = to_bytes(size)
        held = declared.get("claimRef") or {}
        claim = inputs.claims.get(f"{held.get('namespace')}/{held.get('name')}") or {}
        had = objects.dig(claim, "status", "capacity", "storage")
        if had is not None and to_bytes(had) < to_bytes(size) and not entry["read_only"]:
            entry["had_bytes"] = to_bytes(had)


def _attached(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> dict[str, str]:
    name = attachment_name(volume, str(objects.spec(pod).get("nodeName") or ""))
    found = inputs.attachments.get(name)
    if found is None or objects.is_deleting(found):
        raise ConfigurationMissing(f"volume is not attached yet: no VolumeAttachment {name}")
    status = objects.status(found)
    if not status.get("attached"):
        why = (status.get("attachError") or {}).get("message")
        raise ConfigurationMissing(f"volume attachment {name} is not attached" + (f": {why}" if why else ""))
    if node_name_of(volume) not in in_use(inputs.node):
        raise ConfigurationMissing(
            "Volume has not been added to the list of VolumesInUse in the node's volume status yet"
        )
    if node_name_of(volume) not in attached(inputs.node):
        raise ConfigurationMissing("Volume not attached according to node status yet")
    return {key: str(value) for key, value in (status.get("attachmentMetadata") or {}).items()}


def _pod_attributes(pod: JsonObject, driver: JsonObject | None, *, inline: bool) -> dict[str, str]:
    """Return what drivers that ask for it are told of the pod (getPodInfoAttrs)."""
    if not objects.spec(driver or {}).get("podInfoOnMount"):
        return {}
    return {
        f"{_POD}pod.name": objects.name(pod), f"{_POD}pod.namespace": objects.namespace(pod),
        f"{_POD}pod.uid": objects.uid(pod),
        f"{_POD}serviceAccount.name": str(objects.spec(pod).get("serviceAccountName") or ""),
        f"{_POD}ephemeral": "true" if inline else "false",
    }  # fmt: skip


def _gives_to_group(declared: JsonObject, driver: JsonObject | None, volume: JsonObject | None) -> bool:
    """Return whether the volume is given to the pod's group (``supportsFSGroup``)."""
    policy = objects.spec(driver or {}).get("fsGroupPolicy") or "ReadWriteOnceWithFSType"
    if policy != "ReadWriteOnceWithFSType":
        return bool(policy == "File")
    if volume is None:
        return False
    return bool(declared.get("fsType")) and objects.spec(volume).get("accessModes") in _GROUPED_MODES
