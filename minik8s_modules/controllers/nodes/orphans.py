"""Pods bound to a node that does not exist go: no reconciler will ever stop them, nor say that they are gone.

That is a node that was deleted, or a ``spec.nodeName`` that never was one. As in Kubernetes (pkg/controller/podgc), a
node must be missing for a while, seen from here, and once more on a fresh look, before its pods are deleted without
grace; bare pods of the original come back (departures.py). Keys are names of nodes: a pod bound to one that the copy
lacks, or a node that goes, queues it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONTROLLER_REVISION, NODE, POD
from minik8s_modules.api.nodes.leaving import comes_back
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.cleanup.pod_gc import failed, take
from minik8s_modules.controllers.core.steps import Create, Delete
from minik8s_modules.controllers.core.taking import take_all
from minik8s_modules.controllers.nodes.departures import fresh, note_of
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NODE

log = logging.getLogger(__name__)

QUARANTINE_S = 40.0  # podgc's quarantineTime


class Verdict(NamedTuple):
    """The pods to delete now, if a fresh look says the same, and when to look again (None: not by time)."""

    doomed: tuple[JsonObject, ...]
    look_again_s: float | None


def decide_orphans(node: JsonObject | None, pods: Iterable[JsonObject], missing_s: float) -> Verdict:
    """Return what becomes of the ``pods`` of a node that has been missing for ``missing_s`` seconds, if it is None."""
    found = tuple(pods)
    if node is not None or not found:
        return Verdict((), None)
    if missing_s < QUARANTINE_S:
        return Verdict((), QUARANTINE_S - missing_s)
    return Verdict(found, None)


class OrphanController(Looping):
    """Deletes pods whose node is gone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._clock = context.clock
        self._lock = threading.Lock()
        self._missing_since_s: dict[str, float] = {}
        self._loop = Loop(context, "orphans", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, _gone)
        self._pods = self._loop.watch(POD, self._bound_to_nothing, BY_NODE)

    def sync(self, key: Key) -> None:
        """Judge the pods of one node.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        node, pods = self._nodes.get("", key.name), self._pods.by_index(BY_NODE, key.name)
        verdict = decide_orphans(node, pods, self._missing_for_s(key.name, there=node is not None or not pods))
        if verdict.look_again_s is not None:
            self._loop.add_after(key, verdict.look_again_s)
        if verdict.doomed and not self._exists(key.name):
            doomed = fresh(self._context, verdict.doomed)
            take_all(self._context, [Create(CONTROLLER_REVISION, note_of(pod)) for pod in doomed if comes_back(pod)])
            for pod in doomed:
                self._delete(pod, key.name)

    def _missing_for_s(self, node: str, *, there: bool) -> float:
        now_s = self._clock.monotonic()
        with self._lock:
            if there:
                self._missing_since_s.pop(node, None)
                return 0.0
            return now_s - self._missing_since_s.setdefault(node, now_s)

    def _exists(self, node: str) -> bool:
        try:
            self._client.get(NODE, node)
        except NotFound:
            return False
        return True

    def _delete(self, pod: JsonObject, node: str) -> None:
        for step in failed(pod, "node no longer exists", self._clock.now()):
            take(self._context, step)
        take(self._context, Delete(POD, pod, grace_s=0), lambda pod: self._tell(pod, node))

    def _tell(self, pod: JsonObject, node: str) -> None:
        log.warning("pod %s is deleted: its node %s does not exist", objects.key(pod), node)
        text = f"Deleted: its node {node} does not exist"
        self._context.recorder.event(pod, "Warning", "DeletingOrphan", text)

    def _bound_to_nothing(self, _old: JsonObject | None, new: JsonObject | None) -> list[Key]:
        node = objects.spec(new).get("nodeName") if new is not None else None
        return [Key("", str(node))] if node and self._nodes.get("", str(node)) is None else []


def _gone(old: JsonObject | None, new: JsonObject | None) -> list[Key]:
    return [objects.key(old)] if new is None and old is not None else []
