"""Volumes that are made for claims, by their class. Pure: who declares a volume has made it; nodes make its folder.

``reconcile/storage/folders.py`` says which node makes, and deletes, which folder.
A provisioner is one small class with a row in ``PROVISIONERS``: it says where a volume stands, or why it cannot. All
others are programs of their own, which watch claims (``volume.kubernetes.io/storage-provisioner``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.core.steps import Create, RecordEvent, Step, Words

_HOSTNAME = "kubernetes.io/hostname"
_FOLDERS = "/var/lib/minik8s-volumes"
_NO_NODE = (
    "it is for one machine and does not know which: give the class volumeBindingMode: WaitForFirstConsumer, or the "
    "parameter node"
)


_NO_SERVER = "give the class the parameters server, an address of the node that exports, and share, the exported folder"
_ROOT = "volumes have folders in a folder, not in / itself: give another class the parameter path"
_STRANGE_SERVER = (
    "{} is not an address of any node (kubectl get nodes -o wide), so nothing would create its folders; for volumes of "
    "other servers, use their own provisioner, or PersistentVolumes that you write"
)
_ALONE = "node {} has a reconciler of its own, which {} no folders of volumes: {}"
Machines = frozenset[str] | None


class CannotProvision(Exception):
    """No volume can be made for a claim; the message says why."""


class Provisioner(Protocol):
    """Makes volumes of the classes that name it."""

    def place(
        self, name: str, storage_class: JsonObject, node: JsonObject | None, machines: Machines = None
    ) -> JsonObject:
        """Return the fields of the spec that say where a volume stands.

        Args:
            name: what no other volume's place is called.
            storage_class: the class, with its parameters.
            node: the node that the scheduler wants it for, None where it said nothing.
            machines: addresses of all nodes, None where they are not known.

        Raises:
            CannotProvision: it cannot be made.
        """


class HostPath:
    """A folder on one machine: the class's parameter ``node``, else that of the first pod that wants the volume."""

    def place(
        self, name: str, storage_class: JsonObject, node: JsonObject | None, _machines: Machines = None
    ) -> JsonObject:
        """Return a folder of the volume's own, and the node that has it. Raises CannotProvision."""
        parameters = storage_class.get("parameters") or {}
        host = parameters.get("node") or objects.labels(node or {}).get(_HOSTNAME)  # users write a claim's node
        if not host:
            raise CannotProvision(_NO_NODE)
        if storage_class.get("mountOptions"):
            raise CannotProvision("folders of a machine have no mountOptions")
        folder = str(parameters.get("path") or _FOLDERS).rstrip("/")
        if not {*folder.split("/")} - {"", "."}:  # no node would make it, or let it go
            raise CannotProvision(_ROOT)
        # what is to be deleted, or has a size, was made by the section ``folders``, and by nobody else
        is_made = storage_class.get("reclaimPolicy") == "Delete" or is_limited(storage_class)
        here = {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": [host]}]}
        return {
            "hostPath": {"path": f"{folder}/{name}", "type": "Directory" if is_made else "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        }


class Nfs:
    """A folder below what a node exports: the class's parameters ``server``, an address of the node, and ``share``."""

    def place(
        self, name: str, storage_class: JsonObject, _node: JsonObject | None, machines: Machines = None
    ) -> JsonObject:
        """Return a folder of the volume's own on the server. Raises CannotProvision."""
        parameters = storage_class.get("parameters") or {}
        server, share = str(parameters.get("server") or ""), str(parameters.get("share") or "").rstrip("/")
        if not server or not share:
            raise CannotProvision(_NO_SERVER)
        if machines is not None and server not in machines:
            raise CannotProvision(_STRANGE_SERVER.format(server))
        options = storage_class.get("mountOptions")
        place = {"nfs": {"server": server, "path": f"{share}/{name}"}}
        return {**place, "mountOptions": options} if options else place


PROVISIONERS: Mapping[str, Provisioner] = {claims.HOSTPATH: HostPath(), claims.NFS: Nfs()}


def addresses(nodes: Iterable[JsonObject]) -> frozenset[str]:
    """Return the addresses of nodes, by which a class may name an NFS server."""
    listed = (each for node in nodes for each in objects.status(node).get("addresses") or [])
    return frozenset(str(each.get("address") or "") for each in listed)


def provision(
    claim: JsonObject,
    storage_class: JsonObject,
    node: JsonObject | None,
    namesake: JsonObject | None,
    machines: Machines = None,
    alone: str = "",
) -> list[Step]:
    """Return the creation of a volume for a claim whose class one of our provisioners serves.

    ``namesake`` is the volume that has the name which the original MiniK8s would give, ``pv-<claim>``; ``machines`` are
    the addresses of all nodes; ``alone`` is the node of the volume, where that has a reconciler of its own.
    """
    provisioner, name = str(storage_class["provisioner"]), _name(claim, namesake)
    try:
        _refuse(claim)
        if alone:
            _refuse_alone(storage_class, alone)
        # a name of the original may come again, in another namespace; what the volume of before held is not for all
        place = PROVISIONERS[provisioner].place(_own_name(claim), storage_class, node, machines)
    except CannotProvision as why:
        message = f'failed to provision volume with StorageClass "{objects.name(storage_class)}": {why}'
        return [RecordEvent(claim, "Warning", "ProvisioningFailed", message)]
    declared = objects.spec(claim)
    spec = {
        "accessModes": declared.get("accessModes"),
        "capacity": {"storage": declared["resources"]["requests"]["storage"]},
        "claimRef": reference(claim),
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy"),
        "storageClassName": objects.name(storage_class),
        "volumeMode": declared.get("volumeMode"),
        **place,
    }
    meta: JsonObject = {"name": name, "annotations": marks(storage_class)}
    if spec["persistentVolumeReclaimPolicy"] == "Delete":
        meta["finalizers"] = [claims.VOLUME_FOLDER]
    volume = {"apiVersion": "v1", "kind": PERSISTENT_VOLUME.kind, "metadata": meta, "spec": spec}
    failed = f'failed to provision volume with StorageClass "{objects.name(storage_class)}": '
    words = Words("ProvisioningSucceeded", "Successfully provisioned volume ", "ProvisioningFailed", failed)
    return [Create(PERSISTENT_VOLUME, volume, words)]


def marks(storage_class: JsonObject) -> dict[str, str]:
    """Return the annotations of a volume of a class of ours."""
    limited = {claims.QUOTA: claims.PROJECT} if is_limited(storage_class) else {}
    return {claims.PROVISIONED_BY: str(storage_class["provisioner"]), **limited}


def is_limited(storage_class: JsonObject) -> bool:
    """Return whether volumes of a class hold no more than their size."""
    return (storage_class.get("parameters") or {}).get("quota") == claims.PROJECT


def reference(claim: JsonObject) -> JsonObject:
    """Return how a volume names its claim."""
    return {**objects.object_reference(claim), "apiVersion": "v1", "kind": PERSISTENT_VOLUME_CLAIM.kind}


def _refuse(claim: JsonObject) -> None:
    if objects.spec(claim).get("selector") is not None:
        raise CannotProvision("claim Selector is not supported")  # external-provisioner's words
    if objects.spec(claim).get("volumeMode") == "Block":
        raise CannotProvision("it does not make block volumes")
    if objects.spec(claim).get("dataSourceRef") or objects.spec(claim).get("dataSource"):
        raise CannotProvision(
            "its volumes begin empty: for a dataSource, use the class of a CSI driver that copies volumes"
        )


def _refuse_alone(storage_class: JsonObject, node: str) -> None:
    """Raise where a node's own reconciler would have to make a folder, or to delete it: it may not read all volumes."""
    if storage_class["provisioner"] == claims.NFS:
        raise CannotProvision(_ALONE.format(node, "makes", "give the class the server of another node"))
    if storage_class.get("reclaimPolicy") == "Delete":
        raise CannotProvision(_ALONE.format(node, "deletes", "use a class with reclaimPolicy: Retain"))
    if is_limited(storage_class):
        raise CannotProvision(_ALONE.format(node, "limits", "use a class without the parameter quota"))


def homes(storage_class: JsonObject | None, node: JsonObject | None, nodes: Iterable[JsonObject]) -> list[str]:
    """Return the names of the nodes that may have the folder of a volume of a class of ours."""
    parameters = (storage_class or {}).get("parameters") or {}
    provisioner = (storage_class or {}).get("provisioner")
    if provisioner == claims.NFS:
        here = [one for one in nodes if parameters.get("server") in addresses([one])]
    elif provisioner == claims.HOSTPATH and (host := parameters.get("node")):
        here = [one for one in nodes if objects.labels(one).get(_HOSTNAME) == host]
    else:
        here = [node] if provisioner == claims.HOSTPATH and node is not None else []
    return [objects.name(one) for one in here]


def _name(claim: JsonObject, namesake: JsonObject | None) -> str:
    original = objects.annotations(claim).get(dialect.ANNOTATION) == dialect.ORIGINAL
    if original and (namesake is None or claims.is_held_by(namesake, claim)):
        return original_name(claim)
    return _own_name(claim)


def _own_name(claim: JsonObject) -> str:
    return f"pvc-{objects.uid(claim)}"


def original_name(claim: JsonObject) -> str:
    """Return the name that the original MiniK8s gives the volume that it makes for a claim."""
    return f"pv-{objects.name(claim)}"
