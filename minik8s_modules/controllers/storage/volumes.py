"""Whose a volume is, and what becomes of it when its claim is gone: ``decide_volume``. Pure.

A volume of the original MiniK8s is free again, with its data, as soon as its claim is gone. For others the reclaim
policy says: Retain leaves it Released, for a person to decide about; Delete needs somebody who can delete it.
Source: kubernetes ``pkg/controller/volume/persistentvolume/pv_controller.go`` (``syncVolume``, ``reclaimVolume``).
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.kinds import PERSISTENT_VOLUME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.core.steps import Delete, Patch, RecordEvent, Step
from minik8s_modules.controllers.storage import provisioning

_NO_RECYCLER = "No recycler plugin found for the volume!"
_NO_DELETER = 'error getting deleter volume plugin for volume "{}": no deletable volume plugin matched'
_NO_SOURCE = (
    "it does not say what it stands on (nfs, hostPath, local), and no StorageClass of its class's name with a "
    "provisioner of minik8s does: no claim can have it"
)
_UNLIMITED = (
    "its size is not enforced: pods may write more than that"  # the cluster knows of no limit of a server's own
)
_ALONE = (
    "node {} has a reconciler of its own, which deletes no folders of volumes: delete it there, and give the volume "
    "persistentVolumeReclaimPolicy: Retain"
)
_OVER = frozenset({"Released", "Failed"})


def decide_volume(
    volume: JsonObject, claim: JsonObject | None, storage_class: JsonObject | None = None, alone: str = ""
) -> list[Step]:
    """Return the next steps of a volume.

    Args:
        volume: the object.
        claim: the one of the name that the volume holds, None where there is none.
        storage_class: the volume's class, which says where a volume of the original is to stand.
        alone: the node that has the folder which is to be deleted, where that has a reconciler of its own.
    """
    held = claims.holder(volume)
    unprotected = _unprotected(volume)
    if unprotected:
        return unprotected
    if waits_for_folder(volume):
        return _without_folder(volume, alone)
    if not claims.source_of(volume):
        return _placed(volume, storage_class)
    if held is None or not held.uid:
        return _in_phase(volume, "Available")
    return _without_claim(volume) if claim is None or objects.uid(claim) != held.uid else _of_claim(volume, claim)


def _of_claim(volume: JsonObject, claim: JsonObject) -> list[Step]:
    named = objects.spec(claim).get("volumeName")
    if not named:
        return []  # the claim's own decision comes next
    if named != objects.name(volume):
        return _superfluous(volume)
    limited = claims.is_limited(volume) if claims.is_ours(volume) else claims.source_of(volume) != "nfs"
    return _in_phase(volume, "Bound", message="" if limited else _UNLIMITED)


def _placed(volume: JsonObject, storage_class: JsonObject | None) -> list[Step]:
    """Return what gives a place to a volume that says none: only the original's may."""
    provisioner = str((storage_class or {}).get("provisioner") or "")
    if storage_class is None or provisioner not in provisioning.PROVISIONERS:
        return [RecordEvent(volume, "Normal", "FailedBinding", _NO_SOURCE)]
    try:
        place = provisioning.PROVISIONERS[provisioner].place(objects.name(volume), storage_class, None)
    except provisioning.CannotProvision as why:
        message = f'failed to provision volume with StorageClass "{objects.name(storage_class)}": {why}'
        return [RecordEvent(volume, "Warning", "ProvisioningFailed", message)]
    meta = {"annotations": provisioning.marks(storage_class)}
    return [Patch(PERSISTENT_VOLUME, volume, {"metadata": meta, "spec": place})]


def _unprotected(volume: JsonObject) -> list[Step]:
    held = objects.finalizers(volume)
    in_use = objects.status(volume).get("phase") == "Bound"
    if not objects.is_deleting(volume) or in_use or claims.VOLUME_PROTECTION not in held:
        return []
    left = [each for each in held if each != claims.VOLUME_PROTECTION]
    return [Patch(PERSISTENT_VOLUME, volume, {"metadata": {"finalizers": left or None}})]


