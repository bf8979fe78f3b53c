"""What the API server would make of Pods that controllers create: its admission, which it is asked for beforehand.

A plan whose controllers would make Pods takes two turns. In the first, the rollout is simulated with Pods as their
templates declare them, and one of each form is given to the API server (``Admitting.made``), which lets its admission
see them as if what was planned stood (apiserver/nodes/planned_pods.py). In the second its answers decide: a Pod is
stored as admitted, or refused; forms that only this leads to have further turns. Quotas are charged here, since what
is left of them depends on which Pods have come and gone by then; the sums are the API server's (api/pods/quotas.py).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, StatusError
from minik8s_modules.api.kinds import CONTROLLER_REVISION, DEPLOYMENT, KINDS, POD, REPLICA_SET, STATEFUL_SET, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods import quotas
from minik8s_modules.api.pods.pod_templates import nameless
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.controllers.workloads.replicasets import wanted_replicas
from minik8s_modules.controllers.workloads.stateful_pods import first_ordinal, new_pod, revision_of
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note

_MOST_FORMS, _MOST_BYTES = 1000, 4 << 20
"""Only Pods that have their names, or their nodes, from their controllers have a form each: admission takes 1 to 2 ms
of an API server for each, and both turns carry them, in 16 MiB with the rest of a question or an answer."""
_UNASKED = "the API server was not asked"
_LATER = "the rollout came to it only after admission of others"
_TOO_MANY = "a plan has the API server admit {:,} forms of Pods at most, of {} MiB in all"
_ENDLESS = "with what it changes, their controller would make Pods without end"
_AGAIN, _SPARE, _UNSAID = 2, 10, 1000
"""A rollout makes no Pod again, but where one is preempted; a controller that loses its Pods makes more than this."""
_TAKEN = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
_NOTHING: Mapping[str, Any] = {"pods": {}, "quotas": []}
_ADMITTED = ("labels", "annotations", "finalizers")


class Admitting:
    """Makes of each new Pod of a world what the API server would; without ``admission`` it only notes their forms.

    Attributes:
        made: a Pod of each form that ``admission`` does not know, by a key that follows from it. Names that are made
            with Pods are no part of a form.
        endless: the uids of controllers that would make Pods without end of what it admits, as where it takes the
            labels away that they know them by. From when that shows, theirs are as declared.

    Args:
        endless: those that are known before.
    """

    def __init__(self, admission: Mapping[str, Any] | None, endless: Collection[str] = ()) -> None:
        self._admission = admission
        self._stored: Counter[str] = Counter()
        self.made: dict[str, JsonObject] = {}
        self._noted: set[str] = set()
        self._room = _MOST_BYTES
        self._foreseen: set[tuple[str, str]] = set()
        self.endless = {*endless}
        # why it is not known what admission makes of Pods, one each, by the uid of what makes them
        self._unknown: defaultdict[str, list[str]] = defaultdict(list)
        # quotas as charged, and how much had gone from the world when they were counted
        self._charged: dict[str, tuple[int, JsonObject]] = {}

    def __call__(self, world: World, owner: JsonObject, pod: JsonObject) -> JsonObject:
        """Return the Pod that ``owner`` has made as it would be stored.

        Raises:
            StatusError: it would be refused.
        """
        key = self._note(pod)
        self._foresee(world, owner, pod)
        if self._admission is None:
            return pod
        answer = self._admission["pods"].get(key) or {"unknown": self._untold(key)}
        if "refused" in answer:
            raise StatusError(HTTPStatus.FORBIDDEN, "Forbidden", str(answer["refused"]))
        if "pod" in answer and self._is_endless(owner, pod, key):
            answer = {"unknown": _ENDLESS}
        admitted = _admitted(pod, answer)
        try:
            self._charge(world, admitted)
        except Forbidden as error:
            error.message = nameless(error.message, pod)
            raise
        if "unknown" in answer:
            self._unknown[objects.uid(owner)].append(str(answer["unknown"]))
        self._stored[key] += 1
        return admitted

    def _note(self, pod: JsonObject) -> str:
        """Return the key of a Pod's form, which is noted while there is room for more."""
        form = declared(POD, pod)
        key, size = _key(form)
        if key not in self._noted and len(self._noted) < _MOST_FORMS and size <= self._room:
            self._noted.add(key)
            self._room -= size
            if key not in (self._admission or _NOTHING)["pods"]:
                self.made[key] = form
        return key

    def _foresee(self, world: World, owner: JsonObject, pod: JsonObject) -> None:
        """Note all Pods of a StatefulSet's revision with its first one: in order, each may wait for those before it."""
        if (owner.get("apiVersion"), owner.get("kind")) != (STATEFUL_SET.api_version, STATEFUL_SET.kind):
            return
        which = (objects.uid(owner), revision_of(pod))
        revision = world.get(CONTROLLER_REVISION, Key(objects.namespace(pod), which[1]))
        if revision is None or which in self._foreseen:
            return
        self._foreseen.add(which)
        first = first_ordinal(owner)
        for ordinal in range(first, first + min(wanted_replicas(owner), _MOST_FORMS)):
            if self._note(new_pod(owner, revision, ordinal).obj) not in self._noted:
                break

    def _untold(self, key: str) -> str:
        if key not in self._noted:
            return _TOO_MANY.format(_MOST_FORMS, _MOST_BYTES >> 20)
        return _LATER if (self._admission or _NOTHING)["pods"] else _UNASKED

    def _is_endless(self, owner: JsonObject, pod: JsonObject, key: str) -> bool:
        if self._stored[key] >= _AGAIN * _wanted(owner, pod) + _SPARE:
            self.endless.add(objects.uid(owner))
        return objects.uid(owner) in self.endless

    def _charge(self, world: World, pod: JsonObject) -> None:
        after = {}
        for quota in self._counted(world, objects.namespace(pod)):
            charged = quotas.charged(quota, POD, pod, None, world.now)
            after[str(objects.key(quota))] = (world.removals, charged or quota)
        self._charged |= after  # none is charged where another refuses

    def _counted(self, world: World, namespace: str) -> Iterator[JsonObject]:
        """Yield the quotas of a namespace as their controller has counted them, what limits Pods."""
        for quota in (self._admission or _NOTHING)["quotas"]:
            if objects.namespace(quota) != namespace:
                continue
            gone, charged = self._charged.get(str(objects.key(quota)), (-1, quota))
            if gone != world.removals:
                hard = objects.spec(quota).get("hard") or {}
                used = quotas.total(quota, ((POD, each) for each in world.all(POD)), world.now)
                charged = {**quota, "status": {"hard": hard, "used": used}}
            yield charged

    def notes(self, world: World, workloads: Iterable[JsonObject]) -> Iterator[Note]:
        """Say of each workload how many of its Pods would be refused, and of how many that is not known, and why.

        More may be refused: controllers begin with some, and StatefulSets try nothing behind one that is missing.
        """
        known = {objects.uid(each): each for each in workloads}
        what = (
            ("at least {} would be refused", world.refused),
            ("what admission makes of {} is not known", self._unknown),
        )
        for said, pods in what:
            found: dict[tuple[About, ...], list[str]] = {}
            for uid, reasons in pods.items():
                if uid in known:  # what has gone since is refused nothing
                    found.setdefault(_subjects(known[uid], known), []).extend(reasons)
            for about, reasons in found.items():
                one, count = about[-1], "1 Pod" if len(reasons) == 1 else f"{len(reasons)} Pods"
                yield Note(f"{one.kind} {one.namespace}/{one.name}: {said.format(count)}: {reasons[0]}", about)


