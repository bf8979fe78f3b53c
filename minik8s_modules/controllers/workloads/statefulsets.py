"""StatefulSets: pods with names that stay, made, replaced and ended in order, by ``decide_stateful_set``.

    revisions (history.py) ─▶ pods 0, 1, 2, … : each is made when all before it are available (Parallel: at once) ─▶
    pods beyond the number go, the last first ─▶ when all that is done: a step of the rolling update, the last pod first

Source: kubernetes ``pkg/controller/statefulset`` (``stateful_set_control.go``). A pod that is deleted is made again
under its name once it is gone. Pods and claims themselves: stateful_pods.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.owning import claim, selector_of
from minik8s_modules.controllers.core.steps import Again, Create, Delete, Patch, RecordEvent, Step, Words, WriteStatus
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.controllers.workloads import history, stateful_pods
from minik8s_modules.controllers.workloads.daemonsets import collision
from minik8s_modules.controllers.workloads.replicasets import wanted_replicas
from minik8s_modules.controllers.workloads.rollouts import scaled
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_NAMESPACE

# no more at once, as of ReplicaSets (BurstReplicas); only Parallel sets come near it
BURST = 500


@dataclass(frozen=True)
class _Round:
    """One decision in the making.

    Attributes:
        pods: those that are to be, by ordinal; None for one that is not there.
        condemned: pods beyond the number, the last first.
    """

    stateful_set: JsonObject
    pods: dict[int, JsonObject | None]
    condemned: list[tuple[int, JsonObject]]
    claims: stateful_pods.Claims
    update: JsonObject
    current: JsonObject
    now: datetime
    notes: list[Step] = field(default_factory=list)

    @property
    def ordered(self) -> bool:
        """Whether each pod waits for those before it."""
        return bool(objects.spec(self.stateful_set).get("podManagementPolicy") != "Parallel")

    @property
    def rolling(self) -> JsonObject | None:
        """The rolling update's limits; None with OnDelete."""
        strategy = objects.spec(self.stateful_set).get("updateStrategy") or {}
        return None if strategy.get("type") == "OnDelete" else strategy.get("rollingUpdate") or {}

    @property
    def there(self) -> list[JsonObject]:
        """All pods there are."""
        return [*(pod for pod in self.pods.values() if pod is not None), *(pod for _, pod in self.condemned)]

    def is_available(self, pod: JsonObject | None) -> bool:
        """Return whether the pod runs, is ready for minReadySeconds, and is not being deleted."""
        return pod is not None and self.is_healthy(pod) and podlib.is_available(pod, self.min_ready_s, self.now)

    @staticmethod
    def is_healthy(pod: JsonObject) -> bool:
        """Return whether the pod runs, is ready, and is not being deleted."""
        return podlib.phase(pod) == "Running" and podlib.is_ready(pod) and not objects.is_deleting(pod)

    @property
    def min_ready_s(self) -> int:
        """Seconds for which a pod must be ready to be available."""
        return int(objects.spec(self.stateful_set).get("minReadySeconds") or 0)

    def deletion(self, pod: JsonObject) -> Delete:
        """Return the deletion of a pod, and note what to tell of it."""
        name, owner = objects.name(pod), objects.name(self.stateful_set)
        text = f"delete Pod {name} in StatefulSet {owner} successful"
        self.notes.append(RecordEvent(self.stateful_set, "Normal", "SuccessfulDelete", text))
        return Delete(POD, pod, Words("", "", "FailedDelete", f"delete Pod {name} in StatefulSet {owner} failed: "))


def decide_stateful_set(
    stateful_set: JsonObject,
    found: Sequence[JsonObject],
    revisions: Sequence[JsonObject],
    claims: stateful_pods.Claims,
    now: datetime,
) -> list[Step]:
    """Return the next steps of a stateful set.

    Args:
        stateful_set: the object.
        found: pods that it controls, and pods that nobody controls in its namespace.
        revisions: ControllerRevisions, likewise.
        claims: the claims of its namespace, by name.
        now: decides what is available.
    """
    named = [pod for pod in found if stateful_pods.ordinal_of(stateful_set, pod) is not None]
    claimed = claim(stateful_set, selector_of(stateful_set), POD, named)
    kept = history.history(STATEFUL_SET, stateful_set, revisions)
    this = _observe(stateful_set, claimed.owned, kept, claims, now)
    steps: list[Step] = [*claimed.steps]
    if not objects.is_deleting(stateful_set):
        steps += [*kept.steps, *_manage(this)]
        live = {stateful_pods.revision_of(pod) for pod in claimed.owned} | {objects.name(this.current)}
        steps += history.surplus(stateful_set, kept, live)
    status = _status(this)
    if status != objects.status(stateful_set):
        steps.append(WriteStatus(STATEFUL_SET, stateful_set, status))
    return [*steps, *this.notes, *_wake_up(this)]


