"""What every controller is made of: a queue of keys, informers that fill it, workers that empty it.

    informers ─handlers: keys only─▶ queue ─▶ worker: sync(key), reads the copies, decides, acts

``Context`` is what the process gives to its controllers; ``Loop`` is one controller's own. Workers begin when every
informer the loop watches holds its first list, so that nothing is decided on half a picture.
"""

from __future__ import annotations

import random as random_module
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import LabelSelector
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import BY_NAMESPACE, Informers, wait_synced
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.runtime.workers import Workers

# requests under way at once; more only wait in the API server, whose interpreter runs one at a time
REQUESTS_AT_ONCE = 8

KeysOf = Callable[[JsonObject | None, JsonObject | None], Iterable[Key]]
SelectorOf = Callable[[JsonObject], LabelSelector]


@dataclass(frozen=True)
class Context:
    """What the controllers of one process share while it leads.

    Attributes:
        random: returns a number in [0, 1); names and jitter come from it.
        pool: runs requests of one batch side by side.
    """

    client: Api
    recorder: EventRecorder
    informers: Informers
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = random_module.random
    metrics: QueueMetrics = field(default_factory=lambda: QueueMetrics(Registry()))
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="requests")
    )


class Loop:
    """One controller's queue, workers and handlers.

    Args:
        context: of the process.
        name: of the queue, in metrics and logs.
        sync: makes what one key names as it should be; raising means "again, later".
        workers: threads; one key is never in two of them.
    """

    def __init__(self, context: Context, name: str, sync: Callable[[Key], None], workers: int = 2) -> None:
        self._context = context
        self._informers: list[Informer] = []
        self._stop = threading.Event()
        counts = context.metrics.queue(name)
        self._queue: WorkQueue[Key] = WorkQueue(context.clock, random=context.random, counts=counts)
        self._sync = sync
        self._workers = Workers(self._queue, self._sync_unless_over, name, workers)
        self._starter = threading.Thread(target=self._begin, name=f"{name}-start", daemon=True)

    def add(self, key: Key) -> None:
        """Sync ``key`` soon."""
        self._queue.add(key)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Sync ``key`` in ``delay_s`` seconds."""
        self._queue.add_after(key, delay_s)

    def watch(self, kind: Kind, keys_of: KeysOf, *indexes: str) -> Informer:
        """Queue ``keys_of(old, new)`` at every change of a ``kind``; return its informer, kept with ``indexes``."""
        informer = self.reads(kind, *indexes)

        def handler(old: JsonObject | None, new: JsonObject | None) -> None:
            for key in keys_of(old, new):
                self.add(key)

        informer.add_handler(handler)
        return informer

    def reads(self, kind: Kind, *indexes: str) -> Informer:
        """Return the informer of ``kind``, which is waited for before the first sync; its changes queue nothing."""
        informer = self._context.informers.of(kind, *indexes)
        self._informers.append(informer)
        return informer

    def watch_own(self, kind: Kind, keys_of: KeysOf | None = None) -> Informer:
        """Queue each changed object of ``kind`` itself; ``keys_of`` may leave out such as nothing is to be done for."""
        return self.watch(kind, keys_of or own_keys, BY_NAMESPACE)

    def watch_owned(self, kind: Kind, owners: Informer, owner_kind: Kind, selector_of: SelectorOf) -> Informer:
        """Queue the controlling ``owner_kind`` of each changed ``kind``; for one without, all that select it."""
        return self.watch(kind, owner_keys(owners, owner_kind, selector_of), "controller")

    def start(self) -> None:
        """Begin when the informers are complete; returns at once."""
        self._starter.start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        self._stop.set()
        self._workers.stop(drop=True)

    def _sync_unless_over(self, key: Key) -> None:
        # who has lost the lease leaves what waits to the next leader
        if not self._stop.is_set():
            self._sync(key)

    def _begin(self) -> None:
        if wait_synced(self._informers, self._stop):
            self._workers.start()


class Looping:
    """What lives as long as its loop: a controller makes one in ``_loop`` and has nothing else to start."""

    _loop: Loop

    def start(self) -> None:
        """Begin when the copies are complete; returns at once."""
        self._loop.start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        self._loop.stop()


def own_keys(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the key of the object that changed."""
    return [objects.key(obj) for obj in (new if new is not None else old,) if obj is not None]


def owner_keys(owners: Informer, owner_kind: Kind, selector_of: SelectorOf) -> KeysOf:
    """Return a function that finds who answers for a changed object: its owners before and after, or its selectors."""

    def keys_of(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        found = {key for obj in (old, new) if obj is not None for key in _controller_key(owners, owner_kind, obj)}
        if new is not None and objects.controller_of(new) is None and not objects.is_deleting(new):
            found |= {objects.key(owner) for owner in _selecting(owners, new, selector_of)}
        return found

    return keys_of


def _controller_key(owners: Informer, owner_kind: Kind, obj: JsonObject) -> Iterable[Key]:
    reference = objects.controller_of(obj)
    if reference is None or reference.get("kind") != owner_kind.kind:
        return []
    owner = owners.get(objects.namespace(obj), str(reference.get("name", "")))
    return [objects.key(owner)] if owner is not None and objects.uid(owner) == reference.get("uid") else []


def _selecting(owners: Informer, obj: JsonObject, selector_of: SelectorOf) -> Iterable[JsonObject]:
    labels = objects.labels(obj)
    return [
        owner
        for owner in owners.by_index(BY_NAMESPACE, objects.namespace(obj))
        if not (selector := selector_of(owner)).empty and selector.matches(labels)
    ]
