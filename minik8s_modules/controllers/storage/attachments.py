"""Which CSI volumes are attached to which nodes: ``decide_attachments``, pure, and its shell.

A VolumeAttachment asks a driver's external-attacher to attach a volume where a Pod with a node wants it, and its
deletion asks to detach it. It goes when no Pod of that node names the volume any more, and the node does not list it in
``status.volumesInUse``. A node mounts only what stands in that list and in ``status.volumesAttached``, from which a
volume is taken before its VolumeAttachment is deleted: a write that is refused when the Node has changed since it was
read. So nothing is ever detached from under a mount, neither by time nor by a race; the taint
``node.kubernetes.io/out-of-service`` says that the machine is off, and that its list counts for nothing. Source:
kubernetes ``pkg/controller/volume/attachdetach``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    VOLUME_ATTACHMENT,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.storage import claims
from minik8s_modules.api.storage.attachments import (
    attached,
    attached_rows,
    attachment_name,
    driver_of,
    in_use,
    needs_attachment,
    node_name_of,
)
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Patch, RecordEvent, Step
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_CLAIM, by_claim

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_VOLUME, _DRIVER, _ON_NODE, _LISTED = "volume", "driver", "on-node", "volumes-attached"
_OVER = frozenset({"Succeeded", "Failed"})
_LOOK_S = 10.0


class Attached(NamedTuple):
    """What there is around a volume: its driver's CSIDriver, its VolumeAttachments, Pods that name it, their nodes.

    Two PersistentVolumes may name one volume of a driver's, by its handle: attachments are of either, ``others`` are
    Pods of the other one.
    """

    driver: JsonObject | None
    attachments: Sequence[JsonObject]
    pods: Sequence[JsonObject]
    nodes: Mapping[str, JsonObject]
    others: Sequence[JsonObject] = ()


def decide_attachments(volume: JsonObject, around: Attached) -> list[Step]:
    """Return what attaches a volume where it is wanted, and detaches it where nobody has it any more."""
    if not driver_of(volume) or not needs_attachment(around.driver):
        return []
    there = {str(objects.spec(one).get("nodeName") or ""): one for one in around.attachments}
    users = _users(around.pods)
    wanted = users.keys() | _users(around.others).keys()
    steps: list[Step] = []
    for name, node in sorted(around.nodes.items()):
        steps += _listed(volume, node, there.get(name), used=name in wanted)
    for name in sorted(there.keys() - wanted):
        steps += _detached(volume, there[name], around.nodes.get(name))
    if objects.is_deleting(volume):
        return steps
    shared = bool(_SHARED & {*(objects.spec(volume).get("accessModes") or ())})
    for name in sorted(users.keys() - there.keys()):
        pods = [pod for pod in users[name] if not objects.is_deleting(pod)]
        if not pods or name not in around.nodes:
            continue
        if there and not shared:
            message = (
                f'Multi-Attach error for volume "{objects.name(volume)}" Volume is already exclusively attached to '
            )
            steps += [RecordEvent(pod, "Warning", "FailedAttachVolume", message + _elsewhere(there)) for pod in pods]
            steps.append(Again(_LOOK_S))
        else:
            there[name] = made = _attachment(volume, name)
            steps.append(Create(VOLUME_ATTACHMENT, made))
    return steps


def _users(pods: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    """Return the Pods that want a volume, by their nodes."""
    users: dict[str, list[JsonObject]] = {}
    for pod in pods:
        node_name = str(objects.spec(pod).get("nodeName") or "")
        if node_name and objects.status(pod).get("phase") not in _OVER:
            users.setdefault(node_name, []).append(pod)
    return users


def _elsewhere(there: Mapping[str, JsonObject]) -> str:
    return f"one node and can't be attached to another ({', '.join(sorted(there))})"


def _listed(volume: JsonObject, node: JsonObject, attachment: JsonObject | None, *, used: bool) -> list[Step]:
    """Return what has the Node list the volume as long as it is attached, and stays so."""
    name = node_name_of(volume)
    listed, stays = attached(node), False
    if attachment is not None and not objects.is_deleting(attachment):
        done = bool(objects.status(attachment).get("attached"))
        stays = (used and (done or name in listed)) or (name in listed and not _may_lose(node, name))
    if stays == (name in listed):
        return []
    rows = attached_rows(listed | {name} if stays else listed - {name})
    return [Patch(NODE, node, {"status": {"volumesAttached": rows}}, "status")]


def _detached(volume: JsonObject, attachment: JsonObject, node: JsonObject | None) -> list[Step]:
    if objects.is_deleting(attachment):
        return []
    if node is not None and not _may_lose(node, node_name_of(volume)):
        return []  # its next list brings the volume back here
    return [Delete(VOLUME_ATTACHMENT, attachment)]


def _may_lose(node: JsonObject, name: str) -> bool:
    """Return whether a node has the volume mounted no more, as it says itself, or somebody who says that it is off."""
    taints = {taint.get("key") for taint in objects.spec(node).get("taints") or ()}
    return name not in in_use(node) or OUT_OF_SERVICE in taints


def _attachment(volume: JsonObject, node: str) -> JsonObject:
    spec = {
        "attacher": driver_of(volume), "nodeName": node, "source": {"persistentVolumeName": objects.name(volume)},
    }  # fmt: skip
    return {"metadata": {"name": attachment_name(volume, node)}, "spec": spec}


def _attached_volume(attachment: JsonObject) -> list[str]:
    name = objects.dig(attachment, "spec", "source", "persistentVolumeName")
    return [str(name)] if name else []


def _driver(volume: JsonObject) -> list[str]:
    return [driver_of(volume)] if driver_of(volume) else []


def _on_node(volume: JsonObject) -> list[str]:
    return [node_name_of(volume)] if driver_of(volume) else []


def _listing(node: JsonObject) -> list[str]:
    return sorted(attached(node))


class AttachmentController(WorkloadController):
    """Keeps VolumeAttachments: one for each CSI volume and node with a Pod that names it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, PERSISTENT_VOLUME, ())
        self.own.add_index(_DRIVER, _driver)
        self.own.add_index(_ON_NODE, _on_node)
        self._attachments = self.loop.watch(VOLUME_ATTACHMENT, self._of_attachment)
        self._attachments.add_index(_VOLUME, _attached_volume)
        self._drivers = self.loop.watch(CSI_DRIVER, self._of_driver)
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, _of_claim)
        self._pods = self.loop.watch(POD, _of_pod, BY_CLAIM)
        self._nodes = self.loop.watch(NODE, self._of_node)
        self._nodes.add_index(_LISTED, _listing)

    def sync(self, key: Key) -> None:
        """Look at one volume; for the key of a claim, queue its volume. Raises as ``WorkloadController``."""
        if not key.namespace:
            super().sync(key)
            return
        named = objects.spec(self._claims.get(*key) or {}).get("volumeName")
        if named:
            self.loop.add(Key("", str(named)))

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one volume."""
        twins = [
            one for one in self.own.by_index(_ON_NODE, node_name_of(obj)) if objects.name(one) != objects.name(obj)
        ]
        there = [each for one in (obj, *twins) for each in self._attachments.by_index(_VOLUME, objects.name(one))]
        pods, others = self._users(obj), [pod for one in twins for pod in self._users(one)]
        named = {str(objects.spec(each).get("nodeName") or "") for each in (*pods, *others, *there)}
        found = [node for name in named if (node := self._nodes.get("", name)) is not None]
        found += self._nodes.by_index(_LISTED, node_name_of(obj))
        nodes = {objects.name(node): node for node in found}
        return decide_attachments(obj, Attached(self._drivers.get("", driver_of(obj)), there, pods, nodes, others))

    def _users(self, volume: JsonObject) -> Sequence[JsonObject]:
        held = claims.holder(volume)
        return self._pods.by_index(BY_CLAIM, str(held.key)) if held is not None else ()

    def _of_node(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Return the volumes that a node lists otherwise than before; all that it lists where its taints differ."""
        before, after = old or {}, new or {}
        changed = (in_use(before) ^ in_use(after)) | (attached(before) ^ attached(after))
        if old is None or new is None or objects.spec(before).get("taints") != objects.spec(after).get("taints"):
            changed |= in_use(before) | in_use(after)
        return [objects.key(each) for name in sorted(changed) for each in self.own.by_index(_ON_NODE, name)]

    def _of_attachment(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Return the volume of an attachment, and others of the same handle."""
        names = _attached_volume(new or old or {})
        found = [one for name in names if (one := self.own.get("", name)) is not None and driver_of(one)]
        twins = [each for one in found for each in self.own.by_index(_ON_NODE, node_name_of(one))]
        return {Key("", name) for name in names} | {objects.key(each) for each in twins}

    def _of_driver(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        return [objects.key(each) for each in self.own.by_index(_DRIVER, objects.name(new or old or {}))]


def _of_claim(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    names = {objects.spec(side).get("volumeName") for side in (old, new) if side is not None}
    return [Key("", str(name)) for name in names if name]


def _of_pod(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the claims of a pod that came, went, got a node, or is over."""
    if old is not None and new is not None and _read(old) == _read(new):
        return []
    return [Key(*each.split("/", 1)) for each in by_claim(new or old or {})]


def _read(pod: JsonObject) -> tuple[object, ...]:
    phase = objects.status(pod).get("phase")
    return objects.spec(pod).get("nodeName"), phase in _OVER, objects.is_deleting(pod)
