"""Nodes that leave: their pods go, and bare pods of the original come back under their names.

Pods with a controller are its business, bare pods of Kubernetes just go. A bare pod of the original is noted before
it is deleted, in a ControllerRevision ``moved-<uid>`` beside it, and made again once it is gone: the note outlives
whoever dies in between, and the name keeps it from being made twice. Pods of a Node that was deleted are
orphans.py's, which notes them in the same way. How a node leaves: ``api/nodes/leaving.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONTROLLER_REVISION, NODE, POD
from minik8s_modules.api.nodes.leaving import ASKED, DEPARTED, LEAVING, READY, comes_back, leaving
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.cleanup.pod_gc import failed
from minik8s_modules.controllers.core.steps import Create, Delete, Patch, Step
from minik8s_modules.controllers.core.taking import take_all
from minik8s_modules.runtime.controller import Context, Loop, Looping

log = logging.getLogger(__name__)

MOVED = "minik8s.io/moved-pod"
REPLACES = "minik8s.io/replaces"
_FROM = "minik8s.io/moved-from"
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the name that admission gives the volume


def decide_leaving(node: JsonObject, pods: Sequence[JsonObject], noted: Collection[str], now: datetime) -> list[Step]:
    """Return what becomes of the pods of a node.

    Args:
        node: the Node.
        pods: those bound to it.
        noted: uids of pods there are notes of.
        now: of conditions.
    """
    how = leaving(node)
    if not how:
        return []
    if how != DEPARTED and not objects.spec(node).get("unschedulable"):
        return [Patch(NODE, node, {"metadata": {"annotations": {LEAVING: None}}})]  # somebody has called it off
    notes: list[Step] = [
        Create(CONTROLLER_REVISION, note_of(pod)) for pod in pods if comes_back(pod) and objects.uid(pod) not in noted
    ]
    if how == ASKED:
        return [*notes, Patch(NODE, node, {"metadata": {"annotations": {LEAVING: READY}}})]
    if how != DEPARTED:
        return notes
    cordon: list[Step] = [Patch(NODE, node, {"spec": {"unschedulable": True}})]
    gone: list[Step] = []
    for pod in pods:
        gone += [*failed(pod, "its node has left", now), Delete(POD, pod, grace_s=0)]
    return [*([] if objects.spec(node).get("unschedulable") else cordon), *notes, *gone, Delete(NODE, node)]


def decide_return(note: JsonObject, pod: JsonObject | None, node: JsonObject | None) -> list[Step]:
    """Return what becomes of a note.

    Args:
        note: the ControllerRevision.
        pod: who bears the noted name now.
        node: the noted node, None when it is gone.
    """
    if pod is None:
        return [Create(POD, pod_of(note)), Delete(CONTROLLER_REVISION, note)]
    if objects.uid(pod) != _uid_of(note):
        return [Delete(CONTROLLER_REVISION, note)]  # the name is taken again: by us, or by somebody else
    stays = node is not None and not leaving(node) and not objects.is_deleting(pod)
    return [Delete(CONTROLLER_REVISION, note)] if stays else []


def note_of(pod: JsonObject) -> JsonObject:
    """Return the note about a pod that must come back."""
    meta, spec = pod["metadata"], objects.spec(pod)
    kept = {field: meta[field] for field in ("name", "labels", "annotations", "ownerReferences") if meta.get(field)}
    tokens = {str(each["name"]) for each in spec.get("volumes") or [] if str(each["name"]).startswith(_TOKEN_VOLUME)}
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": f"moved-{objects.uid(pod)}",
            "namespace": objects.namespace(pod),
            "labels": {MOVED: "true"},
            "annotations": {_FROM: str(spec.get("nodeName") or "")},
        },
        "revision": 1,
        "data": {"metadata": kept, "spec": _unbound(spec, tokens)},
    }


def _unbound(spec: JsonObject, tokens: Collection[str]) -> JsonObject:
    """Return the spec without its node and without what admission adds again to every pod."""
    made = {field: value for field, value in spec.items() if field not in {"nodeName", "priority"}}
    made["volumes"] = [each for each in spec.get("volumes") or [] if each["name"] not in tokens]
    for field in ("containers", "initContainers"):
        if field in spec:
            made[field] = [_without_mounts(each, tokens) for each in spec[field]]
    return made


def _without_mounts(container: JsonObject, volumes: Collection[str]) -> JsonObject:
    mounts = [each for each in container.get("volumeMounts") or [] if each["name"] not in volumes]
    return {**container, "volumeMounts": mounts}


def pod_of(note: JsonObject) -> JsonObject:
    """Return the pod that is made from a note."""
    data = note["data"]
    marks = {**(data["metadata"].get("annotations") or {}), REPLACES: _uid_of(note)}
    meta = {**data["metadata"], "namespace": objects.namespace(note), "annotations": marks}
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": meta, "spec": data["spec"]}


def _uid_of(note: JsonObject) -> str:
    return objects.name(note).removeprefix("moved-")


class DepartureController(Looping):
    """Empties nodes that leave."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = Loop(context, "departures", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, _leaving_key)
        self._notes = self._loop.reads(CONTROLLER_REVISION)

    def sync(self, key: Key) -> None:
        """Look at one node.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        try:
            node = self._context.client.get(NODE, key.name)
        except NotFound:
            return
        noted = {_uid_of(each) for each in self._notes.list() if _is_note(each)}
        # as stored: a copy may lack a pod bound a moment ago, and does lack what kubectl remembers of it
        stored = self._context.client.list(POD).items if leaving(node) else []
        pods = [pod for pod in stored if objects.spec(pod).get("nodeName") == key.name]
        steps = decide_leaving(node, pods, noted, self._context.clock.now())
        if steps:
            log.info("node %s is leaving (%s): %d steps", key.name, leaving(node), len(steps))
        take_all(self._context, steps)


def fresh(context: Context, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the pods, those that come back as they are stored: copies lack what kubectl remembers of them."""
    found = []
    for pod in pods:
        key = objects.key(pod)
        try:
            found.append(context.client.get(POD, key.name, key.namespace) if comes_back(pod) else pod)
        except NotFound:
            log.debug("pod %s is gone", key)
    return found


