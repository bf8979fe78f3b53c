"""Which volume a claim gets, and what it is told while it waits: ``decide_claim``. Pure.

Events have Kubernetes' reasons and words (``pkg/controller/volume/persistentvolume/pv_controller.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims, matching
from minik8s_modules.api.storage.attachments import driver_of
from minik8s_modules.controllers.core.steps import Patch, RecordEvent, Step
from minik8s_modules.controllers.storage import provisioning

_NO_CLASS = "no persistent volumes available for this claim and no storage class is set"
_NO_CONSUMER = "waiting for first consumer to be created before binding"
_LOST = "Bound claim has lost {}. Data on the volume is lost!"
_EXTERNAL = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system "
    "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly "
    "registered."
)
_YES = "yes"


class Around(NamedTuple):
    """What there is around a claim.

    Attributes:
        named: the volume that the claim names.
        volumes: volumes kept for the claim, and free ones of its class.
        storage_class: the claim's class; None where there is none of the name.
        default: the class of claims that name none.
        node: the node that the scheduler wants the volume for.
        pods: those that name the claim.
        namesake: the volume that has the name which the original would give to one made for the claim.
        machines: addresses of all nodes; None where they are not known, or nobody wants to know.
        alone: the node that would have the volume's folder, where that has a reconciler of its own.
    """

    named: JsonObject | None = None
    volumes: Sequence[JsonObject] = ()
    storage_class: JsonObject | None = None
    default: JsonObject | None = None
    node: JsonObject | None = None
    pods: Sequence[JsonObject] = ()
    namesake: JsonObject | None = None
    machines: provisioning.Machines = None
    alone: str = ""


def decide_claim(claim: JsonObject, around: Around) -> list[Step]:
    """Return the next steps of a claim."""
    if objects.is_deleting(claim):
        return _unprotected(claim, around.pods)
    if claims.is_complete(claim):
        return _bound(claim, around.named)
    if objects.spec(claim).get("volumeName"):
        return _of_its_choice(claim, around.named)
    if not claims.names_class(claim) and around.default is not None:
        return [Patch(PERSISTENT_VOLUME_CLAIM, claim, {"spec": {"storageClassName": objects.name(around.default)}})]
    return _any(claim, around)


def is_used(pods: Iterable[JsonObject]) -> bool:
    """Return whether one of a claim's pods may have its volume: it has a node (``podUsesPVC``)."""
    return any(objects.spec(pod).get("nodeName") for pod in pods)


def _unprotected(claim: JsonObject, pods: Iterable[JsonObject]) -> list[Step]:
    held = objects.finalizers(claim)
    if claims.CLAIM_PROTECTION not in held or is_used(pods):
        return []
    left = [each for each in held if each != claims.CLAIM_PROTECTION]
    return [Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"finalizers": left or None}})]


def _any(claim: JsonObject, around: Around) -> list[Step]:
    delayed = claims.waits_for_consumer(around.storage_class) and around.node is None
    volume = matching.best_volume(claim, around.volumes, around.node, delayed=delayed)
    if volume is not None:
        return _bind(claim, volume)
    if delayed:
        return [*_chosen_anew(claim, around), *_pending(claim), *_waits_for_consumer(claim, around.pods)]
    if claims.class_of(claim):
        return [*_pending(claim), *_wants_one_made(claim, around)]
    return [*_pending(claim), RecordEvent(claim, "Normal", "FailedBinding", _NO_CLASS)]


def _chosen_anew(claim: JsonObject, around: Around) -> list[Step]:
    """Return what has the scheduler choose another node for one that is gone (``rescheduleProvisioning``).

    Other provisioners do so themselves.
    """
    provisioner = (around.storage_class or {}).get("provisioner")
    if claims.SELECTED_NODE not in objects.annotations(claim) or provisioner not in provisioning.PROVISIONERS:
        return []
    return [Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"annotations": {claims.SELECTED_NODE: None}}})]


def _waits_for_consumer(claim: JsonObject, pods: Sequence[JsonObject]) -> list[Step]:
    waiting = sorted(objects.name(pod) for pod in pods if not objects.spec(pod).get("nodeName"))
    if not waiting:
        return [RecordEvent(claim, "Normal", "WaitForFirstConsumer", _NO_CONSUMER)]
    message = f"waiting for pod {','.join(waiting[:10])} to be scheduled"
    return [RecordEvent(claim, "Normal", "WaitForPodScheduled", message)]


def _wants_one_made(claim: JsonObject, around: Around) -> list[Step]:
    if around.storage_class is None:
        message = f'storageclass.storage.k8s.io "{claims.class_of(claim)}" not found'
        return [RecordEvent(claim, "Warning", "ProvisioningFailed", message)]
    provisioner = str(around.storage_class.get("provisioner") or "")
    if provisioner in provisioning.PROVISIONERS:
        there = around.node, around.namesake, around.machines, around.alone
        return provisioning.provision(claim, around.storage_class, *there)
    asked = {key: provisioner for key in claims.PROVISIONERS if objects.annotations(claim).get(key) != provisioner}
    waits = RecordEvent(claim, "Normal", "ExternalProvisioning", _EXTERNAL.format(provisioner))
    return [*([Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"annotations": asked}})] if asked else []), waits]


