"""Which CSI volumes are attached to which nodes: ``decide_attachments``, pure, and its shell.

A VolumeAttachment asks a driver's external-attacher to attach a volume where a Pod with a node wants it, and its
deletion asks to detach it. It goes when no Pod of that node names the volume any more: a Pod goes only after its node
has taken the volume away (reconcile/loop/nodestate.py), and a node that does not answer may still have it mounted. So
nothing is ever detached from under a mount by time alone; the taint ``node.kubernetes.io/out-of-service`` says that the
machine is off. Source: kubernetes ``pkg/controller/volume/attachdetach``.
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
from minik8s_modules.api.storage.attachments import attachment_name, driver_of, needs_attachment
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Step, Tell
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_CLAIM, by_claim

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_VOLUME, _DRIVER = "volume", "driver"
_OVER = frozenset({"Succeeded", "Failed"})
_LOOK_S = 10.0
_UNMOUNT_S = 20.0  # a node that answers has taken a volume away within seconds


class Attached(NamedTuple):
    """What there is around a volume: its driver's CSIDriver, its VolumeAttachments, Pods that name it, all nodes."""

    driver: JsonObject | None
    attachments: Sequence[JsonObject]
    pods: Sequence[JsonObject]
    nodes: Mapping[str, JsonObject]


def decide_attachments(volume: JsonObject, around: Attached) -> list[Step]:
    """Return what attaches a volume where it is wanted, and detaches it where nobody has it any more."""
    if not driver_of(volume) or not needs_attachment(around.driver):
        return []
    there = {str(objects.spec(one).get("nodeName") or ""): one for one in around.attachments}
    users: dict[str, list[JsonObject]] = {}
    for pod in around.pods:
        if node := str(objects.spec(pod).get("nodeName") or ""):
            users.setdefault(node, []).append(pod)
    steps: list[Step] = []
    for node in sorted(there.keys() - users.keys()):
        steps += _detached(there[node], around.nodes.get(node))
    if objects.is_deleting(volume):
        return steps
    shared = bool(_SHARED & {*(objects.spec(volume).get("accessModes") or ())})
    for node in sorted(users.keys() - there.keys()):
        pods = [pod for pod in users[node] if objects.status(pod).get("phase") not in _OVER]
        pods = [pod for pod in pods if not objects.is_deleting(pod)]
        if not pods or node not in around.nodes:
            continue
        if there and not shared:
            told = f'Multi-Attach error for volume "{objects.name(volume)}" Volume is already exclusively attached to '
            steps += [Tell(pod, "Warning", "FailedAttachVolume", told + _elsewhere(there)) for pod in pods]
            steps.append(Again(_LOOK_S))
        else:
            there[node] = made = _attachment(volume, node)
            steps.append(Create(VOLUME_ATTACHMENT, made))
    return steps


def _elsewhere(there: Mapping[str, JsonObject]) -> str:
    return f"one node and can't be attached to another ({', '.join(sorted(there))})"


def _detached(attachment: JsonObject, node: JsonObject | None) -> list[Step]:
    if objects.is_deleting(attachment):
        return []
    if node is not None and not _may_lose(node):
        return [Again(_LOOK_S)]
    return [Delete(VOLUME_ATTACHMENT, attachment)]


def _may_lose(node: JsonObject) -> bool:
    """Return whether what a node's Pods leave behind is known: it answers, or somebody says that it is off."""
    taints = {taint.get("key") for taint in objects.spec(node).get("taints") or ()}
    conditions = objects.status(node).get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready or OUT_OF_SERVICE in taints


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


class AttachmentController(WorkloadController):
    """Keeps VolumeAttachments: one for each CSI volume and node with a Pod that names it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, PERSISTENT_VOLUME, ())
        self.own.add_index(_DRIVER, _driver)
        self._attachments = self.loop.watch(VOLUME_ATTACHMENT, _of_attachment)
        self._attachments.add_index(_VOLUME, _attached_volume)
        self._drivers = self.loop.watch(CSI_DRIVER, self._of_driver)
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, _of_claim)
        self._pods = self.loop.watch(POD, _of_pod, BY_CLAIM)
        self._nodes = self.loop.reads(NODE)
        self._unused: dict[str, float] = {}
        """Since when no Pod names a volume where it is attached, by the attachment's UID."""

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
        held = claims.holder(obj)
        there = self._attachments.by_index(_VOLUME, objects.name(obj))
        pods = self._pods.by_index(BY_CLAIM, str(held.key)) if held is not None else []
        nodes = {objects.name(node): node for node in self._nodes.list()} if there or pods else {}
        around = Attached(self._drivers.get("", driver_of(obj)), there, pods, nodes)
        steps: Sequence[Step] = decide_attachments(obj, around)
        named = {objects.spec(pod).get("nodeName") for pod in pods}
        for one in there:
            if objects.spec(one).get("nodeName") in named:
                self._unused.pop(objects.uid(one), None)
        if held is not None and any(isinstance(step, Delete) for step in steps):
            # one that has come to the node just now may not be in the copy yet, and may mount what is still attached
            listed = self.context.client.list(POD, held.key.namespace).items
            pods = [pod for pod in listed if str(held.key) in by_claim(pod)]
            steps = self._patient(decide_attachments(obj, around._replace(pods=pods)))
        return steps

    def _patient(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Detach only what nobody has named for a while: a Pod that is deleted by force leaves before its mounts."""
        now_s = self.context.clock.monotonic()
        found: list[Step] = []
        for step in steps:
            since_s = self._unused.setdefault(objects.uid(step.obj), now_s) if isinstance(step, Delete) else now_s
            left_s = since_s + _UNMOUNT_S - now_s
            found.append(Again(left_s) if isinstance(step, Delete) and left_s > 0 else step)
        return found

    def _of_driver(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        return [objects.key(each) for each in self.own.by_index(_DRIVER, objects.name(new or old or {}))]


def _of_attachment(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return [Key("", name) for name in _attached_volume(new or old or {})]


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
