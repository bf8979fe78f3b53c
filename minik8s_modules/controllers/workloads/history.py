"""ControllerRevisions: the templates that DaemonSets and StatefulSets have had, and may go back to. Pure.

A revision's data is the patch that ``kubectl rollout undo`` sends: the template, to be put in the place of the one
there is; in the very bytes of Kubernetes' controllers, for clients compare those. The one that equals the template of
now is the update revision; going back to an older template gives its revision the highest number. Source: kubernetes
``pkg/controller/history`` and ``pkg/controller/daemon/update.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, Kind
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core.owning import claim, selector_of
from minik8s_modules.controllers.core.steps import Create, Delete, Patch, Step, Words, controller_reference
from minik8s_modules.controllers.workloads.revisions import template_hash

HASH_LABEL = "controller-revision-hash"
_NOT_PASSED_ON = frozenset({LAST_APPLIED, "deprecated.daemonset.template.generation"})
_FAILED = Words("", "", "FailedCreate", "Error creating revision: ")


class History(NamedTuple):
    """The revisions of a workload.

    Attributes:
        steps: adopt, make or renumber revisions.
        update: that of the template of now; it may still be in ``steps``.
        known: all revisions there are, the oldest first.
    """

    steps: list[Step]
    update: JsonObject
    known: list[JsonObject]

    def named(self, name: str) -> JsonObject | None:
        """Return the revision of a name, or None."""
        return next((each for each in [*self.known, self.update] if objects.name(each) == name), None)


def history(kind: Kind, owner: JsonObject, found: Sequence[JsonObject]) -> History:
    """Return the revisions of ``owner`` among ``found``: those it controls, and those nobody does."""
    claimed = claim(owner, selector_of(owner), CONTROLLER_REVISION, found)
    known = sorted(claimed.owned, key=lambda each: (_number(each), objects.name(each)))
    steps: list[Step] = [*claimed.steps]
    data, newest = data_of(owner), max(map(_number, known), default=0)
    equal = [each for each in known if same_data(each, {"data": data})]
    if not equal:
        update = _made(kind, owner, data, newest + 1)
        return History([*steps, Create(CONTROLLER_REVISION, update, _FAILED)], update, known)
    update = equal[-1]
    adopted = objects.controller_of(update) is None
    if _number(update) < newest and not adopted:
        steps.append(Patch(CONTROLLER_REVISION, update, {"revision": newest + 1}))
    return History(steps, update, known)


def data_of(owner: JsonObject) -> JsonObject:
    """Return what a revision keeps of ``owner``: a strategic merge patch with its template, as Go writes it.

    Source: ``getPatch`` of pkg/controller/daemon/update.go. Names are in order, and fields that are structs in Go are
    there when they are empty (creationTimestamp until 1.33).
    """
    template = objects.spec(owner).get("template") or {}
    spec = {**(template.get("spec") or {})}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [{"resources": {}, **container} for container in spec[field]]
    meta = {"creationTimestamp": None, **(template.get("metadata") or {})}
    data = {"spec": {"template": {**template, "$patch": "replace", "metadata": meta, "spec": spec}}}
    ordered: JsonObject = orjson.loads(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
    return ordered


def template_of(revision: JsonObject) -> JsonObject:
    """Return the pod template that a revision keeps, without what Go alone writes."""
    kept: JsonObject = objects.dig(revision, "data", "spec", "template") or {}
    found = {key: _filled(value) for key, value in kept.items() if key != "$patch"}
    if isinstance(spec := found.get("spec"), dict):
        for field in {"initContainers", "containers"} & spec.keys():
            spec[field] = [_filled(container) for container in spec[field]]
    return found


def _filled(value: Any) -> Any:
    """Return a map without what is null, and without resources that say nothing."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if inner is not None and (name, inner) != ("resources", {})}


def hash_of(revision: JsonObject) -> str:
    """Return the revision's hash."""
    return objects.labels(revision).get(HASH_LABEL, "")


def _number(revision: JsonObject) -> int:
    return int(revision.get("revision") or 0)


def _made(kind: Kind, owner: JsonObject, data: JsonObject, number: int) -> JsonObject:
    value = template_hash(data, int(objects.status(owner).get("collisionCount") or 0))
    labels = objects.labels(objects.spec(owner).get("template") or {})
    annotations = {key: text for key, text in objects.annotations(owner).items() if key not in _NOT_PASSED_ON}
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": f"{objects.name(owner)}-{value}",
            "namespace": objects.namespace(owner),
            "labels": {**labels, HASH_LABEL: value},
            "annotations": annotations,
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "data": data,
        "revision": number,
    }


def surplus(owner: JsonObject, revisions: History, live: Collection[str]) -> list[Step]:
    """Return the deletion of the oldest revisions beyond revisionHistoryLimit; those named ``live`` stay."""
    limit = objects.spec(owner).get("revisionHistoryLimit")
    old = [each for each in revisions.known if objects.name(each) not in {*live, objects.name(revisions.update)}]
    return [Delete(CONTROLLER_REVISION, each) for each in old[: max(0, len(old) - int(10 if limit is None else limit))]]


def same_data(wanted: JsonObject, found: JsonObject) -> bool:
    """Return whether two revisions keep the same template, however it is written; else their hashes collide."""
    return template_of(wanted) == template_of(found)
