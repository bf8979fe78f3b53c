"""Pods of a node that nobody hears of are not ready: services send nobody there, budgets do not count on them.

Their statuses would else stay as they were before the cable was pulled. Only a node that has not been ready for 25 s
counts, so that a Docker that restarts or a gateway that is exchanged costs no service an endpoint. Where no machine at
all is ready the fault is ours, and nothing is said about the pods of any; of those of a virtual node, where no node is.
Whoever hears of the node again (reconcile/status/status.py) tells the truth again. Source: kubernetes
``pkg/controller/nodelifecycle`` (``MarkPodsNotReady``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core import pods as podlib
from minik8s_modules.controllers.core.acting import Acting, Owner
from minik8s_modules.controllers.core.owning import without_condition
from minik8s_modules.controllers.core.steps import Again, Patch, Step
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.expectations import Expectations
from minik8s_modules.runtime.informers import BY_NODE

UNHEARD_S = 25.0  # with the 15 s until a node counts as silent: 40 s, as in Kubernetes
_READY = "Ready"
_ALL = Key("", "")


def decide_silence(
    node: JsonObject, nodes: Iterable[JsonObject], pods: Sequence[JsonObject], silent_s: float, now: datetime
) -> list[Step]:
    """Return the steps that make the pods of a silent node not ready, or when to look again.

    Args:
        node: one of ``nodes``.
        nodes: all of them.
        pods: those bound to ``node``.
        silent_s: for how long ``node`` has been seen not ready; of no interest while it is.
        now: of conditions.
    """
    if is_ready(node) or not any(is_ready(each) for each in nodes if is_witness(each, node)):
        return []
    if silent_s < UNHEARD_S:
        return [Again(UNHEARD_S - silent_s)]
    return [_unready(pod, now) for pod in pods if podlib.is_ready(pod) and not podlib.has_ended(pod)]


def is_ready(node: JsonObject) -> bool:
    """Return whether the node says that it is ready."""
    return (objects.condition(node, _READY) or {}).get("status") == "True"


def is_witness(other: JsonObject, node: JsonObject) -> bool:
    """Return whether ``other``, if it is ready, shows that it is not our fault that ``node`` is silent.

    Virtual nodes live in a process that may run beside the control plane: they say nothing of the machines.
    """
    return is_virtual(node) or not is_virtual(other)


def _unready(pod: JsonObject, now: datetime) -> Patch:
    condition = {
        "type": _READY,
        "status": "False",
        "reason": "NodeNotReady",
        "message": "Nothing has been heard from the pod's node.",
        "lastTransitionTime": rfc3339(now),
    }
    others = without_condition(objects.status(pod).get("conditions") or [], _READY)
    return Patch(POD, pod, {"status": {"conditions": [*others, condition]}}, subresource="status")


class SilentNodeController(Looping):
    """Watches which nodes are ready, and the pods of those that are not."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._silent_since_s: dict[str, float] = {}
        self._ready = {False: 0, True: 0}  # how many nodes, by whether they are virtual; the informer's thread counts
        self._loop = Loop(context, "silent-nodes", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, self._if_it_matters)
        self._pods = self._loop.watch(POD, self._of_pod, BY_NODE)
        self._acting = Acting(context, Expectations(context.informers, context.clock), self._loop.add_after)

    def sync(self, key: Key) -> None:
        """Look at one node; a key without a name is all of them.

        Raises:
            StatusError: the API refused; Conflict where a pod has changed meanwhile.
            TemporaryError: it did not answer.
        """
        if not key.name:
            for each in self._nodes.list():
                self._loop.add(objects.key(each))
            return
        node = self._nodes.get("", key.name)
        if node is None or is_ready(node):
            with self._lock:
                self._silent_since_s.pop(key.name, None)
            return
        now_s = self._context.clock.monotonic()
        with self._lock:
            silent_s = now_s - self._silent_since_s.setdefault(key.name, now_s)
        pods = self._pods.by_index(BY_NODE, key.name)
        steps = decide_silence(node, self._nodes.list(), pods, silent_s, self._context.clock.now())
        failures = self._acting.take(Owner(NODE, node), steps)
        if failures:
            raise failures[0].error

    def _if_it_matters(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Queue the node; and all nodes where the first has become ready, or the last is no more.

        Queueing all with each change took 5,000 times as long when as many nodes came.
        """
        before = self._witnesses()
        ready = [each is not None and is_ready(each) for each in (old, new)]
        for each, counts, step in ((old, ready[0], -1), (new, ready[1], 1)):
            if each is not None and counts:
                self._ready[is_virtual(each)] += step
        changed = ready[0] != ready[1] or old is None or new is None
        keys = [objects.key(each) for each in (new or old,) if changed and each is not None]
        return keys if self._witnesses() == before else [*keys, _ALL]

    def _witnesses(self) -> tuple[bool, bool]:
        """Return whether any machine is ready, and any node."""
        return self._ready[False] > 0, any(self._ready.values())

    def _of_pod(self, _old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        if new is None or not podlib.is_ready(new):
            return []
        node = self._nodes.get("", str(objects.spec(new).get("nodeName") or ""))
        return [objects.key(node)] if node is not None and not is_ready(node) else []
