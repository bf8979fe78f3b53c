"""Deployments: replica sets that replace one another, by ``decide_deployment``.

    the set with the deployment's template is the new one; it grows and the old ones shrink (rollouts.py), revisions are
    annotations (revisions.py), and the status tells how far it has come (deployment_status.py)

Source: kubernetes ``pkg/controller/deployment``. Undoing, restarting and pausing are changes of the deployment that
clients make. Each round writes a replica set once, and either the deployment's status or its annotation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists
from minik8s_modules.api.kinds import DEPLOYMENT, POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.owning import claim, selector_of, with_condition
from minik8s_modules.controllers.core.steps import (
    Again,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Step,
    Words,
    WriteStatus,
    controller_reference,
)
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.controllers.workloads import deployment_status as statuses
from minik8s_modules.controllers.workloads import revisions, rollouts
from minik8s_modules.controllers.workloads.replicasets import wanted_replicas
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_CONTROLLER

SCALING = "ScalingReplicaSet"
CREATE_FAILED = "ReplicaSetCreateError"
_KEEP_ALL = 2**31 - 1
# reasons of Progressing that say nothing of a rollout that has just begun
_OVER = frozenset({"", statuses.COMPLETE, statuses.TIMED_OUT})

PodsOf = Mapping[str, Sequence[JsonObject]]
"""Pods by the uid of the replica set that controls them."""


@dataclass
class _Round:
    """One decision in the making: the sets as they will stand, and what is to be written of them."""

    deployment: JsonObject
    new: JsonObject | None
    old: list[JsonObject]
    now: datetime
    steps: list[Step] = field(default_factory=list)
    edits: dict[str, JsonObject] = field(default_factory=dict)
    scaled: dict[str, tuple[str, str]] = field(default_factory=dict)
    note: JsonObject | None = None
    """A condition Progressing that begins a rollout."""

    @property
    def sets(self) -> list[JsonObject]:
        """All sets."""
        return [*self.old, *([self.new] if self.new is not None else [])]

    def annotate(self, replica_set: JsonObject, wanted: Mapping[str, str], **fields: object) -> None:
        """Give a set the annotations and spec ``fields`` that it lacks."""
        known = objects.annotations(replica_set)
        added = {key: value for key, value in wanted.items() if known.get(key) != value}
        changed = {key: value for key, value in fields.items() if objects.spec(replica_set).get(key, 0) != value}
        if added or changed:
            edit = self.edits.setdefault(objects.name(replica_set), {"metadata": {"annotations": {}}, "spec": {}})
            edit["metadata"]["annotations"].update(added)
            edit["spec"].update(changed)

    def resize(self, sizes: rollouts.Sizes) -> None:
        """Give sets their next sizes, and note what they are part of (``scaleReplicaSet``)."""
        by_name = {objects.name(each): each for each in self.sets}
        for name, size in sizes.items():
            before = wanted_replicas(by_name[name])
            self.annotate(by_name[name], replica_annotations(self.deployment), replicas=size)
            direction = "up" if size > before else "down"
            self.scaled[name] = (SCALING, f"Scaled {direction} replica set {name} from {before} to {size}")

    def patches(self) -> list[Step]:
        """Return the edits as steps: what grows first, in the order in which they were decided."""
        by_name = {objects.name(each): each for each in self.sets}
        found: list[Step] = []
        for name, edit in self.edits.items():
            body = {part: value for part, value in edit.items() if value and value != {"annotations": {}}}
            found.append(Patch(REPLICA_SET, by_name[name], body))
            if name in self.scaled:
                found.append(RecordEvent(self.deployment, "Normal", *self.scaled[name]))
        return found

    def edited(self, replica_set: JsonObject) -> JsonObject:
        """Return the set as it stands after its edit."""
        edit = self.edits.get(objects.name(replica_set))
        if edit is None:
            return replica_set
        return {**replica_set, "spec": {**objects.spec(replica_set), **edit["spec"]}}


def decide_deployment(deployment: JsonObject, found: Sequence[JsonObject], pods: PodsOf, now: datetime) -> list[Step]:
    """Return the next steps of a deployment.

    Args:
        deployment: the object.
        found: replica sets that it controls, and those that nobody controls in its namespace.
        pods: the pods of the sets it controls; only Recreate waits for them.
        now: of conditions and deadlines.
    """
    claimed = claim(deployment, selector_of(deployment), REPLICA_SET, found)
    if objects.is_deleting(deployment):
        return [*claimed.steps, *_status(deployment, statuses.counts(deployment, claimed.owned, None, now))]
    before, deployment = deployment, _with_pause(deployment, now)
    new = revisions.new_set(deployment, claimed.owned)
    old = [each for each in claimed.owned if new is None or objects.uid(each) != objects.uid(new)]
    this = _Round(deployment, new, old, now, [*claimed.steps])
    _keep_revision(this)
    scaling = bool(objects.spec(deployment).get("paused")) or rollouts.was_scaled(deployment, this.sets)
    if scaling:
        _scale(this)
    elif rollouts.is_rolling(deployment):
        _roll(this)
    else:
        _recreate(this, pods)
    return [*this.steps, *this.patches(), *_endings(this, before, scaling=scaling)]


def _with_pause(deployment: JsonObject, now: datetime) -> JsonObject:
    condition = statuses.paused_condition(deployment, now)
    if condition is None:
        return deployment
    status = objects.status(deployment)
    return {**deployment, "status": {**status, "conditions": with_condition(status.get("conditions") or [], condition)}}


def replica_annotations(deployment: JsonObject) -> dict[str, str]:
    """Return what a set notes of the deployment's size, for a later proportional scaling."""
    total = wanted_replicas(deployment)
    maximum = total + rollouts.limits(deployment).surge
    return {revisions.DESIRED: str(total), revisions.MAXIMUM: str(maximum)}


