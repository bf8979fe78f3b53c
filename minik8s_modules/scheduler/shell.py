"""The scheduler's shell: pods come by watch, decisions go out as bindings, refusals as conditions and Events.

One thread decides, so that each decision sees the ones before; a few threads bind, so that a slow answer of the API
holds up no other pod. A pod that fits nowhere waits until a node or another pod has changed (or 5 minutes, as in
Kubernetes). The PodScheduled condition of an unbound pod is written here and nowhere else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import NAMESPACE, NODE, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import Token
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers
from minik8s_modules.scheduler.cache import ClusterCache
from minik8s_modules.scheduler.framework import Decision, is_pending, is_social, takes_room
from minik8s_modules.scheduler.plugins import decide_node

log = logging.getLogger(__name__)

BINDERS = 4
BIND_FAILURES = Backoff(initial_s=0.02, maximum_s=10.0)
# scheduler.go, podMaxInUnschedulablePodsDuration
RETRY_UNSCHEDULABLE_S = 300.0


class _Waiting(NamedTuple):
    uid: str
    message: str
    looks_around: bool = False
    """Whether its place depends on other pods."""


class Scheduler:
    """Gives every pending pod a node, while it leads."""

    def __init__(self, client: Api, recorder: EventRecorder, clock: Clock | None = None) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._cache = ClusterCache()
        self._turn = 0
        self._lock = threading.Lock()
        self._queue: WorkQueue[Key] | None = None
        self._unschedulable: dict[Key, _Waiting] = {}
        self._bind_failures: dict[Key, int] = {}
        self._pods = Informer(client, POD, clock=self._clock)
        self._nodes = Informer(client, NODE, clock=self._clock)
        self._namespaces = Informer(client, NAMESPACE, clock=self._clock)
        self._nodes.add_handler(self._on_node)
        self._pods.add_handler(self._on_pod)
        self._namespaces.add_handler(self._cache.update_namespace)

    def start(self) -> None:
        """Follow nodes and pods, whether leading or not, so that leading begins at once."""
        self._namespaces.start()
        self._nodes.start()
        self._pods.start()

    def stop(self) -> None:
        """End following."""
        self._pods.stop()
        self._nodes.stop()
        self._namespaces.stop()

    def lead(self, _token: Token, lost: threading.Event) -> None:
        """Schedule until ``lost`` is set."""
        informers = (self._nodes, self._pods, self._namespaces)
        while not all(informer.wait_synced(1.0) for informer in informers):
            if lost.is_set():
                return
        queue: WorkQueue[Key] = WorkQueue(self._clock)
        with self._lock:
            self._queue = queue
            self._unschedulable.clear()
        for pod in sorted(self._pods.list(), key=_age):
            if is_pending(pod):
                queue.add(objects.key(pod))
        workers = Workers(queue, self.schedule, "scheduler")
        with ThreadPoolExecutor(BINDERS, thread_name_prefix="binder") as self._binders:
            workers.start()
            lost.wait()
            with self._lock:
                self._queue = None
            workers.stop()

    def schedule(self, key: Key) -> None:
        """Decide for one pod and act: bind it, or say why it waits.

        Raises:
            StatusError: the API refused the condition; the pod is tried again.
            TemporaryError: it did not answer.
        """
        pod = self._pods.get(*key)
        if pod is None or not is_pending(pod) or self._cache.is_assumed(key):
            return
        decision = decide_node(pod, self._cache.snapshot(self._turn))
        if not decision.node:
            self._refuse(key, pod, decision)
            return
        self._turn += 1
        self._cache.assume(pod, decision.node)
        self._binders.submit(self._bind, key, pod, decision.node)

    def _bind(self, key: Key, pod: JsonObject, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": objects.uid(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._client.create(POD, binding, subresource="binding")
        except (TemporaryError, StatusError) as error:
            # a Conflict or NotFound means bound, deleted or replaced meanwhile: what is true comes by the watch
            expected = isinstance(error, (Conflict, NotFound))
            log.log(logging.INFO if expected else logging.WARNING, "%s was not bound to %s: %s", key, node, error)
            self._bind_again(key)
        except Exception:
            log.exception("binding %s to %s failed", key, node)
            self._bind_again(key)
        else:
            with self._lock:
                self._unschedulable.pop(key, None)
                self._bind_failures.pop(key, None)
            message = f"Successfully assigned {key} to {node}"
            self._recorder.event(pod, "Normal", "Scheduled", message)

    def _refuse(self, key: Key, pod: JsonObject, decision: Decision) -> None:
        waiting = _Waiting(objects.uid(pod), decision.message, looks_at_others(pod))
        with self._lock:
            told = self._unschedulable.get(key)
            self._unschedulable[key] = waiting
            queue = self._queue
        if queue is not None:
            queue.add_after(key, RETRY_UNSCHEDULABLE_S)
        if told != waiting:
            self._recorder.event(pod, "Warning", "FailedScheduling", decision.message)
        self._write_condition(key, pod, decision.message)

    def _write_condition(self, key: Key, pod: JsonObject, message: str) -> None:
        known = objects.condition(pod, "PodScheduled") or {}
        condition = unschedulable_condition(known, message, rfc3339(self._clock.now()))
        if condition == known:
            return
        body = {"metadata": {"uid": objects.uid(pod)}, "status": {"conditions": [condition]}}
        try:
            self._client.patch(POD, key.name, key.namespace, body, patch_type="strategic", subresource="status")
        except (Conflict, NotFound) as error:
            log.info("%s is another pod now: %s", key, error)

    def _on_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._cache.update_node(old, new)
        if new is not None and (old is None or _matters(old) != _matters(new)):
            self._wake()

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._cache.update_pod(old, new)
        if old is not None and takes_room(old) and (new is None or not takes_room(new)):
            self._wake()
        elif new is not None and takes_room(new) and (old is None or _place(old) != _place(new)):
            self._wake(by_others=True)
        key = objects.key(new or old or {})
        if new is None or not is_pending(new):
            with self._lock:
                self._unschedulable.pop(key, None)
                self._bind_failures.pop(key, None)
        elif old is None or objects.spec(old) != objects.spec(new):
            self._add(key)

    def _wake(self, *, by_others: bool = False) -> None:
        """Try the pods again that fitted nowhere (``by_others``: whose place depends on other pods)."""
        with self._lock:
            queue = self._queue
            keys = [key for key, one in self._unschedulable.items() if one.looks_around or not by_others]
        if queue is not None:
            for key in keys:
                queue.add(key)

    def _add(self, key: Key) -> None:
        with self._lock:
            queue = self._queue
        if queue is not None:
            queue.add(key)

    def _bind_again(self, key: Key) -> None:
        self._cache.forget(key)
        with self._lock:
            failures = self._bind_failures[key] = self._bind_failures.get(key, 0) + 1
            queue = self._queue
        if queue is not None:
            queue.add_after(key, BIND_FAILURES.delay_s(failures))


def unschedulable_condition(known: Mapping[str, Any], message: str, now: str) -> JsonObject:
    """Return PodScheduled=False with ``message``; its transition time stays while its status does."""
    unchanged = known.get("status") == "False" and known.get("lastTransitionTime")
    condition: JsonObject = {
        **known,
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": known["lastTransitionTime"] if unchanged else now,
    }
    return condition


def _place(pod: JsonObject) -> tuple[Any, ...]:
    """Return what pods that look at other pods see of one."""
    return (objects.spec(pod).get("nodeName"), objects.labels(pod), objects.is_deleting(pod))


def looks_at_others(pod: JsonObject) -> bool:
    """Return whether the pod's place depends on other pods."""
    return is_social(pod) or bool(objects.spec(pod).get("topologySpreadConstraints"))


def _matters(node: JsonObject) -> tuple[Any, ...]:
    """Return what a decision can depend on; heartbeats change nothing of it."""
    ready = (objects.condition(node, "Ready") or {}).get("status")
    status = objects.status(node)
    return (
        objects.spec(node),
        objects.labels(node),
        ready,
        status.get("allocatable"),
        status.get("capacity"),
    )


def _age(pod: JsonObject) -> tuple[str, Key]:
    return (str(objects.metadata(pod).get("creationTimestamp") or ""), objects.key(pod))