def _observe(
    stateful_set: JsonObject,
    owned: Sequence[JsonObject],
    kept: history.History,
    claims: stateful_pods.Claims,
    now: datetime,
) -> _Round:
    first = stateful_pods.first_ordinal(stateful_set)
    ordinals = range(first, first + wanted_replicas(stateful_set))
    pods: dict[int, JsonObject | None] = dict.fromkeys(ordinals)
    condemned: list[tuple[int, JsonObject]] = []
    for pod in owned:
        ordinal = stateful_pods.ordinal_of(stateful_set, pod)
        if ordinal in pods:
            pods[ordinal] = pod
        elif ordinal is not None:
            condemned.append((ordinal, pod))
    condemned.sort(key=lambda each: -each[0])
    current = kept.named(str(objects.status(stateful_set).get("currentRevision") or "")) or kept.update
    return _Round(stateful_set, pods, condemned, claims, kept.update, current, now)


# --- pods -----------------------------------------------------------------------------------------


def _manage(this: _Round) -> list[Step]:
    steps: list[Step] = []
    for ordinal, pod in this.pods.items():
        done, goes_on = _attend(this, ordinal, pod)
        steps += done
        if not goes_on or len(steps) >= BURST:
            return _grouped(steps)
    ended, goes_on = _end_condemned(this)
    steps += ended
    if goes_on and not any(isinstance(step, Create | Delete) for step in steps):
        steps += _roll(this)
    return _grouped(steps)