class ReturnController(Looping):
    """Makes noted pods again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = Loop(context, "returns", self.sync, workers=1)
        self._notes = self._loop.watch(CONTROLLER_REVISION, _note_key)
        self._loop.watch(POD, self._gone_key)
        self._nodes = self._loop.watch(NODE, self._staying_keys)

    def sync(self, key: Key) -> None:
        """Look at one note.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        note = self._notes.get(*key)
        if note is None:
            return
        name = str(note["data"]["metadata"]["name"])
        try:
            pod: JsonObject | None = self._context.client.get(POD, name, key.namespace)
        except NotFound:
            pod = None
        node = self._nodes.get("", str(objects.annotations(note).get(_FROM) or ""))
        steps = decide_return(note, pod, node)
        if pod is None:
            log.info("pod %s/%s is made again: its node has left", key.namespace, name)
        take_all(self._context, steps)

    def _gone_key(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        if old is None or (new is not None and objects.uid(new) == objects.uid(old)):
            return []
        key = Key(objects.namespace(old), f"moved-{objects.uid(old)}")
        return [key] if self._notes.get(*key) is not None else []

    def _staying_keys(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Return all notes when a node stays after all, or is there again."""
        if new is None or leaving(new) or (old is not None and not leaving(old)):
            return []
        return [objects.key(each) for each in self._notes.list() if _is_note(each)]


def _is_note(revision: JsonObject) -> bool:
    return MOVED in objects.labels(revision)


def _note_key(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return [objects.key(new)] if new is not None and _is_note(new) else []


def _leaving_key(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return [objects.key(new)] if new is not None and leaving(new) else []
