"""DaemonSets: one pod on each node that will have it, by ``decide_daemon_set``.

    revisions (history.py) ─▶ which nodes want a pod (daemon_pods.py) ─▶ missing ones are made, odd ones go ─▶ when
    nothing is missing or odd: a step of the rolling update, within maxUnavailable or maxSurge ─▶ status

Source: kubernetes ``pkg/controller/daemon``. A node with a pod that still ends gets its next one when that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists
from minik8s_modules.api.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.batch.job_policies import ended_at
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.owning import claim, selector_of
from minik8s_modules.controllers.core.steps import POD_DELETED, Again, Create, Delete, RecordEvent, Step, WriteStatus
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.controllers.workloads import daemon_pods, history
from minik8s_modules.controllers.workloads.rollouts import scaled
from minik8s_modules.runtime.controller import Context

# daemon_controller.go, BurstReplicas
BURST = 250
# a pod that failed stays that long, so that one that fails at once is not made in a busy loop
FAILED_STAYS_S = 10.0


@dataclass(frozen=True)
class _Round:
    """One decision in the making."""

    daemon_set: JsonObject
    pods: dict[str, list[JsonObject]]
    wishes: dict[str, daemon_pods.Wish]
    hash_value: str
    now: datetime

    @property
    def wanted(self) -> list[str]:
        """The nodes that are to have a pod."""
        return [name for name, each in self.wishes.items() if each.run]

    @property
    def rolling(self) -> JsonObject:
        """The limits of the rolling update."""
        return objects.dig(self.daemon_set, "spec", "updateStrategy", "rollingUpdate") or {}

    @property
    def surge(self) -> int:
        """How many nodes may have a new pod beside their old one; 0 with OnDelete."""
        return scaled(self.rolling.get("maxSurge"), len(self.wanted), up=True) if self.is_rolling else 0

    @property
    def is_rolling(self) -> bool:
        """Whether old pods are replaced without being asked to."""
        return bool(objects.dig(self.daemon_set, "spec", "updateStrategy", "type") != "OnDelete")

    def is_new(self, pod: JsonObject) -> bool:
        """Return whether the pod has the template of now."""
        return objects.labels(pod).get(history.HASH_LABEL) == self.hash_value

    def is_available(self, pod: JsonObject) -> bool:
        """Return whether the pod has been ready for minReadySeconds."""
        min_ready_s = int(objects.spec(self.daemon_set).get("minReadySeconds") or 0)
        return podlib.is_available(pod, min_ready_s, self.now)


def decide_daemon_set(
    daemon_set: JsonObject,
    found: Sequence[JsonObject],
    revisions: Sequence[JsonObject],
    nodes: Sequence[JsonObject],
    now: datetime,
) -> list[Step]:
    """Return the next steps of a daemon set.

    Args:
        daemon_set: the object.
        found: pods that it controls, and pods that nobody controls in its namespace.
        revisions: ControllerRevisions, likewise.
        nodes: all nodes.
        now: decides what is available.
    """
    claimed = claim(daemon_set, selector_of(daemon_set), POD, found)
    kept = history.history(DAEMON_SET, daemon_set, revisions)
    wishes = {objects.name(node): daemon_pods.wish(daemon_set, node) for node in nodes}
    by_node = daemon_pods.by_node(claimed.owned)
    this = _Round(daemon_set, by_node, wishes, history.hash_of(kept.update), now)
    steps: list[Step] = [*claimed.steps]
    if not objects.is_deleting(daemon_set):
        steps += kept.steps
        managed = _manage(this)
        acts = any(isinstance(step, Create | Delete) for step in managed)
        steps += managed
        if not acts and this.is_rolling:
            steps += _roll_with_surge(this) if this.surge else _roll(this)
        live = {objects.labels(pod).get(history.HASH_LABEL) for pod in claimed.owned}
        steps += history.surplus(daemon_set, kept, {objects.name(r) for r in kept.known if history.hash_of(r) in live})
    status = _status(this)
    if status != objects.status(daemon_set):
        steps.append(WriteStatus(DAEMON_SET, daemon_set, status))
    return [*steps, *_wake_up(this)]


# --- one pod a node -------------------------------------------------------------------------------


def _manage(this: _Round) -> list[Step]:
    """Return what makes one pod on each wanted node, and none elsewhere (``podsShouldBeOnNode``)."""
    doomed: list[JsonObject] = []
    steps: list[Step] = []
    missing: list[str] = []
    for name, wish in this.wishes.items():
        pods = this.pods.get(name, [])
        if wish.run and not pods:
            missing.append(name)
        elif wish.stay:
            doomed += _ended(this, pods, steps) + _excess(this, [pod for pod in pods if podlib.is_active(pod)])
        else:
            doomed += [pod for pod in pods if not objects.is_deleting(pod)]
    # pods of nodes that are gone: orphans.py deletes them, when they are bound; here those that never can be
    doomed += [
        pod
        for name, pods in this.pods.items()
        if name not in this.wishes
        for pod in pods
        if not objects.spec(pod).get("nodeName") and not objects.is_deleting(pod)
    ]
    deletions = [Delete(POD, pod, POD_DELETED) for pod in doomed[:BURST]]
    return [*steps, *_creations(this, missing), *deletions]


def _creations(this: _Round, nodes: Sequence[str]) -> list[Step]:
    return [daemon_pods.new_pod(this.daemon_set, name, this.hash_value) for name in nodes[:BURST]]


def _ended(this: _Round, pods: Sequence[JsonObject], steps: list[Step]) -> list[JsonObject]:
    """Return the pods that ended, which daemons do not: they go, failed ones after a while."""
    doomed = []
    for pod in pods:
        if objects.is_deleting(pod) or not podlib.has_ended(pod):
            continue
        failed = podlib.phase(pod) == "Failed"
        left_s = _failed_stays_s(pod, this.now) if failed else 0.0
        if left_s > 0:
            steps.append(Again(left_s))
            continue
        what, end = ("failed", "kill") if failed else ("succeeded", "delete")
        where = f"{objects.namespace(pod)}/{objects.name(pod)} on node {daemon_pods.node_of(pod)}"
        words = f"Found {what} daemon pod {where}, will try to {end} it"
        reason = f"{what.capitalize()}DaemonPod"
        steps.append(RecordEvent(this.daemon_set, "Warning" if failed else "Normal", reason, words))
        doomed.append(pod)
    return doomed


def _failed_stays_s(pod: JsonObject, now: datetime) -> float:
    ended = ended_at(pod)
    return 0.0 if ended is None else (ended + timedelta(seconds=FAILED_STAYS_S) - now).total_seconds()


def _excess(this: _Round, running: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the pods of a node that are too many: all but the oldest, or, with a surge, the oldest of each kind."""
    if len(running) <= 1 or not this.surge:
        return [*running[1:]]
    new = [pod for pod in running if this.is_new(pod)]
    old = [pod for pod in running if not this.is_new(pod)]
    doomed = [*new[1:], *old[1:]]
    if new and old and (not podlib.is_ready(old[0]) or this.is_available(new[0])):
        doomed.append(old[0])
    return doomed


