"""ReplicaSets and ReplicationControllers: as many pods as declared, by ``decide_replica_set``.

Source: kubernetes ``pkg/controller/replicaset``, and ``replication``, which runs it for the older kind with its plain
map as the selector. Pods that failed or ended are not counted: they stay and are replaced; pods that are being deleted
are replaced at once. The pods of a replica set of the original MiniK8s (annotation ``minik8s.io/dialect``) are named
``<name of the template>-<uuid>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.dialect import ANNOTATION, ORIGINAL
from minik8s_modules.api.kinds import POD, REPLICA_SET, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.owning import claim, selector_of, with_condition, without_condition
from minik8s_modules.controllers.core.steps import (
    POD_CREATED,
    POD_DELETED,
    Again,
    Create,
    Delete,
    Step,
    WriteStatus,
    pod_from_template,
)
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context

# no more at once (replica_set.go, BurstReplicas): the rest follows when these show
BURST = 500
# thousands of pods take so long to count that each change of one must not have them counted again: a set of which
# nothing but its status was to be written rests for ten times as long; one that is counted in a millisecond does not
_REST, _LEAST_REST_S, _MOST_REST_S = 10.0, 0.01, 1.0
_FAILURE = "ReplicaFailure"


class Trouble(NamedTuple):
    """What kept the last round from its work: FailedCreate or FailedDelete, and the error's words."""

    reason: str
    message: str


def decide_replica_set(
    replica_set: JsonObject,
    found: Sequence[JsonObject],
    related: Sequence[JsonObject],
    now: datetime,
    trouble: Trouble | None = None,
    kind: Kind = REPLICA_SET,
) -> list[Step]:
    """Return the steps to the declared number of pods, and the status.

    Args:
        replica_set: the object.
        found: pods that it controls, and pods that nobody controls in its namespace.
        related: the pods of its owner's other sets, and its own; nodes with many of them are relieved first.
        now: decides what is available.
        trouble: what the last round could not do; it becomes the condition ReplicaFailure.
        kind: REPLICA_SET or REPLICATION_CONTROLLER.
    """
    selector = selector_of(replica_set)
    active = [pod for pod in found if podlib.is_active(pod)]
    claimed = claim(replica_set, selector, POD, active)
    steps: list[Step] = [*claimed.steps]
    if not objects.is_deleting(replica_set):
        steps += _counted(kind, replica_set, claimed.owned, related, now)
    status = next_status(replica_set, claimed.owned, now, trouble)
    if status != objects.status(replica_set):
        steps.append(WriteStatus(kind, replica_set, status))
    return [*steps, *_wake_up(replica_set, claimed.owned, now)]


def _counted(
    kind: Kind, replica_set: JsonObject, owned: Sequence[JsonObject], related: Sequence[JsonObject], now: datetime
) -> list[Step]:
    surplus = len(owned) - wanted_replicas(replica_set)
    if surplus < 0:
        return [new_pod(replica_set, kind)] * min(-surplus, BURST)
    if surplus == len(owned):
        doomed = list(owned)
    else:
        doomed = podlib.first_to_go(owned, related, now)[:surplus] if surplus else []
    return [Delete(POD, pod, POD_DELETED) for pod in doomed[:BURST]]


def wanted_replicas(workload: JsonObject) -> int:
    """Return the declared number of copies; 1 where none is."""
    declared = objects.spec(workload).get("replicas")
    return 1 if declared is None else int(declared)


def new_pod(replica_set: JsonObject, kind: Kind = REPLICA_SET) -> Create:
    """Return the creation of one more pod."""
    template = objects.spec(replica_set).get("template") or {}
    pod = pod_from_template(template, kind, replica_set)
    name = objects.name(template)
    original = objects.annotations(replica_set).get(ANNOTATION) == ORIGINAL
    if original:
        pod["metadata"]["generateName"] = f"{name or objects.name(replica_set)}-"
    return Create(POD, pod, POD_CREATED, uuid_name=original)