def host_of(volume: JsonObject) -> str:
    """Return the host that a volume on one machine's disk names, "" for any other volume."""
    if not objects.dig(volume, "spec", "hostPath"):
        return ""
    terms = objects.dig(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    hosts = {host for term in terms for one in term.get("matchExpressions") or [] for host in one.get("values") or []}
    return str(hosts.pop()) if len(hosts) == 1 else ""


def waits_for_folder(volume: JsonObject) -> bool:
    """Return whether a volume that nobody has any more is kept by its folder."""
    bound = objects.status(volume).get("phase") == "Bound"
    return objects.is_deleting(volume) and not bound and claims.VOLUME_FOLDER in objects.finalizers(volume)


def _without_folder(volume: JsonObject, alone: str) -> list[Step]:
    """Return what lets a volume go that waits for its folder: once its node has deleted it, or is not to any more."""
    deletes = objects.spec(volume).get("persistentVolumeReclaimPolicy") == "Delete"
    if deletes and objects.status(volume).get("reason") != claims.FOLDER_DELETED:
        return [RecordEvent(volume, "Warning", "VolumeFailedDelete", _ALONE.format(alone))] if alone else []
    left = [each for each in objects.finalizers(volume) if each != claims.VOLUME_FOLDER]
    return [Patch(PERSISTENT_VOLUME, volume, {"metadata": {"finalizers": left or None}})]


def _in_phase(volume: JsonObject, phase: str, reason: str = "", message: str = "") -> list[Step]:
    if objects.status(volume).get("phase") == phase:
        return []
    status = {"phase": phase, "reason": reason or None, "message": message or None}
    return [Patch(PERSISTENT_VOLUME, volume, {"status": status}, subresource="status")]


def _without_claim(volume: JsonObject) -> list[Step]:
    if objects.status(volume).get("phase") not in _OVER:
        return _in_phase(volume, "Released")
    if objects.annotations(volume).get(dialect.ANNOTATION) == dialect.ORIGINAL:
        return _freed(volume, _its_namespace(volume))
    policy = objects.spec(volume).get("persistentVolumeReclaimPolicy")
    if policy == "Recycle":
        return _failed(volume, "VolumeFailedRecycle", _NO_RECYCLER)
    return _deleted(volume) if policy == "Delete" else []


def _deleted(volume: JsonObject) -> list[Step]:
    if claims.is_ours(volume):
        held = objects.finalizers(volume)
        if claims.VOLUME_FOLDER not in held:  # its policy was another when it was made
            return [Patch(PERSISTENT_VOLUME, volume, {"metadata": {"finalizers": [*held, claims.VOLUME_FOLDER]}})]
        return [] if objects.is_deleting(volume) else [Delete(PERSISTENT_VOLUME, volume)]
    if claims.PROVISIONED_BY in objects.annotations(volume):
        return []  # whoever made it deletes it
    return _failed(volume, "VolumeFailedDelete", _NO_DELETER.format(objects.name(volume)))


def _failed(volume: JsonObject, reason: str, message: str) -> list[Step]:
    steps = _in_phase(volume, "Failed", reason, message)
    return [*steps, RecordEvent(volume, "Warning", reason, message)] if steps else []


def _superfluous(volume: JsonObject) -> list[Step]:
    """Return what frees a volume whose claim has another one; one made for the claim is given back to its maker.

    A program that makes volumes deletes what they stand on before the object: an object deleted here would leave that.
    """
    made = claims.PROVISIONED_BY in objects.annotations(volume)
    if made and objects.spec(volume).get("persistentVolumeReclaimPolicy") == "Delete":
        over = objects.status(volume).get("phase") in _OVER
        return _deleted(volume) if over else _in_phase(volume, "Released")
    return _freed(volume)


def _its_namespace(volume: JsonObject) -> JsonObject:
    """Return the annotation that keeps what a claim has left in the volume within the claim's namespace."""
    held = claims.holder(volume)
    return {claims.ORIGINAL_NAMESPACE: held.key.namespace, **objects.annotations(volume)} if held is not None else {}


def _freed(volume: JsonObject, marks: JsonObject | None = None) -> list[Step]:
    """Let go of the claim; a reference that a person wrote stays, and with it the claim's name."""
    if claims.BOUND_BY_CONTROLLER not in objects.annotations(volume):
        return [Patch(PERSISTENT_VOLUME, volume, {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})]
    meta = {"annotations": {**(marks or {}), claims.BOUND_BY_CONTROLLER: None}}
    return [Patch(PERSISTENT_VOLUME, volume, {"metadata": meta, "spec": {"claimRef": None}})]
