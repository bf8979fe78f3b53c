"""A cluster in memory in which the controllers' and the scheduler's own deciders act until nothing happens any more.

Controllers act first. When none has a step, pods without a node are scheduled, those of a high priority first, and what
has a node runs; then controllers act again. Pods run until they are deleted, those of Jobs, too. Of admission there is
only what gives pods their priority. Volumes, quotas and autoscalers are left out, and CronJobs start nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CONTROLLER_REVISION,
    CRON_JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    ROLLING_UPDATE,
    Kind,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.priority_classes import SYSTEM_CLASSES
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.simulation.deciders import DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World, placeholder_uid, run_deciders
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot, Workload
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles

DECIDED = {kind: decide for kind, decide in DECIDERS.items() if kind not in {CRON_JOB, ROLLING_UPDATE}}
"""CronJobs wait for times that never come here, a RollingUpdate for what sidecars say."""
TAKEN = dict.fromkeys(
    (NODE, NAMESPACE, PRIORITY_CLASS, POD_DISRUPTION_BUDGET, *SPREAD_BY, *DECIDED, CONTROLLER_REVISION, POD)
)
"""The kinds that a simulation regards, in the order in which they are best put in."""
_OVER = frozenset({"Succeeded", "Failed"})


def kind_of(obj: JsonObject) -> Kind | None:
    """Return the kind of an object, if a simulation regards it."""
    kind = KINDS.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return kind if kind in TAKEN else None


class _Watched(World):
    """The world, of which the scheduler's cache learns as it does by watching."""

    def __init__(self, cache: ClusterCache, now: datetime) -> None:
        self._cache = cache
        super().__init__((), now)

    def put(self, kind: Kind, obj: JsonObject) -> None:
        """Put an object in, or a new one in its place."""
        key = objects.key(obj)
        old = self.get(kind, key)
        super().put(kind, obj)
        self._tell(kind, old, self.get(kind, key))

    def remove(self, kind: Kind, obj: JsonObject) -> None:
        """Take an object out."""
        old = self.get(kind, objects.key(obj))
        super().remove(kind, obj)
        self._tell(kind, old, None)

    def _tell(self, kind: Kind, old: JsonObject | None, new: JsonObject | None) -> None:
        known = new or old
        if known is None:
            return
        if kind == POD:
            self._cache.update_pod(old, new)
        elif kind == NODE:
            self._cache.update_node(old, new)
        elif kind == NAMESPACE:
            self._cache.update_namespace(old, new)
        elif kind == POD_DISRUPTION_BUDGET:
            self._cache.update_budget(old, new)
        elif kind in SPREAD_BY:
            self._cache.update_workload(Workload.of({**known, "kind": kind.kind}), gone=new is None)