def _grouped(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with claims before pods, so that creations of a Parallel set are taken side by side."""
    order = {PERSISTENT_VOLUME_CLAIM: 0, POD: 1}
    return sorted(steps, key=lambda step: order[step.kind] if isinstance(step, Create) else -isinstance(step, Patch))


def _attend(this: _Round, ordinal: int, pod: JsonObject | None) -> tuple[list[Step], bool]:
    """Return what a pod that is to be needs, and whether the next one may be looked at (``processReplica``)."""
    if pod is None:
        return _create(this, ordinal), not this.ordered
    if objects.is_deleting(pod):
        return [], not this.ordered
    if podlib.has_ended(pod):
        return [_ended(this, pod)], not this.ordered
    steps = [
        *stateful_pods.missing_claims(this.stateful_set, ordinal, this.claims),
        *stateful_pods.retained(this.stateful_set, pod, ordinal, this.claims, condemned=False),
    ]
    if (labels := stateful_pods.lacks_identity(this.stateful_set, pod, ordinal)) is not None:
        steps.append(Patch(POD, pod, {"metadata": {"labels": labels}}))
    return steps, this.is_available(pod) or not this.ordered


def _create(this: _Round, ordinal: int) -> list[Step]:
    claims = stateful_pods.missing_claims(this.stateful_set, ordinal, this.claims)
    revision = this.current if _is_kept_back(this, ordinal) else this.update
    name, owner = stateful_pods.pod_name(this.stateful_set, ordinal), objects.name(this.stateful_set)
    messages = [f"create Claim {objects.name(each.obj)} Pod {name} in StatefulSet {owner} success"
            for each in claims if isinstance(each, Create)]  # fmt: skip
    messages.append(f"create Pod {name} in StatefulSet {owner} successful")
    this.notes.extend(RecordEvent(this.stateful_set, "Normal", "SuccessfulCreate", each) for each in messages)
    return [*claims, stateful_pods.new_pod(this.stateful_set, revision, ordinal)]


def _is_kept_back(this: _Round, ordinal: int) -> bool:
    """Return whether the ordinal is below the partition, and so keeps the current revision."""
    if this.rolling is None:
        return False
    partition = int(this.rolling.get("partition") or 0)
    return ordinal < stateful_pods.first_ordinal(this.stateful_set) + partition


def _ended(this: _Round, pod: JsonObject) -> Step:
    where = f"StatefulSet {objects.namespace(pod)}/{objects.name(this.stateful_set)}"
    failed = podlib.phase(pod) == "Failed"
    text = f"{where} is recreating {'failed' if failed else 'terminated'} Pod {objects.name(pod)}"
    reason = "RecreatingFailedPod" if failed else "RecreatingTerminatedPod"
    this.notes.append(RecordEvent(this.stateful_set, "Warning" if failed else "Normal", reason, text))
    return this.deletion(pod)


def _end_condemned(this: _Round) -> tuple[list[Step], bool]:
    """Return the deletion of pods beyond the number, and whether an update may go on (``processCondemned``)."""
    steps: list[Step] = []
    unhealthy = [each for each in this.there if not this.is_available(each)]
    ordinals = [stateful_pods.ordinal_of(this.stateful_set, each) for each in unhealthy]
    first_unhealthy = min((each for each in ordinals if each is not None), default=None)
    for ordinal, pod in this.condemned:
        waits = objects.is_deleting(pod)
        if not waits and this.ordered and not this.is_available(pod):
            # only the first of those that do not serve may go while it does not
            waits = ordinal != first_unhealthy
        if not waits:
            steps += stateful_pods.retained(this.stateful_set, pod, ordinal, this.claims, condemned=True)
            steps.append(this.deletion(pod))
        if this.ordered:
            return steps, False
    return steps, True


# --- the rolling update ---------------------------------------------------------------------------


def _roll(this: _Round) -> list[Step]:
    """Return the deletion of the last old pods, when no more than maxUnavailable are missing."""
    if this.rolling is None:
        return []
    least = stateful_pods.first_ordinal(this.stateful_set) + int(this.rolling.get("partition") or 0)
    targets = [pod for ordinal, pod in sorted(this.pods.items(), reverse=True) if ordinal >= least]
    most = scaled(this.rolling.get("maxUnavailable", 1), len(this.pods), up=True) or 1
    return [this.deletion(pod) for pod in (_several(this, targets, most) if most > 1 else _one(this, targets))]


def _one(this: _Round, targets: Sequence[JsonObject | None]) -> list[JsonObject]:
    """Return the last old pod, if all after it are available; it may be one that is not."""
    for pod in targets:
        if pod is not None and not objects.is_deleting(pod) and not _is_new(this, pod):
            return [pod]
        if not this.is_available(pod):
            return []
    return []


def _several(this: _Round, targets: Sequence[JsonObject | None], most: int) -> list[JsonObject]:
    missing = sum(not this.is_available(pod) for pod in targets)
    old = [pod for pod in targets if pod is not None and not objects.is_deleting(pod) and not _is_new(this, pod)]
    broken = [pod for pod in old if not this.is_available(pod)]
    serving = [pod for pod in old if this.is_available(pod)]
    return [*broken, *serving[: max(0, most - missing)]][:most]


def _is_new(this: _Round, pod: JsonObject) -> bool:
    return stateful_pods.revision_of(pod) == objects.name(this.update)


# --- status ---------------------------------------------------------------------------------------


def _status(this: _Round) -> JsonObject:
    """Return the status that the pods give; the update becomes current when all pods have it (``completeUpdate``)."""
    there, staying = this.there, [pod for pod in this.there if not objects.is_deleting(pod)]
    ready = [pod for pod in there if this.is_healthy(pod)]
    updated = sum(_is_new(this, pod) for pod in staying)
    current, total = objects.name(this.current), wanted_replicas(this.stateful_set)
    if this.rolling is not None and updated == len(ready) == len(there) == total:
        current = objects.name(this.update)
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": sum(stateful_pods.revision_of(pod) == current for pod in staying),
        "updatedReplicas": updated,
        "collisionCount": objects.status(this.stateful_set).get("collisionCount"),
    }
    return {
        "observedGeneration": objects.generation(this.stateful_set),
        "replicas": len(there),
        "availableReplicas": sum(map(this.is_available, there)),
        "currentRevision": current,
        "updateRevision": objects.name(this.update),
        **{name: value for name, value in counts.items() if value},
    }


def _wake_up(this: _Round) -> list[Step]:
    """Return when the next ready pod becomes available by time alone."""
    waits = [podlib.available_in_s(pod, this.min_ready_s, this.now) for pod in this.there if this.is_healthy(pod)]
    left = [each for each in waits if each]
    return [Again(min(left))] if left else []


class StatefulSetController(WorkloadController):
    """Keeps the pods of StatefulSets, in order."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, STATEFUL_SET, (POD, CONTROLLER_REVISION))
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, self._claim_gone, BY_NAMESPACE)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one stateful set."""
        claims: dict[str, JsonObject] = {}
        if objects.spec(obj).get("volumeClaimTemplates"):
            found = self._claims.by_index(BY_NAMESPACE, objects.namespace(obj))
            claims = {objects.name(each): each for each in found}
        revisions = self.found(CONTROLLER_REVISION, obj)
        return decide_stateful_set(obj, self.found(POD, obj), revisions, claims, self.context.clock.now())

    def same(self, wanted: JsonObject, found: JsonObject) -> bool:
        """Return whether a revision of the wanted name keeps the wanted template."""
        return wanted.get("kind") != CONTROLLER_REVISION.kind or history.same_data(wanted, found)

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Take another hash when two templates have the same; then as ever."""
        self.take(owner, collision(owner, failures[0]))
        super().failed(owner, failures)

    def _claim_gone(self, old: JsonObject | None, new: JsonObject | None) -> list[Key]:
        """Return the sets of the namespace that make claims, when one of its claims is gone."""
        if old is None or new is not None:
            return []
        sets = self.own.by_index(BY_NAMESPACE, objects.namespace(old))
        return [objects.key(each) for each in sets if objects.spec(each).get("volumeClaimTemplates")]
