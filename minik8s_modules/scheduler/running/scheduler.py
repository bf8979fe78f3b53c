"""The scheduler: pods come by watch, decisions go out as bindings, refusals as conditions and Events.

One thread decides, pod after pod, so that each decision sees the ones before; a pod that has its node counts there at
once and goes on in a binding cycle of its own (``binding.py``). Everything written can be written again: a scheduler
that is killed anywhere is followed by one that takes up every pod that has no node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import NAMESPACE, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import Token
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import Decision, decide
from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.deciding.profile import PluginFailed, PluginHangs, Workbench
from minik8s_modules.scheduler.framework.infos import PodInfo, is_pending, scheduler_of, slim, takes_room
from minik8s_modules.scheduler.framework.points import Event, PreEnqueuePlugin, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import Code, Status
from minik8s_modules.scheduler.profiles.building import bench, benches
from minik8s_modules.scheduler.profiles.configuration import Settings, policy_settings
from minik8s_modules.scheduler.queueing.queue import Entry, SchedulingQueue
from minik8s_modules.scheduler.running.binding import Binder
from minik8s_modules.scheduler.running.effects import FAILED, GATED, Effects
from minik8s_modules.scheduler.running.events import assigned_pod_events, changed_itself, node_events
from minik8s_modules.scheduler.running.metrics import Counts
from minik8s_modules.scheduler.running.preempting import Preemption
from minik8s_modules.scheduler.running.sources import Sources, storage_informers
from minik8s_modules.scheduler.running.waiting import WaitingPods

log = logging.getLogger(__name__)

_TICK_S = 0.5
# where no pod is tried or bound, only those that fit nowhere are looked at, after minutes
_REST_S = 5.0


class Scheduler:
    """Gives every pending pod of its profiles a node, while it leads."""

    def __init__(
        self,
        client: Api,
        recorder: EventRecorder,
        clock: Clock | None = None,
        settings: Settings | None = None,
        guard: Guard | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._client = client
        self._settings = settings or policy_settings()
        self._benches = benches(self._settings, client)
        self._cache, self._snapshot = ClusterCache(), Snapshot()
        self._waiting = WaitingPods()
        self._guard, self._counts = guard or Guard(), counts or Counts()
        self._effects = Effects(client, recorder, self._clock)
        self._lock = threading.Lock()
        self._queue: SchedulingQueue | None = None
        self._binder: Binder | None = None
        self._preemption: Preemption | None = None
        for one in self._benches.values():
            one.waits = self._waiting.list
        self._pods = Informer(client, POD, clock=self._clock, transform=kept)
        self._nodes = Informer(client, NODE, clock=self._clock, transform=_without_managers)
        self._namespaces = Informer(client, NAMESPACE, clock=self._clock)
        self._sources = Sources(client, self._cache, self._clock)
        self._storage = storage_informers(client, self._cache.storage, self._clock, self._move)
        self._nodes.add_handler(self._on_node)
        self._pods.add_handler(self._on_pod)
        self._namespaces.add_handler(self._on_namespace)

    @property
    def _informers(self) -> tuple[Informer, ...]:
        return (*self._storage, self._namespaces, self._nodes, self._pods)

    def start(self) -> None:
        """Follow nodes and pods, whether leading or not, so that leading begins at once."""
        self._sources.start()
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End following."""
        for informer in reversed(self._informers):
            informer.stop()
        self._sources.stop()

    def lead(self, _token: Token, lost: threading.Event) -> None:
        """Schedule until ``lost`` is set."""
        while not all(informer.wait_synced(1.0) for informer in self._informers):
            if lost.is_set():
                return
        queue = self._new_queue()
        binder = Binder(self._cache, queue, self._effects, self._waiting, self._guard, self._counts, self._clock)
        preemption = Preemption(self._cache, queue, self._effects, self._waiting)
        with self._lock:
            self._queue, self._binder, self._preemption = queue, binder, preemption
        self._counts.watch(queue)
        for pod in sorted(self._pods.list(), key=_age):
            try:
                self._enqueue(pod)
            except Exception:  # one pod that cannot be read must not keep the others from being scheduled
                log.exception("%s is not scheduled", objects.key(pod))
        thread = threading.Thread(target=self._run, args=(queue, binder), name="scheduler", daemon=True)
        thread.start()
        lost.wait()
        with self._lock:
            self._queue = None
        queue.close()
        # a plugin of others may hold the thread for its whole limit
        thread.join(self._guard.limit_s + 5.0)
        preemption.stop()
        binder.stop()

    def _new_queue(self) -> SchedulingQueue:
        first = next(iter(self._benches.values())).profile
        assert first is not None  # noqa: S101 - set when the profile is made
        less, backoff_s, on_place = first.queue_sort.less, self._settings.backoff_s, self._counts.queued
        return SchedulingQueue(self._clock, less, self._gate, self._wakes, backoff_s, on_place)

    def _run(self, queue: SchedulingQueue, binder: Binder) -> None:
        while self._queue is queue:
            entry = queue.pop(_TICK_S if queue.is_busy() else _REST_S)
            try:
                self._waiting.expire(self._clock.monotonic())
                binder.resume(self._clock.monotonic())
                queue.flush()
                if entry is not None:
                    self._schedule(entry, queue, binder)
            except (TemporaryError, StatusError) as error:
                log.info("scheduling %s: %s; again after a while", entry and entry.key, error)
                if entry is not None:
                    queue.again(entry)
            except Exception:  # the loop's edge
                log.exception("scheduling %s failed", entry and entry.key)
                if entry is not None:
                    queue.again(entry)

    def _schedule(self, entry: Entry, queue: SchedulingQueue, binder: Binder) -> None:
        """Decide for one pod and act: bind it, or say why it waits."""
        pod = self._pods.get(*entry.key)
        if pod is None or not is_pending(pod, scheduler_of(pod)) or self._cache.is_assumed(PodInfo.of(pod)):
            queue.placed(entry)
            return
        began = self._clock.monotonic()
        entry.pod = PodInfo.of(pod)
        made = self._benches[scheduler_of(pod)]
        if (why := self._kept_back(entry.pod, foreign=True)) is not None:
            # being kept back is no attempt, and must not lengthen the back-off
            entry.attempts -= 1
            queue.refuse(entry, frozenset({why.plugin}), "gated")
            self._tell_gated(pod, why.message)
            return
        try:
            decision = self._decide(pod, made)
        except PluginFailed as failure:
            self._counts.attempt("error", scheduler_of(pod), self._clock.monotonic() - began)
            queue.again(entry)
            self._effects.refuse(pod, str(failure), reason=FAILED)
            return
        result = "scheduled" if decision.node else "unschedulable"
        self._counts.attempt(result, scheduler_of(pod), self._clock.monotonic() - began)
        if decision.node:
            # equal nodes take turns (docs/explanation/decisions/controllers.md)
            self._snapshot.turn += 1
            # assumed before it is bound: the next pod is decided on at once, and must not get the same room
            queue.freed(entry.pod, self._cache.assume(entry.pod, decision.node))
            binder.begin(entry, decision.node, decision.state, made)
            self._end_wait_if_gone(pod)
        else:
            self._refuse(entry, pod, decision, queue)

    def _end_wait_if_gone(self, pod: JsonObject) -> None:
        """End the wait of a pod that went before it began to wait: no watch event will tell any more."""
        now = self._pods.get(*objects.key(pod))
        if now is None or objects.uid(now) != objects.uid(pod) or not is_pending(now, scheduler_of(now)):
            self._end_wait(pod)

    def _end_wait(self, pod: JsonObject) -> None:
        waiting = self._waiting.get(pod)
        if waiting is not None:
            waiting.reject("", "it has gone")

    def _decide(self, pod: JsonObject, made: Workbench) -> Decision:
        snapshot = self._cache.update(self._snapshot)
        foreign = made.profile.foreign if made.profile is not None else frozenset()
        if not foreign:
            return decide(pod, snapshot, made)
        try:
            return self._guard.call(lambda: decide(pod, snapshot, made), lambda: made.running, foreign)
        except PluginHangs:
            self._start_anew(scheduler_of(pod))
            raise

    def _start_anew(self, name: str) -> None:
        """Give up what a call that never returned may still be reading."""
        settings = next(one for one in self._settings.profiles if one.name == name)
        self._benches[name] = bench(settings, self._client)
        self._benches[name].waits = self._waiting.list
        turn, self._snapshot = self._snapshot.turn, Snapshot()
        self._snapshot.turn = turn
        self._cache.renew()

    def _refuse(self, entry: Entry, pod: JsonObject, decision: Decision, queue: SchedulingQueue) -> None:
        """Write why the pod waits; send away those that are in its way. It is queued first: nothing may lose it."""
        found, preemption = decision.nomination, self._preemption
        if found is not None:
            queue.freed(entry.pod, self._cache.nominate(entry.pod, found.node))
        if found is not None and found.node and preemption is not None:
            self._counts.preemption(len(found.victims))
            preemption.begin(entry, pod, decision, found)
            return
        queue.refuse(entry, decision.plugins)
        try:
            self._effects.refuse(pod, decision.full_message, nominated=None if found is None else found.node)
        except (TemporaryError, StatusError):
            queue.activate(entry.key)
            raise

    def _gate(self, pod: PodInfo) -> str:
        why = self._kept_back(pod, foreign=False)
        return why.message if why is not None else ""

    def _kept_back(self, pod: PodInfo, *, foreign: bool) -> Status | None:
        """Return the refusal of a PreEnqueue plugin; those in tree are asked by the queue, others hold up this thread.

        They would hold up informers and the queue instead.
        """
        profile = self._benches[scheduler_of(pod.pod)].profile
        if profile is None:
            return None
        for plugin in profile.pre_enqueue:
            if (plugin.name in profile.foreign) is not foreign:
                continue
            try:
                why = self._pre_enqueue(plugin, pod, foreign=foreign)
                if why is not None and why.code is not Code.SUCCESS:
                    return Status(Code.UNRESOLVABLE, (why.message or f"kept back by {plugin.name}",), plugin.name)
            except PluginFailed as failure:
                return Status(Code.ERROR, (str(failure),), plugin.name)
            except Exception as error:  # noqa: BLE001 - a plugin's mistake is told, and holds this pod alone
                failed = PluginFailed(plugin.name, "PreEnqueue", f"{type(error).__name__}: {error}")
                return Status(Code.ERROR, (str(failed),), plugin.name)
        return None

    def _pre_enqueue(self, plugin: PreEnqueuePlugin, pod: PodInfo, *, foreign: bool) -> Status | None:
        if not foreign:
            return plugin.pre_enqueue(pod)
        return self._guard.call(lambda: plugin.pre_enqueue(pod), lambda: (plugin.name, "PreEnqueue"), [plugin.name])

    def _wakes(self, pod: PodInfo, plugin: str) -> Sequence[Wake]:
        profile = self._benches[scheduler_of(pod.pod)].profile
        return profile.wakes(plugin) if profile is not None else ()

    def _enqueue(self, pod: JsonObject) -> None:
        queue = self._queue
        if queue is None or scheduler_of(pod) not in self._benches or not is_pending(pod, scheduler_of(pod)):
            return
        why = queue.add(PodInfo.of(pod))
        if why:
            self._tell_gated(pod, why)

    def _tell_gated(self, pod: JsonObject, why: str) -> None:
        """Write why a pod is not tried, in a thread of its own: handlers of informers must not wait for the API."""
        if self._binder is not None:
            self._binder.run(lambda: self._effects.refuse(pod, why, reason=GATED))

    def _on_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._cache.update_node(old, new)
        for event in node_events(old, new):
            self._move(event, old, new)

    def _on_namespace(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._cache.update_namespace(old, new)
        if old is None or new is None or objects.labels(old) != objects.labels(new):
            self._move(Event("Namespace", "Add" if old is None else "Update"), old, new)

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        freed = self._cache.update_pod(old, new)
        before = old if old is not None and takes_room(old) else None
        after = new if new is not None and takes_room(new) else None
        if before is not None or after is not None:
            for event in assigned_pod_events(before, after):
                self._move(event, before, after)
        queue = self._queue
        if before is None and queue is not None and freed:
            queue.freed(PodInfo.of(old or new or {}), freed)
        self._on_pending(old, new)

    def _on_pending(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a pod's coming, change or going into the queue."""
        queue = self._queue
        if queue is None:
            return
        if new is None or not is_pending(new, scheduler_of(new)):
            self._end_wait(old or {})
            queue.delete(objects.key(new or old or {}))
        elif old is None or objects.uid(old) != objects.uid(new):
            self._end_wait(old or {})
            self._enqueue(new)
        elif changed_itself(old, new) and scheduler_of(new) in self._benches:
            why = queue.update(PodInfo.of(new))
            if why:
                self._tell_gated(new, why)

    def _move(self, event: Event, old: JsonObject | None, new: JsonObject | None) -> None:
        queue = self._queue
        if queue is not None:
            queue.move(event, old, new)


def kept(pod: JsonObject) -> JsonObject:
    """Return what the scheduler keeps of a pod."""
    return slim(pod) if objects.spec(pod).get("nodeName") else _without_managers(pod)


def _without_managers(obj: JsonObject) -> JsonObject:
    """Return the object without its managedFields, which nobody here reads."""
    meta = objects.metadata(obj)
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _age(pod: JsonObject) -> tuple[str, objects.Key]:
    return (str(objects.metadata(pod).get("creationTimestamp") or ""), objects.key(pod))