def _of_its_choice(claim: JsonObject, volume: JsonObject | None) -> list[Step]:
    name = objects.spec(claim).get("volumeName")
    if volume is None:
        return [*_pending(claim), RecordEvent(claim, "Normal", "FailedBinding", f'volume "{name}" does not exist')]
    if claims.is_held_by(volume, claim):
        return _bind(claim, volume)
    if claims.holder(volume) is not None:
        message = f'volume "{name}" already bound to a different claim.'
        return [*_pending(claim), RecordEvent(claim, "Warning", "FailedBinding", message)]
    if why := matching.mismatch(volume, claim):
        message = f'Cannot bind to requested volume "{name}": {why}'
        return [*_pending(claim), RecordEvent(claim, "Warning", "VolumeMismatch", message)]
    return _bind(claim, volume)


def _bound(claim: JsonObject, volume: JsonObject | None) -> list[Step]:
    if volume is None:
        what = "its PersistentVolume" if objects.spec(claim).get("volumeName") else "reference to PersistentVolume"
        return _lost(claim, "ClaimLost", _LOST.format(what))
    held = claims.holder(volume)
    # whoever writes a claim can write that it is bound: what no claim of its namespace may have stays out of reach
    elsewhere = not matching.in_reach(volume, claim) if held is None else held.uid != objects.uid(claim)
    if elsewhere:
        message = "Two claims are bound to the same volume, this one is bound incorrectly"
        return _lost(claim, "ClaimMisbound", message)
    return _bind(claim, volume)


def _lost(claim: JsonObject, reason: str, message: str) -> list[Step]:
    if objects.status(claim).get("phase") == "Lost":
        return []
    gone = {"phase": "Lost", "accessModes": None, "capacity": None}
    body = {"status": gone}
    return [
        Patch(PERSISTENT_VOLUME_CLAIM, claim, body, subresource="status"),
        RecordEvent(claim, "Warning", reason, message),
    ]


def _pending(claim: JsonObject) -> list[Step]:
    if objects.status(claim).get("phase") == "Pending":
        return []
    return [Patch(PERSISTENT_VOLUME_CLAIM, claim, {"status": {"phase": "Pending"}}, subresource="status")]


def _bind(claim: JsonObject, volume: JsonObject) -> list[Step]:
    """Return what is left to do: first the volume is the claim's alone, then the claim says so, then both phases."""
    steps: list[Step] = []
    held = claims.holder(volume)
    if held is None or held.uid != objects.uid(claim):
        steps.append(Patch(PERSISTENT_VOLUME, volume, _held(claim, chosen=held is None)))
    if not claims.is_complete(claim):
        chosen = {} if objects.spec(claim).get("volumeName") else {claims.BOUND_BY_CONTROLLER: _YES}
        meta = {"annotations": {claims.BIND_COMPLETED: _YES, **chosen}}
        body = {"metadata": meta, "spec": {"volumeName": objects.name(volume)}}
        return [*steps, Patch(PERSISTENT_VOLUME_CLAIM, claim, body)]
    if claims.requested(claim) > claims.capacity(volume) and claims.is_ours(volume):
        return [*steps, *_grown(claim, volume)]
    status = _status(volume, claim)
    if {field: objects.status(claim).get(field) for field in status} != status:
        steps.append(Patch(PERSISTENT_VOLUME_CLAIM, claim, {"status": status}, subresource="status"))
    return steps


def _grown(claim: JsonObject, volume: JsonObject) -> list[Step]:
    """Return what gives a claim the size that it asks for now; whether it may was asked when it was written."""
    body = {"spec": {"capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]}}}
    event = RecordEvent(claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded")
    return [Patch(PERSISTENT_VOLUME, volume, body), event]


def _held(claim: JsonObject, *, chosen: bool) -> JsonObject:
    meta = {"metadata": {"annotations": {claims.BOUND_BY_CONTROLLER: _YES}}} if chosen else {}
    return {**meta, "spec": {"claimRef": provisioning.reference(claim)}}


def _status(volume: JsonObject, claim: JsonObject) -> JsonObject:
    """Return what a claim tells of its volume; how large a driver's is within, its node tells (claim_sizes.py)."""
    declared, reported = objects.spec(volume), objects.status(claim)
    grows = driver_of(volume) and reported.get("phase") == "Bound" and reported.get("capacity")
    capacity = reported.get("capacity") if grows else declared.get("capacity")
    return {"phase": "Bound", "accessModes": declared.get("accessModes"), "capacity": capacity}