def declared(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return a new object as its controller declares it, without what the API server fills in."""
    meta = {field: value for field, value in obj["metadata"].items() if field in _TAKEN}
    rest = {field: value for field, value in obj.items() if field != "status"}
    return {**rest, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}


def controllers_of(obj: JsonObject, known: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    """Yield the references to what controls ``obj``, and above, as far as it is ``known``; one may control itself."""
    seen, owner = set[str](), objects.controller_of(obj)
    while owner is not None and (uid := str(owner.get("uid"))) not in seen:
        yield owner
        seen.add(uid)
        owner = objects.controller_of(known.get(uid, {"metadata": {}}))


def _subjects(workload: JsonObject, known: Mapping[str, JsonObject]) -> tuple[About, ...]:
    """Return a workload and what controls it, by whose name it is told last.

    Whoever may read that alone must not be told: anybody may name any object as a workload's controller. A ReplicaSet
    is told in the status of its Deployment.
    """
    own, space = _about(workload), objects.namespace(workload)
    references = [*controllers_of(workload, known)]
    above = [_about({**each, "metadata": {"name": each.get("name"), "namespace": space}}) for each in references]
    is_part = bool(above) and _is_part(own, above[0], known.get(str(references[0].get("uid"))))
    return (*([] if is_part else [own]), *above)


def _is_part(own: About, named: About, above: JsonObject | None) -> bool:
    """Return whether it is a ReplicaSet of a Deployment that is there, not of one that it merely names."""
    kinds = tuple((one.api_version, one.kind) for one in (own, named))
    ours = tuple((one.api_version, one.kind) for one in (REPLICA_SET, DEPLOYMENT))
    return kinds == ours and above is not None and _about(above) == named


def _about(obj: JsonObject) -> About:
    return About(str(obj.get("apiVersion")), str(obj.get("kind")), objects.namespace(obj), objects.name(obj))


def _wanted(owner: JsonObject, pod: JsonObject) -> int:
    """Return how many Pods of one form a workload means to have, as far as it says."""
    if "generateName" not in pod["metadata"]:
        return 1
    declared = objects.spec(owner).get("replicas") or objects.spec(owner).get("parallelism")
    ours = KINDS.by_api_version(str(owner.get("apiVersion")), str(owner.get("kind"))) is not None
    return declared if isinstance(declared, int) else 1 if ours else _UNSAID


def _admitted(pod: JsonObject, answer: JsonObject) -> JsonObject:
    if "pod" not in answer:
        return pod
    kept = {field: value for field, value in pod["metadata"].items() if field not in _ADMITTED}
    meta = objects.metadata(answer["pod"])
    admitted = {field: meta[field] for field in _ADMITTED if field in meta}
    return {**pod, "metadata": {**kept, **admitted}, "spec": answer["pod"]["spec"]}


def _key(form: JsonObject) -> tuple[str, int]:
    """Return the key of a form, and how many bytes it takes."""
    meta = form["metadata"]
    named = {**meta, "name": ""} if meta.get("generateName") else meta
    encoded = json.dumps({**form, "metadata": named}, sort_keys=True).encode()
    return hashlib.sha256(encoded).hexdigest(), len(encoded)