# --- the rolling update ---------------------------------------------------------------------------


def _pairs(this: _Round) -> list[tuple[str, JsonObject | None, JsonObject | None]]:
    """Return name, new pod and old pod of each node that has, or is to have, one; pods that end are not looked at."""
    found = []
    for name in dict.fromkeys([*this.wanted, *(name for name in this.pods if name in this.wishes)]):
        pods = [pod for pod in this.pods.get(name, []) if not objects.is_deleting(pod)]
        new = next((pod for pod in pods if this.is_new(pod)), None)
        old = next((pod for pod in pods if not this.is_new(pod)), None)
        found.append((name, new, old))
    return found


def _roll(this: _Round) -> list[Step]:
    """Return the deletion of old pods: those that serve nobody, and of the others as many as may then be missing."""
    most = scaled(this.rolling.get("maxUnavailable", 1), len(this.wanted), up=True)
    unavailable, free, candidates = 0, [], []
    for _, new, old in _pairs(this):
        if old is None or new is not None:
            unavailable += new is None or old is not None or not this.is_available(new)
        elif this.is_available(old):
            candidates.append(old)
        else:
            free.append(old)
    # one that serves nobody may have begun to since it was seen: it would be one more that is missing
    doomed: list[Step] = [Delete(POD, pod, POD_DELETED, unchanged=True) for pod in free]
    doomed += [Delete(POD, pod, POD_DELETED) for pod in candidates[: max(0, most - unavailable - len(free))]]
    return doomed[:BURST]