def _keep_revision(this: _Round) -> None:
    """Give the new set, where there is one, the latest revision and the deployment's annotations."""
    if this.new is None:
        return
    number = max(revisions.next_revision(this.old), revisions.revision(this.new))
    wanted = revisions.set_annotations(this.deployment, this.new, number)
    min_ready_s = int(objects.spec(this.deployment).get("minReadySeconds") or 0)
    this.annotate(this.new, wanted, minReadySeconds=min_ready_s)


def _scale(this: _Round) -> None:
    """Follow a change of the deployment's size, or its size while it is paused; roll nothing."""
    this.resize(rollouts.proportional(this.deployment, this.new, this.old))
    for each in rollouts.active(this.sets):
        # also where no size changes: else it would look like a scaling for ever
        this.annotate(each, replica_annotations(this.deployment))
    if objects.spec(this.deployment).get("paused"):
        this.steps += _cleanup(this)


def _roll(this: _Round) -> None:
    if this.new is None:
        _create(this, rollouts.new_set_size(this.deployment, this.old, 0))
        return
    sizes = rollouts.roll(this.deployment, this.new, this.old)
    this.resize(sizes)
    if not sizes:
        this.steps += _cleanup_when_complete(this)


def _recreate(this: _Round, pods: PodsOf) -> None:
    """End all old pods, wait until they are gone, then make the new ones."""
    total = wanted_replicas(this.deployment)
    if old := rollouts.active(this.old):
        this.resize({objects.name(each): 0 for each in old})
    # counts of sets leave out pods that are ending, which Recreate waits for, too
    elif _old_pods_run(this.old, pods):
        return
    elif this.new is None:
        _create(this, total)
    elif wanted_replicas(this.new) != total:
        this.resize({objects.name(this.new): total})
    else:
        this.steps += _cleanup_when_complete(this)


def _old_pods_run(old: Sequence[JsonObject], pods: PodsOf) -> bool:
    if any(rollouts.actual(each) > 0 for each in old):
        return True
    return any(not podlib.has_ended(pod) for each in old for pod in pods.get(objects.uid(each), ()))


