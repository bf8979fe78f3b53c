"""Pods leave nodes whose NoExecute taints they do not tolerate, or tolerate no longer.

A toleration with ``tolerationSeconds`` counts from the taint's ``timeAdded``, so that a restarted controller neither
forgets nor prolongs it; a taint without one counts from when this process first saw it. Pods that say nothing
tolerate nodes that are not ready for five minutes (admission gives them that). Source: kubernetes
``pkg/controller/tainteviction``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.nodes import taints
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Acting, Owner
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.controllers.core.steps import Again, Delete, Patch, RecordEvent, Step
from minik8s_modules.controllers.nodes.taints import NO_EXECUTE
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.expectations import Expectations
from minik8s_modules.runtime.informers import BY_NODE

log = logging.getLogger(__name__)

_TARGET = "DisruptionTarget"
TaintId = tuple[str, str, str]  # node, key, value


def decide_eviction(
    pod: JsonObject, node: JsonObject | None, first_seen: Mapping[TaintId, datetime], now: datetime
) -> list[Step]:
    """Return whether ``pod`` goes now, or when to look again; nothing where it may stay.

    Args:
        pod: a pod bound to ``node``.
        node: None when it is gone: then its pods are another controller's (orphans.py).
        first_seen: since when a taint without ``timeAdded`` counts.
        now: decides what is over.
    """
    if node is None or objects.is_deleting(pod) or podlib.has_ended(pod):
        return []
    left = [_left_s(pod, taint, first_seen.get(taint_id(node, taint), now), now) for taint in no_execute(node)]
    ends = [each for each in left if each is not None]
    if not ends:
        return []
    if min(ends) > 0:
        return [Again(min(ends))]
    text = f"Marking for deletion Pod {objects.key(pod)}"
    return [_marked(pod, now), RecordEvent(pod, "Normal", "TaintManagerEviction", text), Delete(POD, pod)]


def no_execute(node: JsonObject) -> list[JsonObject]:
    """Return the node's taints that drive pods away."""
    return [taint for taint in objects.spec(node).get("taints") or [] if taint.get("effect") == NO_EXECUTE]


def taint_id(node: JsonObject, taint: JsonObject) -> TaintId:
    """Return what tells a taint from all others."""
    return objects.name(node), str(taint.get("key")), str(taint.get("value") or "")


def _left_s(pod: JsonObject, taint: JsonObject, seen: datetime, now: datetime) -> float | None:
    """Return for how many seconds the pod tolerates the taint: 0 or less for no longer, None for ever."""
    tolerations = objects.spec(pod).get("tolerations") or []
    covering = next((each for each in tolerations if taints.covers(each, taint)), None)
    if covering is None:
        return 0.0
    seconds = covering.get("tolerationSeconds")
    if seconds is None:
        return None
    since = podlib.moment(str(taint.get("timeAdded") or "")) or seen
    # of a pod that came later the taint counts from then
    started = max(since, podlib.moment(_scheduled(pod)) or since)
    return (started + timedelta(seconds=max(0, int(seconds))) - now).total_seconds()


def _scheduled(pod: JsonObject) -> str:
    return str((objects.condition(pod, "PodScheduled") or {}).get("lastTransitionTime") or "")


def _marked(pod: JsonObject, now: datetime) -> Patch:
    condition = {
        "type": _TARGET,
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": rfc3339(now),
    }
    others = without_condition(objects.status(pod).get("conditions") or [], _TARGET)
    return Patch(POD, pod, {"status": {"conditions": [*others, condition]}}, subresource="status")


class TaintEvictionController(Looping):
    """Evicts by taints."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._first_seen: dict[TaintId, datetime] = {}
        self._loop = Loop(context, "taint-eviction", self.sync)
        self._nodes = self._loop.reads(NODE)
        self._pods = self._loop.watch(POD, self._of_pod, BY_NODE)
        self._nodes.add_handler(self._node_changed)
        self._acting = Acting(context, Expectations(context.informers, context.clock), self._loop.add_after)

    def sync(self, key: Key) -> None:
        """Look at one pod, or queue all pods of a node, whose key has no namespace.

        Raises:
            StatusError: a step was refused; Conflict where the pod has changed meanwhile.
            TemporaryError: the API did not answer.
        """
        if not key.namespace:
            # not in the handler: it holds the lock of the nodes' copy, and handlers of pods look into that one
            for each in self._pods.by_index(BY_NODE, key.name):
                self._loop.add(objects.key(each))
            return
        pod = self._pods.get(*key)
        if pod is None:
            return
        node = self._nodes.get("", str(objects.spec(pod).get("nodeName") or ""))
        with self._lock:
            steps = decide_eviction(pod, node, self._first_seen, self._context.clock.now())
        failures = self._acting.take(Owner(POD, pod), steps)
        if failures:
            raise failures[0].error
        if any(isinstance(step, Delete) for step in steps):
            log.info("pod %s is evicted from node %s by its taints", key, objects.name(node or {}))

    def _of_pod(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """A pod matters when it comes to a node with taints, or tolerates something else than before."""
        if new is None:
            return []
        fields = ("nodeName", "tolerations")
        if old is not None and all(objects.spec(old).get(f) == objects.spec(new).get(f) for f in fields):
            return []
        node = self._nodes.get("", str(objects.spec(new).get("nodeName") or ""))
        return [objects.key(new)] if node is not None and no_execute(node) else []

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        before = no_execute(old) if old is not None else []
        after = no_execute(new) if new is not None else []
        if before == after:
            return
        about, now = new or old or {}, self._context.clock.now()
        with self._lock:
            present = {taint_id(about, taint) for taint in after}
            for gone in [each for each in self._first_seen if each[0] == objects.name(about) and each not in present]:
                del self._first_seen[gone]
            for each in present:
                self._first_seen.setdefault(each, now)
        if after:
            self._loop.add(objects.key(about))