def next_status(
    replica_set: JsonObject,
    owned: Sequence[JsonObject],
    now: datetime,
    trouble: Trouble | None = None,
) -> JsonObject:
    """Return the status that the pods give (``calculateStatus``); fields that are 0 are left out, except replicas.

    Pods that are being deleted are not counted anywhere; ``terminatingReplicas`` came after the API we serve (1.32).
    """
    wanted_labels = objects.labels(objects.spec(replica_set).get("template") or {}).items()
    min_ready_s = int(objects.spec(replica_set).get("minReadySeconds") or 0)
    ready = [pod for pod in owned if podlib.is_ready(pod)]
    counts = {
        "fullyLabeledReplicas": sum(wanted_labels <= objects.labels(pod).items() for pod in owned),
        "readyReplicas": len(ready),
        "availableReplicas": sum(podlib.is_available(pod, min_ready_s, now) for pod in ready),
    }
    status: JsonObject = {"replicas": len(owned), **{field: count for field, count in counts.items() if count}}
    status["observedGeneration"] = objects.generation(replica_set)
    conditions = _conditions(objects.status(replica_set).get("conditions") or [], trouble, now)
    if conditions:
        status["conditions"] = conditions
    return status


def _conditions(known: Sequence[JsonObject], trouble: Trouble | None, now: datetime) -> list[JsonObject]:
    if trouble is None:
        return without_condition(known, _FAILURE)
    failure = {"type": _FAILURE, "status": "True", "lastTransitionTime": rfc3339(now)}
    return with_condition(known, {**failure, "reason": trouble.reason, "message": trouble.message})


def _wake_up(replica_set: JsonObject, owned: Sequence[JsonObject], now: datetime) -> list[Step]:
    """Return when to look again because a pod has been ready for long enough then."""
    min_ready_s = int(objects.spec(replica_set).get("minReadySeconds") or 0)
    waits = [left for pod in owned if (left := podlib.available_in_s(pod, min_ready_s, now))]
    return [Again(min(waits))] if waits else []


class ReplicaSetController(WorkloadController):
    """Keeps the pods of ReplicaSets, or of ReplicationControllers."""

    def __init__(self, context: Context, kind: Kind = REPLICA_SET) -> None:
        super().__init__(context, kind, (POD,), workers=4)
        self._sets = self.loop.reads(kind, "controller")
        self._rests_until: dict[Key, float] = {}

    def sync(self, key: Key) -> None:
        """Sync a set, or later one that rests; raises as ``WorkloadController`` does."""
        left_s = self._rests_until.get(key, 0.0) - self.context.clock.monotonic()
        if left_s > 0:
            self.loop.add_after(key, left_s)
            return
        self._rests_until.pop(key, None)
        super().sync(key)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for one replica set."""
        clock = self.context.clock
        began = clock.monotonic()
        found = self.found(POD, obj)
        declared = decide_replica_set(obj, found, self._related(obj, found), clock.now(), kind=self.kind)
        steps = self.possible(obj, declared)
        ended = clock.monotonic()
        rest_s = min(_REST * (ended - began), _MOST_REST_S)
        if rest_s >= _LEAST_REST_S and all(isinstance(step, WriteStatus | Again) for step in steps):
            self._rests_until[objects.key(obj)] = ended + rest_s
        return steps

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Say in the status why pods could not be made or deleted; then as ever."""
        trouble = trouble_of(failures[0])
        if trouble is not None:
            found, now = self.found(POD, owner.obj), self.context.clock.now()
            steps = decide_replica_set(owner.obj, found, (), now, trouble, owner.kind)
            self.take(owner, [step for step in steps if isinstance(step, WriteStatus)])
        super().failed(owner, failures)

    def _related(self, replica_set: JsonObject, found: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the pods of all sets with the same controller; only looked for when pods are too many."""
        if len(found) <= wanted_replicas(replica_set):
            return []
        controller = objects.controller_of(replica_set)
        if controller is None:
            return self.controlled(POD, replica_set)
        siblings = self._sets.by_index("controller", str(controller.get("uid")))
        return [pod for sibling in siblings for pod in self.controlled(POD, sibling)]


def trouble_of(failure: Failure) -> Trouble | None:
    """Return what a failed step means for the condition ReplicaFailure."""
    match failure.step:
        case Create():
            return Trouble("FailedCreate", str(failure.error))
        case Delete():
            return Trouble("FailedDelete", str(failure.error))
        case _:
            return None