def _roll_with_surge(this: _Round) -> list[Step]:
    """Return new pods beside old ones, as many as may be; old pods go once the new one is available."""
    surging, doomed = 0, []
    free: list[str] = []
    candidates: list[str] = []
    for name, new, old in _pairs(this):
        if old is None:
            continue
        if new is None:
            (candidates if this.is_available(old) else free).append(name)
        elif this.is_available(new):
            doomed.append(old)
        else:
            surging += 1
    nodes = [*free, *candidates[: max(0, this.surge - surging)]]
    return [*_creations(this, nodes), *(Delete(POD, pod, POD_DELETED) for pod in doomed[:BURST])]


# --- status ---------------------------------------------------------------------------------------


def _status(this: _Round) -> JsonObject:
    """Return the status that nodes and pods give; the first pod of a node counts for it."""
    first = {name: pods[0] for name, pods in this.pods.items() if pods}
    counted = [first[name] for name in this.wanted if name in first]
    misplaced = [name for name in first if name in this.wishes and not this.wishes[name].run]
    available = sum(map(this.is_available, counted))
    status = {
        "currentNumberScheduled": len(counted),
        "desiredNumberScheduled": len(this.wanted),
        "numberMisscheduled": len(misplaced),
        "numberReady": sum(map(podlib.is_ready, counted)),
        "observedGeneration": objects.generation(this.daemon_set),
    }
    optional = {
        "updatedNumberScheduled": sum(map(this.is_new, counted)),
        "numberAvailable": available,
        "numberUnavailable": len(this.wanted) - available,
        "collisionCount": objects.status(this.daemon_set).get("collisionCount"),
    }
    return {**status, **{field: value for field, value in optional.items() if value}}


def _wake_up(this: _Round) -> list[Step]:
    """Return when the next ready pod becomes available by time alone."""
    min_ready_s = int(objects.spec(this.daemon_set).get("minReadySeconds") or 0)
    if not min_ready_s:
        return []
    waits = [podlib.available_in_s(pod, min_ready_s, this.now) for pods in this.pods.values() for pod in pods]
    left = [each for each in waits if each]
    return [Again(min(left))] if left else []


class DaemonSetController(WorkloadController):
    """Keeps a pod on every node that a DaemonSet wants."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, DAEMON_SET, (POD, CONTROLLER_REVISION))
        self._nodes = self.loop.watch(NODE, self._node_changed)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one daemon set."""
        pods, revisions = self.found(POD, obj), self.found(CONTROLLER_REVISION, obj)

        def steps(nodes: list[JsonObject]) -> Sequence[Step]:
            return decide_daemon_set(obj, pods, revisions, nodes, self.context.clock.now())

        nodes = sorted(self._nodes.list(), key=objects.name)
        return objects.decided(nodes, steps, lambda node: daemon_pods.wish(obj, node))

    def same(self, wanted: JsonObject, found: JsonObject) -> bool:
        """Return whether a revision of the wanted name keeps the wanted template."""
        return wanted.get("kind") != CONTROLLER_REVISION.kind or history.same_data(wanted, found)

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Take another hash when two templates have the same; then as ever."""
        self.take(owner, collision(owner, failures[0]))
        super().failed(owner, failures)

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> list[Key]:
        """Return all daemon sets when a node comes, goes, or changes in what they look at; not at a heartbeat."""
        if old is not None and new is not None and _looked_at(old) == _looked_at(new):
            return []
        return [objects.key(each) for each in self.own.list()]


def _looked_at(node: JsonObject) -> tuple[object, ...]:
    return objects.labels(node), objects.spec(node).get("taints"), objects.is_deleting(node)


def collision(owner: Owner, failure: Failure) -> list[Step]:
    """Return the status with one more collision, if a revision's name was taken by another template's."""
    taken = isinstance(failure.step, Create) and failure.step.kind == CONTROLLER_REVISION
    if not taken or not isinstance(failure.error, AlreadyExists):
        return []
    status = objects.status(owner.obj)
    return [
        WriteStatus(owner.kind, owner.obj, {**status, "collisionCount": int(status.get("collisionCount") or 0) + 1})
    ]
