"""What a decider returns: the steps that lead from what is to what is declared, in the order they are taken.

A step is a value. ``acting.py`` takes steps against the API, ``simulated_cluster.py`` takes them in a world of
dictionaries (for ``plan``, and for the cases of tests, which stop after any step). A decider may be asked again after
any prefix of its steps was taken: it then returns what is left.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.runtime.events import EventType


class Words(NamedTuple):
    """What an Event on the owner says: on success ``reason`` and ``message``, on failure ``failed`` and ``because``.

    ``message`` is followed by the object's name, ``because`` by the error. An empty reason records no Event.
    """

    reason: str
    message: str
    failed: str
    because: str


SILENT = Words("", "", "", "")
# pkg/controller/controller_utils.go: SuccessfulCreatePodReason and its siblings
POD_CREATED = Words("SuccessfulCreate", "Created pod: ", "FailedCreate", "Error creating: ")
POD_DELETED = Words("SuccessfulDelete", "Deleted pod: ", "FailedDelete", "Error deleting: ")


class Create(NamedTuple):
    """Create ``obj``; without a name it gets ``generateName`` and five random characters.

    ``uuid_name`` gives it a UUID instead, as the original MiniK8s names the pods of its replica sets. Creations that
    stand one after the other are taken in batches of 1, 2, 4, … side by side: if one fails, the larger batches after
    it are not tried (``slowStartBatch``).
    """

    kind: Kind
    obj: JsonObject
    words: Words = SILENT
    uuid_name: bool = False


class Delete(NamedTuple):
    """Delete ``obj``, if it is still the one with its uid; deletions in a row go side by side.

    ``grace_s`` None leaves the grace to the object; ``propagation`` as in DeleteOptions. ``unchanged`` leaves an object
    alone that has changed since it was seen: the change has its owner look again.
    """

    kind: Kind
    obj: JsonObject
    words: Words = SILENT
    grace_s: int | None = None
    propagation: str | None = None
    unchanged: bool = False


class Adopt(NamedTuple):
    """Make the controller the controlling owner of ``obj``; refused when either has changed since it was seen."""

    kind: Kind
    obj: JsonObject


class Release(NamedTuple):
    """Take the controller's owner reference from ``obj``, which it does not select any more."""

    kind: Kind
    obj: JsonObject


class Patch(NamedTuple):
    """Merge ``body`` into ``obj`` if it has not changed since it was seen."""

    kind: Kind
    obj: JsonObject
    body: JsonObject
    subresource: str = ""


class WriteStatus(NamedTuple):
    """Replace the status of the controller's own object ``obj``, if it has not changed since it was seen."""

    kind: Kind
    obj: JsonObject
    status: JsonObject


class RecordEvent(NamedTuple):
    """Record an Event on ``obj``."""

    obj: JsonObject
    type: EventType
    reason: str
    message: str


class Again(NamedTuple):
    """Decide again in ``after_s`` seconds: something becomes true by time alone."""

    after_s: float


Step = Create | Delete | Adopt | Release | Patch | WriteStatus | RecordEvent | Again


def controller_reference(kind: Kind, owner: JsonObject) -> JsonObject:
    """Return the owner reference that makes ``owner`` an object's controller (``metav1.NewControllerRef``)."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": objects.name(owner),
        "uid": objects.uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(template: JsonObject, owner_kind: Kind, owner: JsonObject) -> JsonObject:
    """Return the pod of a PodTemplateSpec that ``owner`` controls, still without a name (``GetPodFromTemplate``)."""
    wanted = template.get("metadata") or {}
    copied = {field: wanted[field] for field in ("labels", "annotations", "finalizers") if wanted.get(field)}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "generateName": f"{objects.name(owner)}-",
            "namespace": objects.namespace(owner),
            **copied,
            "ownerReferences": [controller_reference(owner_kind, owner)],
        },
        "spec": template.get("spec") or {},
    }


def with_owner(obj: JsonObject, reference: JsonObject) -> list[JsonObject]:
    """Return the owner references of ``obj`` with ``reference`` among them."""
    others = [each for each in objects.owner_references(obj) if each.get("uid") != reference["uid"]]
    return [*others, reference]


def without_owner(obj: JsonObject, uid: str) -> list[JsonObject]:
    """Return the owner references of ``obj`` without that of ``uid``."""
    return [each for each in objects.owner_references(obj) if each.get("uid") != uid]