def _create(this: _Round, size: int) -> None:
    """Make the new set."""
    made = new_replica_set(this.deployment, this.old, size)
    name = objects.name(made)
    words = Words("", "", CREATE_FAILED, f'Failed to create new replica set "{name}": ')
    this.steps.append(Create(REPLICA_SET, made, words))
    if size > 0:
        text = f"Scaled up replica set {name} from 0 to {size}"
        this.steps.append(RecordEvent(this.deployment, "Normal", SCALING, text))
    if statuses.has_deadline(this.deployment):
        text = f'Created new replica set "{name}"'
        this.note = statuses.condition(statuses.PROGRESSING, "True", "NewReplicaSetCreated", text, this.now)


def new_replica_set(deployment: JsonObject, old: Sequence[JsonObject], size: int) -> JsonObject:
    """Return the set of the deployment's template with ``size`` copies."""
    template, declared = revisions.template_of(deployment), objects.spec(deployment)
    value = revisions.template_hash(template, int(objects.status(deployment).get("collisionCount") or 0))
    hashed = {revisions.HASH_LABEL: value}
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), **hashed}
    selector = declared.get("selector") or {}
    annotations = revisions.set_annotations(deployment, None, revisions.next_revision(old))
    spec: JsonObject = {
        "replicas": size,
        "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **hashed}},
        "template": {**template, "metadata": {**meta, "labels": labels}},
    }
    if declared.get("minReadySeconds"):
        spec["minReadySeconds"] = declared["minReadySeconds"]
    return {
        "apiVersion": REPLICA_SET.api_version,
        "kind": REPLICA_SET.kind,
        "metadata": {
            "name": f"{objects.name(deployment)}-{value}",
            "namespace": objects.namespace(deployment),
            "labels": labels,
            "annotations": {**annotations, **replica_annotations(deployment)},
            "ownerReferences": [controller_reference(DEPLOYMENT, deployment)],
        },
        "spec": spec,
    }


def _cleanup_when_complete(this: _Round) -> list[Step]:
    complete = statuses.is_complete(this.deployment, objects.status(this.deployment))
    return _cleanup(this) if complete else []


def _cleanup(this: _Round) -> list[Step]:
    """Return the deletion of the oldest sets without copies beyond revisionHistoryLimit (``cleanupDeployment``)."""
    limit = objects.spec(this.deployment).get("revisionHistoryLimit")
    if limit is None or limit == _KEEP_ALL:
        return []
    kept = [each for each in this.old if not objects.is_deleting(each)]
    surplus = max(len(kept) - int(limit), 0)
    oldest = sorted(kept, key=lambda each: (revisions.revision(each), revisions.created(each)))[:surplus]
    # one whose controller has not seen its size may still make pods
    return [Delete(REPLICA_SET, each) for each in oldest if _is_empty(each)]


def _is_empty(replica_set: JsonObject) -> bool:
    observed = int(objects.status(replica_set).get("observedGeneration") or 0)
    counted = rollouts.actual(replica_set) + wanted_replicas(replica_set)
    return not counted and objects.generation(replica_set) <= observed


def _endings(this: _Round, before: JsonObject, *, scaling: bool) -> list[Step]:
    """Return what is written of the deployment itself: its status, or its revision where that is to be told first."""
    new = this.edited(this.new) if this.new is not None else None
    sets = [*map(this.edited, this.old), *([new] if new is not None else [])]
    known = objects.condition(this.deployment, statuses.PROGRESSING) or {}
    outdated = _unpublished_revision(this) if this.new is not None else None
    if outdated is not None and not _begins(this, known):
        return [Patch(DEPLOYMENT, before, {"metadata": {"annotations": {revisions.REVISION: outdated}}})]
    if outdated is not None:
        text = f'Found new replica set "{objects.name(new or {})}"'
        this.note = statuses.condition(statuses.PROGRESSING, "True", "FoundNewReplicaSet", text, this.now)
    if this.note is not None:
        conditions = with_condition(objects.status(this.deployment).get("conditions") or [], this.note)
        noted = {**objects.status(this.deployment), "conditions": conditions}
        this.deployment = {**this.deployment, "status": noted}
    of = statuses.counts if scaling or this.note is not None else statuses.of_rollout
    status = of(this.deployment, sets, new, this.now)
    left_s = None if scaling else statuses.look_again_s(this.deployment, status, this.now)
    return [*_status(before, status), *([Again(left_s)] if left_s is not None else [])]


