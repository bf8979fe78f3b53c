"""Reads persistent volumes, their claims and classes. Pure.

Binding is written on both sides: ``spec.claimRef`` of the volume names the claim and its uid, ``spec.volumeName`` of
the claim the volume. A volume without uid in its reference is kept free for the claim of that name. Source: kubernetes
``component-helpers/storage/volume``, ``pkg/apis/core/v1/helper``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.objects import JsonObject, Key

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Which node the scheduler wants the volume of a claim for."""
PROVISIONERS = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
"""Who is to make the volume of a claim: programs outside look at either."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Where the class of a volume or claim stood before it became a field; it goes before the field."""
ORIGINAL_NAMESPACE = "minik8s.io/volume-namespace"
"""The namespace of a volume of the original MiniK8s, where volumes have one: the only one whose claims may have it."""
HOSTPATH = "minik8s.io/hostpath"
"""The provisioner of folders on one machine."""
NFS = "minik8s.io/nfs"
"""The provisioner of folders on an NFS server that is a node."""
QUOTA, PROJECT = "minik8s.io/volume-quota", "project"
"""How the size of a volume's folder is enforced: by a project quota of its file system, or (without it) not at all."""
OURS = frozenset({HOSTPATH, NFS})
VOLUME_FOLDER = "minik8s.io/volume-folder"
"""Finalizer of a volume whose folder is to be deleted before it."""
FOLDER_DELETED = "FolderDeleted"
"""The reason in the status of a volume whose folder is deleted."""
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
NO_SOURCES = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip
"""Fields of a volume's spec; any other is what it stands on."""


def class_of(obj: JsonObject) -> str:
    """Return the name of the class of a volume or claim, "" for none."""
    return str(objects.annotations(obj).get(OLD_CLASS) or objects.spec(obj).get("storageClassName") or "")


def names_class(claim: JsonObject) -> bool:
    """Return whether a claim says which class it wants; "" says that it wants none."""
    return OLD_CLASS in objects.annotations(claim) or objects.spec(claim).get("storageClassName") is not None


def requested(claim: JsonObject) -> Decimal:
    """Return how many bytes a claim asks for."""
    return quantities.parse(objects.dig(claim, "spec", "resources", "requests", "storage") or "0")


def capacity(volume: JsonObject) -> Decimal:
    """Return how many bytes a volume has."""
    return quantities.parse(objects.dig(volume, "spec", "capacity", "storage") or "0")


def source_of(volume: JsonObject) -> str:
    """Return the field that says what a volume stands on; "" for one whose place has still to be made."""
    return next((field for field in objects.spec(volume) if field not in NO_SOURCES), "")


def is_ours(volume: JsonObject) -> bool:
    """Return whether one of our provisioners has made the volume."""
    return objects.annotations(volume).get(PROVISIONED_BY) in OURS


def is_limited(volume: JsonObject) -> bool:
    """Return whether pods may write no more into a volume of ours than its size."""
    return objects.annotations(volume).get(QUOTA) == PROJECT


class Holder(NamedTuple):
    """The claim that a volume names; without uid it is kept free for whoever has the name."""

    key: Key
    uid: str


def holder(volume: JsonObject) -> Holder | None:
    """Return the claim that a volume names, or None."""
    reference = objects.spec(volume).get("claimRef")
    if not reference:
        return None
    key = Key(str(reference.get("namespace") or ""), str(reference.get("name") or ""))
    return Holder(key, str(reference.get("uid") or ""))


def is_held_by(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a volume is the claim's, or kept free for one of its name (``IsVolumeBoundToClaim``)."""
    named = holder(volume)
    return named is not None and named.key == objects.key(claim) and named.uid in {"", objects.uid(claim)}


def is_complete(claim: JsonObject) -> bool:
    """Return whether a claim has been bound: from then on a volume that is gone is lost, not waited for."""
    return BIND_COMPLETED in objects.annotations(claim)


def is_bound(claim: JsonObject) -> bool:
    """Return whether a pod may have the claim's volume."""
    return objects.status(claim).get("phase") == "Bound" and bool(objects.spec(claim).get("volumeName"))


def waits_for_consumer(storage_class: JsonObject | None) -> bool:
    """Return whether claims of a class are bound only when a pod that wants them has a node."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAITS_FOR_CONSUMER


def default_class(classes: Iterable[JsonObject]) -> JsonObject | None:
    """Return the class of claims that name none: of several the newest, then the first by name; None without one."""
    marked = sorted((one for one in classes if objects.annotations(one).get(DEFAULT_CLASS) == "true"), key=objects.name)
    return max(marked, key=lambda one: str((one.get("metadata") or {}).get("creationTimestamp") or ""), default=None)
