"""PodController: has the Pods of virtual nodes run by their providers; one for all nodes of a process.

    informer ─keys─▶ queue ``pods``     ─▶ sync    what is to be, told to the provider
                     queue ``removals`` ─▶ remove  objects whose grace is over
    provider ─Pods─▶ queue ``statuses`` ─▶ report  the provider's status, written as a whole

One key is never in two workers' hands. What fails is tried again (``retrying``). Nothing is remembered
that could not be found out again, so a process that is killed at any point goes on where it was.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import BY_NODE, by_node, sharing_parts, wait_synced, without_bookkeeping
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.runtime.workers import Workers
from minik8s_modules.virtual.endings import is_over
from minik8s_modules.virtual.errors import is_invalid_input, is_not_found
from minik8s_modules.virtual.figures import Figures
from minik8s_modules.virtual.pods.deciding import (
    PodKey,
    ProviderRecord,
    Run,
    Step,
    completed_status,
    decide_pod,
    decide_run,
    failed_status,
    grace_s,
    is_running,
    should_enqueue,
)
from minik8s_modules.virtual.pods.environment import Problem
from minik8s_modules.virtual.pods.polling import PERIOD_S, Polling
from minik8s_modules.virtual.pods.retrying import Again, trying
from minik8s_modules.virtual.provider import PodNotifier, Provider

log = logging.getLogger(__name__)

WORKERS = 10
# a status that somebody else has changed is put right after so long: two who disagree cost one write a second
_CONTESTED_S = 1.0
Resolve = Callable[[JsonObject, Callable[[Problem], None]], JsonObject]
"""Returns a copy of the Pod with its environment resolved; raises MissingReference."""


class Stoppable(Protocol):
    """The threads of one queue."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class PodController:
    """See the top of this file.

    Args:
        client: writes statuses, and takes objects away.
        recorder: tells Events.
        providers: by the name of the node.
        resolve: resolves environments.
        clock: of graces and back-offs.
        workers: that each of the three queues has.
        polled_s: how often providers are asked that tell nothing by themselves.
    """

    def __init__(
        self,
        client: Api,
        recorder: EventRecorder,
        providers: Mapping[str, Provider],
        resolve: Resolve,
        clock: Clock,
        figures: Figures,
        metrics: QueueMetrics,
        workers: int = WORKERS,
        polled_s: float = PERIOD_S,
    ) -> None:
        self._client, self._recorder, self._clock, self._figures = client, recorder, clock, figures
        self._providers = dict(providers)
        self._resolve = resolve
        self._lock = threading.Lock()
        self._known: dict[PodKey, ProviderRecord] = {}
        self._reported: dict[PodKey, bytes] = {}  # what counts of it, as JSON: there is one for each Pod
        self._stop = threading.Event()
        self._ready = threading.Event()
        only = next(iter(self._providers)) if len(self._providers) == 1 else ""
        self.informer = Informer(
            client,
            POD,
            field_selector=f"spec.nodeName={only}" if only else "",
            clock=clock,
            indexes={BY_NODE: by_node},
            transform=self._kept,
        )
        self.informer.add_handler(self._on_change)
        self._polling = Polling(self._handed_over, clock, polled_s)
        self._pods: WorkQueue[PodKey] = WorkQueue(clock, counts=metrics.queue("pods"))
        self._removals: WorkQueue[tuple[PodKey, str]] = WorkQueue(clock, counts=metrics.queue("removals"))
        self._statuses: WorkQueue[PodKey] = WorkQueue(clock, counts=metrics.queue("statuses"))
        self._workers: tuple[Stoppable, ...] = (
            Workers(self._pods, trying(self._pods, self.sync, self._stop), "pods", workers),
            Workers(self._removals, trying(self._removals, self._remove, self._stop), "removals", workers),
            Workers(self._statuses, trying(self._statuses, self.report, self._stop), "statuses", workers),
        )
        self._starter = threading.Thread(target=self._begin, name="pods-start", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin: copies first, then what the providers have, then the work; returns at once."""
        self.informer.start()
        self._starter.start()

    def stop(self) -> None:
        """End; waits for what is under way."""
        self._stop.set()
        self._polling.stop()
        self.informer.stop()
        for workers in self._workers:
            workers.stop()

    def is_ready(self) -> bool:
        """Return whether the work has begun."""
        return self._ready.is_set()

    def pods_of(self, node: str) -> list[JsonObject]:
        """Return the Pods bound to ``node``. Do not change them."""
        return self.informer.by_index(BY_NODE, node)

    def _begin(self) -> None:
        if not wait_synced([self.informer], self._stop):
            return
        for node, provider in self._providers.items():
            notify = self._notifier(node)
            if isinstance(provider, PodNotifier):
                provider.notify_pods(notify)
            else:
                self._polling.add(node, provider, notify)
            self._queue_dangling(node, provider)
        for workers in self._workers:
            workers.start()
        self._polling.start()
        self._ready.set()

    def _queue_dangling(self, node: str, provider: Provider) -> None:
        """Look at what the provider has from before: what the API does not have is deleted there."""
        try:
            with self._figures.call("get_pods"):
                present = provider.get_pods()
        except Exception:
            log.exception("node %s: its provider cannot list its Pods; dangling ones stay", node)
            return
        for pod in present:
            self._pods.add(PodKey(node, objects.namespace(pod), objects.name(pod)))

    # ------------------------------------------------------------------ what changes in the API

    def _kept(self, pod: JsonObject) -> JsonObject:
        """Return what is kept of a Pod: of one on other nodes, or on none yet, who it is and where."""
        if by_node(pod) in self._providers:
            return sharing_parts(without_bookkeeping(pod))
        meta = {name: objects.metadata(pod).get(name) for name in ("name", "namespace", "uid", "resourceVersion")}
        return {"metadata": meta, "spec": {"nodeName": by_node(pod)}}

    def _on_change(self, old: JsonObject | None, new: JsonObject | None) -> None:
        about = new if new is not None else old
        if about is None or by_node(about) not in self._providers:
            return
        key = _key(about)
        if old is None or new is None or should_enqueue(old, new):
            self._pods.add(key)
        if new is None:
            with self._lock:
                self._reported.pop(key, None)
        elif old is not None and objects.status(old) != objects.status(new):
            self._put_right(key, new)

    def _put_right(self, key: PodKey, pod: JsonObject) -> None:
        with self._lock:
            reported = self._reported.get(key)
        if (
            reported is not None
            and not is_over(pod)
            and completed_status(pod, orjson.loads(reported)["status"]) != objects.status(pod)
        ):
            self._statuses.add_after(key, _CONTESTED_S)

    # ------------------------------------------------------------------ to the provider

    def sync(self, key: PodKey) -> None:
        """Have the provider do what the API says of one Pod; raises as the API does, and as the provider does."""
        pod = self._pod(key)
        known = self._known_of(key)
        match decide_pod(pod, known):
            case Step.FORGET:
                self._forget(key)
            case Step.DELETE if pod is not None:
                self._delete(key, pod)
            case Step.REMOVE if pod is not None:
                self._removals.add((key, objects.uid(pod)))
            case Step.RUN if pod is not None:
                self._run(key, pod)

    def _run(self, key: PodKey, pod: JsonObject) -> None:
        provider = self._providers[key.node]
        ready = self._resolve(pod, lambda one: self._recorder.event(pod, "Warning", one.reason, one.message))
        present = self._present(key)
        step = decide_run(ready, present)
        if step is Run.REPLACE and present is not None:
            self._delete_at_provider(key, present)
            raise Again(f"{key}: its predecessor {objects.uid(present)} is being deleted at the provider")
        sent = step is Run.NOTHING or self._sent_to(provider, step, pod, ready)
        refused = step is Run.CREATE and not sent  # where an update is, what runs goes on, and is asked about
        if not refused and objects.uid(self._known_of(key).used or {}) != objects.uid(pod):
            for text in provider.remarks(pod):  # once by each process: one that was killed may not have told it
                self._recorder.event(pod, "Warning", "NotAsDeclared", text)
        self._remember(key, ProviderRecord(used=pod, refused=refused))

    def _sent_to(self, provider: Provider, step: Run, pod: JsonObject, ready: JsonObject) -> bool:
        """Have the provider create or update ``ready``; return False where it says that this can never be."""
        called = "create" if step is Run.CREATE else "update"
        act = provider.create_pod if step is Run.CREATE else provider.update_pod
        try:
            with self._figures.call(f"{called}_pod"):
                act(orjson.loads(orjson.dumps(ready)))  # a copy, five times as fast as deepcopy
        except Exception as error:
            self._recorder.event(pod, "Warning", f"Provider{called.title()}Failed", str(error))
            if step is Run.CREATE:  # what runs already goes on as it was, and its status is the provider's to tell
                self._write_failed(pod, error)
            if is_invalid_input(error):
                return False
            raise
        self._tell_success(provider, pod, called)
        return True

    def _delete(self, key: PodKey, pod: JsonObject) -> None:
        known = self._delete_at_provider(key, pod, event_target=pod)
        self._remember(key, self._known_of(key)._replace(deleted=objects.uid(pod)))
        wait_s = grace_s(pod) if known and is_running(self._pod(key) or pod) else 0.0
        self._removals.add_after((key, objects.uid(pod)), wait_s)

    def _forget(self, key: PodKey) -> None:
        present = self._present(key)
        if present is not None:
            self._delete_at_provider(key, present)
            log.info("%s was deleted at the provider: the API does not have it", key)
        with self._lock:
            self._polling.forget(objects.uid(self._known.pop(key, ProviderRecord()).used or {}))

    def _delete_at_provider(self, key: PodKey, pod: JsonObject, event_target: JsonObject | None = None) -> bool:
        """Delete ``pod``; return whether the provider knew it. ``event_target``: the API's object, for Events."""
        provider = self._providers[key.node]
        try:
            with self._figures.call("delete_pod"):
                provider.delete_pod(copy.deepcopy(pod))
        except Exception as error:
            if is_not_found(error):
                return False
            if event_target is not None:
                self._recorder.event(event_target, "Warning", "ProviderDeleteFailed", str(error))
            raise
        if event_target is not None:
            self._tell_success(provider, event_target, "delete")
            if not isinstance(provider, PodNotifier):
                self._polling.deleted(event_target, provider, self._notifier(key.node))
        return True

    def _present(self, key: PodKey) -> JsonObject | None:
        try:
            with self._figures.call("get_pod"):
                return self._providers[key.node].get_pod(key.namespace, key.name)
        except Exception as error:
            if not is_not_found(error):
                raise
            return None

    def _remove(self, item: tuple[PodKey, str]) -> None:
        key, uid = item
        pod = self._pod(key)
        if pod is None or objects.uid(pod) != uid or not objects.is_deleting(pod):
            return
        if is_running(pod):
            log.warning("%s is taken away while its status says that a container runs", key)
        with contextlib.suppress(NotFound, Conflict):  # it is gone, or another one has its name
            self._client.delete(POD, key.name, key.namespace, grace_s=0, uid=uid)

    # ------------------------------------------------------------------ from the provider

    def _notifier(self, node: str) -> Callable[[JsonObject], None]:
        def notify(pod: JsonObject) -> None:
            key, said = PodKey(node, objects.namespace(pod), objects.name(pod)), _said(pod)
            with self._lock:
                if self._reported.get(key) == said:
                    return
                self._reported[key] = said
            self._statuses.add(key)

        return notify

    def report(self, key: PodKey) -> None:
        """Write what the provider told last of one Pod; raises as the API does."""
        with self._lock:
            said = self._reported.get(key)
        reported: JsonObject | None = orjson.loads(said) if said is not None else None
        pod = self._pod(key)
        if reported is None or pod is None or objects.uid(reported) not in {"", objects.uid(pod)}:
            with self._lock:
                if self._reported.get(key) is said:
                    self._reported.pop(key, None)
            return
        if is_over(pod):
            return
        if objects.is_deleting(reported) and not objects.is_deleting(pod):
            self._client.delete(POD, key.name, key.namespace, uid=objects.uid(pod))
        if not reported.get("status"):
            return
        status = completed_status(pod, reported["status"])
        if status != objects.status(pod):
            self._write(pod, status)

    def _write_failed(self, pod: JsonObject, error: Exception) -> None:
        try:
            self._write(pod, failed_status(pod, error, rfc3339(self._clock.now())))
        except (StatusError, TemporaryError) as refused:
            log.warning("the status of %s cannot be written: %s", objects.key(pod), refused)

    def _write(self, pod: JsonObject, status: JsonObject) -> None:
        """Replace the status whatever it is now: nobody else writes it, and uid says which Pod is meant.

        What else a Pod says is not sent along: a server takes nothing but the status.
        """
        meta = {field: pod["metadata"][field] for field in ("namespace", "name", "uid")}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}
        with contextlib.suppress(NotFound, Conflict):  # as above: the copy is about to show it
            self._client.update(POD, body, subresource="status")

    # ------------------------------------------------------------------ parts

    def _pod(self, key: PodKey) -> JsonObject | None:
        pod = self.informer.get(key.namespace, key.name)
        return pod if pod is not None and by_node(pod) == key.node else None

    def _known_of(self, key: PodKey) -> ProviderRecord:
        with self._lock:
            return self._known.get(key, ProviderRecord())

    def _remember(self, key: PodKey, known: ProviderRecord) -> None:
        with self._lock:
            self._known[key] = known

    def _handed_over(self, node: str) -> list[JsonObject]:
        """Return the Pods of ``node`` that its provider was given: only these can be lost there."""
        pods = self.pods_of(node)
        with self._lock:
            known = [self._known.get(_key(pod), ProviderRecord()) for pod in pods]
            given = {objects.uid(each.used or {}) for each in known if not each.refused}
        return [pod for pod in pods if objects.uid(pod) in given]

    def _tell_success(self, provider: Provider, pod: JsonObject, called: str) -> None:
        if provider.tells_success:
            text = f"{called.title()} pod in provider successfully"
            self._recorder.event(pod, "Normal", f"Provider{called.title()}Success", text)


def _said(pod: JsonObject) -> bytes:
    """Return what counts of a Pod that a provider reports: whose status it is, whether it ends, and the status."""
    meta = {field: value for field in ("uid", "deletionTimestamp") if (value := objects.metadata(pod).get(field))}
    return memoryview(
        orjson.dumps({"metadata": meta, "status": objects.status(pod)}, option=orjson.OPT_SORT_KEYS)
    ).tobytes()


def _key(pod: JsonObject) -> PodKey:
    return PodKey(by_node(pod), objects.namespace(pod), objects.name(pod))