def _begins(this: _Round, known: JsonObject) -> bool:
    """Return whether Progressing must first say that a rollout begins: what it says is of the one before."""
    return statuses.has_deadline(this.deployment) and str(known.get("reason") or "") in _OVER


def _unpublished_revision(this: _Round) -> str | None:
    """Return the revision that the deployment's annotation does not tell yet, or None."""
    edit = this.edits.get(objects.name(this.new or {}), {})
    annotations = {**objects.annotations(this.new or {}), **edit.get("metadata", {}).get("annotations", {})}
    number = annotations.get(revisions.REVISION)
    return number if number and objects.annotations(this.deployment).get(revisions.REVISION) != number else None


def _status(deployment: JsonObject, status: JsonObject) -> list[Step]:
    return [WriteStatus(DEPLOYMENT, deployment, status)] if status != objects.status(deployment) else []


class DeploymentController(WorkloadController):
    """Rolls Deployments."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, DEPLOYMENT, (REPLICA_SET,))
        self._pods = self.loop.watch(POD, self._recreating, BY_CONTROLLER)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one deployment."""
        found = self.found(REPLICA_SET, obj)
        pods = {objects.uid(each): self._pods.by_index(BY_CONTROLLER, objects.uid(each)) for each in found}
        return decide_deployment(obj, found, pods, self.context.clock.now())

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Take another name when two templates have one hash; say in the status why no set could be made."""
        failure = failures[0]
        if isinstance(failure.step, Create):
            if isinstance(failure.error, AlreadyExists):
                count = int(objects.status(owner.obj).get("collisionCount") or 0) + 1
                self._write(owner, {**objects.status(owner.obj), "collisionCount": count})
            elif statuses.has_deadline(owner.obj):
                text = f'Failed to create new replica set "{objects.name(failure.step.obj)}": {failure.error}'
                now = self.context.clock.now()
                wanted = statuses.condition(statuses.PROGRESSING, "False", CREATE_FAILED, text, now)
                conditions = with_condition(objects.status(owner.obj).get("conditions") or [], wanted)
                self._write(owner, {**objects.status(owner.obj), "conditions": conditions})
        super().failed(owner, failures)

    def same(self, wanted: JsonObject, found: JsonObject) -> bool:
        """Return whether a set of the wanted name has the wanted template: else their hashes collide."""
        return revisions.same_template(revisions.template_of(wanted), revisions.template_of(found))

    def _write(self, owner: Owner, status: JsonObject) -> None:
        if status != objects.status(owner.obj):
            self.take(owner, [WriteStatus(DEPLOYMENT, owner.obj, status)])

    def _recreating(self, old: JsonObject | None, new: JsonObject | None) -> list[objects.Key]:
        """Return the deployment that waits for a pod that is gone: only Recreate does (``deletePod``)."""
        if old is None or (new is not None and not podlib.has_ended(new)):
            return []
        controller = objects.controller_of(old)
        if controller is None or controller.get("kind") != REPLICA_SET.kind:
            return []
        owner = self.owned[REPLICA_SET].get(objects.namespace(old), str(controller.get("name")))
        above = objects.controller_of(owner) if owner is not None else None
        if above is None or above.get("kind") != DEPLOYMENT.kind:
            return []
        key = objects.Key(objects.namespace(old), str(above.get("name")))
        deployment = self.own.get(*key)
        return [key] if deployment is not None and not rollouts.is_rolling(deployment) else []
