"""Pods bound to a node that does not exist go: no reconciler will ever stop them, nor say that they are gone.

That is a node that was deleted, or a ``spec.nodeName`` that never was one. As in Kubernetes (pkg/controller/podgc), a
node must be missing for a while, seen from here, and once more on a fresh look, before its pods are deleted without
grace. Two lists every 20 s are cheaper than a watch of all pods.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import NODE, POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ObjectList
from minik8s_modules.runtime.events import EventRecorder

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
QUARANTINE_S = 40.0  # podgc's quarantineTime


class Orphans(NamedTuple):
    """Since when (monotonic seconds) each named node is missing, and the pods to delete now."""

    missing_since_s: Mapping[str, float]
    doomed: tuple[JsonObject, ...]


def decide_orphans(
    nodes: Iterable[str], pods: Iterable[JsonObject], missing_since_s: Mapping[str, float], now_s: float
) -> Orphans:
    """Return which nodes are missing, and the pods of those that have been for 40 s."""
    existing = set(nodes)
    bound = [(str(objects.spec(pod).get("nodeName") or ""), pod) for pod in pods]
    missing = {node: missing_since_s.get(node, now_s) for node, _ in bound if node and node not in existing}
    doomed = [pod for node, pod in bound if node in missing and now_s - missing[node] >= QUARANTINE_S]
    return Orphans(missing, tuple(doomed))


class OrphanApi(Protocol):
    """The part of ``ApiClient`` this controller needs."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        """Return the object."""

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
    ) -> ObjectList:
        """Return the objects."""

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str | None = None
    ) -> JsonObject:
        """Delete the object if it still has ``uid``."""


class OrphanController:
    """Deletes pods whose node is gone."""

    def __init__(self, client: OrphanApi, recorder: EventRecorder, clock: Clock | None = None) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._missing_since_s: Mapping[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orphans", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def sweep(self) -> None:
        """Look once at all pods and delete those whose node has been missing for long enough.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        # pods first: a node registered between the two lists is then no missing one
        pods = self._client.list(POD).items
        nodes = [objects.name(node) for node in self._client.list(NODE).items]
        found = decide_orphans(nodes, pods, self._missing_since_s, self._clock.monotonic())
        self._missing_since_s = found.missing_since_s
        for pod in found.doomed:
            if self._stop.is_set():
                break
            if not self._exists(str(objects.spec(pod)["nodeName"])):
                self._delete(pod)

    def _exists(self, node: str) -> bool:
        try:
            self._client.get(NODE, node)
        except NotFound:
            return False
        return True

    def _delete(self, pod: JsonObject) -> None:
        name, namespace, node = objects.name(pod), objects.namespace(pod), objects.spec(pod)["nodeName"]
        try:
            self._client.delete(POD, name, namespace, grace_s=0, uid=objects.uid(pod))
        except (Conflict, NotFound):
            return
        log.warning("pod %s/%s is deleted: its node %s does not exist", namespace, name, node)
        self._recorder.event(pod, "Warning", "DeletingOrphan", f"Deleted: its node {node} does not exist")

    def _run(self) -> None:
        while not self._clock.wait(self._stop, INTERVAL_S):
            try:
                self.sweep()
            except (StatusError, TemporaryError) as error:
                log.info("pods were not swept: %s", error)
            except Exception:
                log.exception("sweeping pods failed")