class Simulation:
    """See the top of this file.

    Attributes:
        pending: by UID, why a pod has no node, in the scheduler's words; of the last ``settle``.
        lost: pods that went with their node and that nobody makes again.
    """

    def __init__(self, everything: Iterable[JsonObject], now: datetime) -> None:
        self._cache = ClusterCache()
        self._snapshot = Snapshot()
        self._profiles = Profiles()
        self.world: World = _Watched(self._cache, now)
        self.pending: dict[str, str] = {}
        self.lost: list[Key] = []
        for obj in everything:
            self.put(obj)

    def put(self, obj: JsonObject) -> None:
        """Put an object in, or in the place of the one of its name; of another kind than ``TAKEN`` nothing."""
        kind = kind_of(obj)
        if kind is not None and not objects.is_deleting(obj):
            self.world.put(kind, self._entered(kind, obj))

    def remove_node(self, node: JsonObject) -> None:
        """Take a node out, and its pods with it."""
        for pod in self.world.all(POD):
            if objects.spec(pod).get("nodeName") == objects.name(node):
                self.world.delete(POD, pod)
                self.world.gone(POD, pod)
                if objects.controller_of(pod) is None and not _is_over(pod):
                    self.lost.append(objects.key(pod))
        self.world.remove(NODE, node)

    def settle(self) -> bool:
        """Let everybody act until nothing happens any more; return whether that came to an end."""
        return run_deciders(self.world, DECIDED.items(), lambda _world: self._schedule())

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes with their pods, ordered by name."""
        return self._seen().nodes

    def strays(self) -> int:
        """Return how many pods are on nodes that are not there."""
        known = {"", *(objects.name(node) for node in self.world.all(NODE))}
        return sum(str(objects.spec(pod).get("nodeName") or "") not in known for pod in self.world.all(POD))

    def _entered(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """Return an object with what the API would have given it, and as if all that it waits for had passed."""
        key = objects.key(obj)
        before = self.world.get(kind, key) or {}
        called = key.name if kind == POD else f"{kind.kind}/{key.name}"
        own: JsonObject = {
            "uid": objects.uid(before) or objects.uid(obj) or placeholder_uid(key.namespace, called),
            "creationTimestamp": obj["metadata"].get("creationTimestamp") or rfc3339(self.world.now),
            "generation": objects.generation(before) or objects.generation(obj) or 1,
        }
        entered = {**obj, "metadata": {**obj["metadata"], **own}, "status": obj.get("status") or objects.status(before)}
        if kind in DECIDED and "minReadySeconds" in objects.spec(obj):
            entered["spec"] = {name: value for name, value in obj["spec"].items() if name != "minReadySeconds"}
        if kind == POD and objects.spec(obj).get("nodeName") and not _is_over(obj):
            return self._running(entered, str(obj["spec"]["nodeName"]))
        return entered

    def _running(self, pod: JsonObject, node: str) -> JsonObject:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(self.world.now)}
        return {
            **pod,
            "spec": {**objects.spec(pod), "nodeName": node},
            "status": {"phase": "Running", "conditions": [ready], "startTime": rfc3339(self.world.now)},
        }

    def _seen(self) -> Snapshot:
        """Return the cluster as the scheduler sees it now."""
        found = self._cache.update(self._snapshot)
        found.storage = None  # nothing is known of volumes, so nothing is decided by them
        return found

    def _schedule(self) -> bool:
        """Try all pods without a node; return whether anything has changed."""
        moved = False
        self.pending = {}
        refused: dict[bytes, str] = {}
        waiting = [self._prioritized(pod) for pod in self.world.all(POD) if _waits(pod)]
        for pod in sorted(waiting, key=_priority, reverse=True):
            if self.world.get(POD, objects.key(pod)) is not pod:
                continue  # preempted meanwhile
            info = PodInfo.of(pod)
            message = refused.get(info.shape.key) or self._scheduled(pod)
            if not message:
                moved = True
                continue
            self.pending[objects.uid(pod)] = message
            if not _looks_at_others(info):
                refused[info.shape.key] = message  # nor does another of its kind fit
        return moved

    def _prioritized(self, pod: JsonObject) -> JsonObject:
        """Return a pod with the priority that its class, or the default one, gives it."""
        spec = objects.spec(pod)
        if "priority" in spec:
            return pod
        called = str(spec.get("priorityClassName") or "")
        if called:
            chosen = self.world.get(PRIORITY_CLASS, Key("", called)) or SYSTEM_CLASSES.get(called)
        else:
            defaults = [one for one in self.world.all(PRIORITY_CLASS) if one.get("globalDefault")]
            chosen = min(defaults, key=lambda one: int(one.get("value") or 0), default=None)
        if chosen is None:
            return pod
        given = {name: chosen[name] for name in ("preemptionPolicy",) if name in chosen}
        self.world.put(POD, {**pod, "spec": {**given, **spec, "priority": int(chosen.get("value") or 0)}})
        return self.world.get(POD, objects.key(pod)) or pod

    def _scheduled(self, pod: JsonObject) -> str:
        """Give a pod a node, or make room for it; return why neither can be done."""
        called = objects.spec(pod).get("priorityClassName")
        if called and "priority" not in objects.spec(pod):
            return f"no PriorityClass with name {called} was found"
        decision = self._profiles.decide(pod, self._seen())
        if decision.node:
            self._snapshot.turn += 1
            self.world.put(POD, self._running(pod, decision.node))
            return ""
        return "" if self._preempted(pod, decision) else decision.message

    def _preempted(self, pod: JsonObject, decision: Decision) -> bool:
        """Take away the pods that have to go for this one; return whether there are any."""
        found = decision.nomination
        if found is None or not found.node or not found.victims:
            return False
        for victim in found.victims:
            self.world.delete(POD, victim.pod)
            self.world.gone(POD, victim.pod)
        status = {**objects.status(pod), "nominatedNodeName": found.node}
        self.world.put(POD, {**pod, "status": status})
        return True


def _is_over(pod: JsonObject) -> bool:
    return objects.status(pod).get("phase") in _OVER


def _waits(pod: JsonObject) -> bool:
    return not objects.spec(pod).get("nodeName") and not _is_over(pod)


def _priority(pod: JsonObject) -> int:
    return int(objects.spec(pod).get("priority") or 0)


def _looks_at_others(info: PodInfo) -> bool:
    """Return whether it may fit once others have come."""
    return info.shape.terms.social or bool(objects.spec(info.pod).get("topologySpreadConstraints"))
