"""Why a volume of a CSI driver is not there for a pod: its driver, its VolumeAttachment, the node that has it still.

On a node a volume goes through three hands: its driver is registered there (CSINode), the driver's external-attacher
attaches it (VolumeAttachment), and the node mounts it.
"""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    VOLUME_ATTACHMENT,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_claims import claim_of
from minik8s_modules.api.storage.attachments import (
    attachment_name,
    driver_of,
    in_use,
    needs_attachment,
    node_name_of,
)
from minik8s_modules.cli.causes.faults import Fault, deletion, kubectl, why
from minik8s_modules.cli.causes.surroundings import Around

_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def attachment_faults(attachment: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a volume is not attached, or not detached."""
    declared, status = objects.spec(attachment), objects.status(attachment)
    node, driver = str(declared.get("nodeName") or ""), str(declared.get("attacher") or "")
    lead = kubectl("", "describe", VOLUME_ATTACHMENT.singular_name, objects.name(attachment))
    if objects.is_deleting(attachment):
        if error := _words(status.get("detachError")):
            yield Fault(f"CSI driver {driver} does not detach it from node {node}: {error}", lead)
        yield from deletion(attachment)
    elif error := _words(status.get("attachError")):
        yield Fault(f"CSI driver {driver} does not attach it to node {node}: {error}", lead)
    elif not status.get("attached"):
        if around.lacks(NODE, node):
            yield Fault(f"node {node} does not exist", "kubectl get nodes")
        yield from _unregistered(driver, node, around)
        text = (
            f"it waits for the external-attacher of CSI driver {driver}, which has attached nothing to node {node} yet"
        )
        yield Fault(text, kubectl("", "get", POD.plural, "-A"))
    else:
        yield from _left_behind(attachment, node, around)


def _words(error: JsonObject | None) -> str:
    return " ".join(str((error or {}).get("message") or "").split())


def _left_behind(attachment: JsonObject, node: str, around: Around) -> Iterator[Fault]:
    """Yield that a node which does not answer keeps a volume that none of its pods asks for."""
    volume = around.get(PERSISTENT_VOLUME, str(objects.dig(attachment, "spec", "source", "persistentVolumeName") or ""))
    found = around.get(NODE, node)
    if volume is None or found is None or node_name_of(volume) not in in_use(found):
        return
    ready = objects.condition(found, "Ready") or {}
    if ready.get("status") != "True":
        text = (
            f"node {node} is not ready and may have it mounted: when its machine is off, taint it with "
            "node.kubernetes.io/out-of-service, and the volume is detached"
        )
        yield Fault(text, why(NODE, node))


def volume_holds(pod: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a pod that waits on its node does not get the volumes of CSI drivers that it names."""
    node = str(objects.spec(pod).get("nodeName") or "")
    if not node or objects.status(pod).get("phase") not in (None, "Pending"):
        return
    for volume in objects.spec(pod).get("volumes") or []:
        claim = claim_of(pod, volume)
        if claim:
            yield from claim_holds(around.get(PERSISTENT_VOLUME_CLAIM, claim, objects.namespace(pod)), node, around)
        elif driver := str(objects.dig(volume, "csi", "driver") or ""):
            yield from _unregistered(driver, node, around)


def claim_holds(claim: JsonObject | None, node: str, around: Around) -> Iterator[Fault]:
    """Yield why the volume of a claim is not there on a node, if it is one of a CSI driver."""
    name = str(objects.spec(claim or {}).get("volumeName") or "")
    volume = around.get(PERSISTENT_VOLUME, name) if name else None
    driver = driver_of(volume) if volume is not None else ""
    if volume is None or not driver:
        return
    yield from _unregistered(driver, node, around)
    if not needs_attachment(around.get(CSI_DRIVER, driver)):
        return
    found = around.get(VOLUME_ATTACHMENT, attachment_name(volume, node))
    if found is None:
        yield from _unattached(volume, node, around)
        return
    for fault in attachment_faults(found, around):
        text = f"its volume {objects.name(volume)} is not attached to node {node}: {fault.cause}"
        yield Fault(text, why(VOLUME_ATTACHMENT, objects.name(found)))


def _unattached(volume: JsonObject, node: str, around: Around) -> Iterator[Fault]:
    name = objects.name(volume)
    others = [
        one
        for one in around.all(VOLUME_ATTACHMENT)
        if objects.dig(one, "spec", "source", "persistentVolumeName") == name
    ]
    if VOLUME_ATTACHMENT.plural in around.unread:
        return
    if others and not _SHARED & {*(objects.spec(volume).get("accessModes") or ())}:
        held = str(objects.spec(others[0]).get("nodeName") or "")
        text = f"its volume {name} is attached to node {held}, and may be attached to one node alone"
        yield Fault(text, why(VOLUME_ATTACHMENT, objects.name(others[0])))
    else:
        text = f"its volume {name} waits to be attached to node {node}: the controllers have made no VolumeAttachment"
        yield Fault(text, "kubectl -n kube-system get leases")


def _unregistered(driver: str, node: str, around: Around) -> Iterator[Fault]:
    """Yield that a driver is not on a node, in the words of its registrar where there are any."""
    found = around.get(CSI_NODE, node)
    names = {row.get("name") for row in objects.spec(found or {}).get("drivers") or []}
    if driver in names or CSI_NODE.plural in around.unread:
        return
    there = around.get(NODE, node)
    failures = [one for one in around.events(there) if one.get("reason") == "FailedDriverRegistration"] if there else []
    said = f": {' '.join(str(failures[-1].get('message')).split())}" if failures else ": does its Pod run there?"
    lead = kubectl("", "get", POD.plural, "-A", "--field-selector", f"spec.nodeName={node}")
    yield Fault(f"CSI driver {driver} is not registered on node {node}{said}", lead)


def on_no_node(driver: str, around: Around) -> bool:
    """Return whether a provisioner is a CSI driver that no node has."""
    if around.get(CSI_DRIVER, driver) is None:
        return False
    nodes = around.all(CSI_NODE)
    known = {row.get("name") for one in nodes for row in objects.spec(one).get("drivers") or []}
    return driver not in known and CSI_NODE.plural not in around.unread
