"""One thread that hands the cache's events to its subscribers, each event once and in order.

Everything goes through one queue: batches of events, subscribers that come (with the events they missed) and
go. Events of resources to which nobody subscribes wake nobody.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from minik8s_modules.store.cached import CacheEvent, resource_of

log = logging.getLogger(__name__)


class Subscription:
    """A subscriber's place; made by ``WatchCache.subscribe``."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        prefix: str,
        after: int,
        callback: Callable[[CacheEvent], None],
        on_end: Callable[[], None] | None,
    ) -> None:
        self.prefix = prefix
        self.active = True
        self._dispatcher = dispatcher
        self._after = self._told = after
        self._callback = callback
        self._on_end = on_end
        self._joined = False

    def cancel(self) -> None:
        """Stop the callbacks (one may still be running in the dispatcher); may be called again."""
        self.active = False
        self._dispatcher.leave(self)

    def progress(self) -> int:
        """Return a revision up to which every event has been handed to the callback; it never goes back."""
        if self._joined:
            self._told = max(self._told, self._dispatcher.progress)
        return self._told

    def join(self, backlog: Iterable[CacheEvent]) -> None:
        """Hand over the missed events; the dispatcher calls this."""
        for event in backlog:
            self.offer(event)
        self._joined = True

    def offer(self, event: CacheEvent) -> None:
        """Call the callback if the event is wanted; a callback that raises ends the subscription."""
        if not self.active or event.revision <= self._after or not event.key.startswith(self.prefix):
            return
        try:
            self._callback(event)
        except Exception:  # the dispatcher serves all subscribers, one must not end it
            log.exception("a subscriber of %s failed and is cut off", self.prefix)
            self.end()

    def end(self) -> None:
        """Cut the subscriber off and tell it."""
        was_active = self.active
        self.cancel()
        if was_active and self._on_end:
            self._on_end()


class _Batch(NamedTuple):
    events: list[CacheEvent]
    revision: int


class _Join(NamedTuple):
    subscription: Subscription
    resource: str
    backlog: list[CacheEvent]


class _Leave(NamedTuple):
    subscription: Subscription


class _EndAll(NamedTuple):
    pass


class Dispatcher:
    """The thread, its queue and the subscriptions; those are touched by the thread alone."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._published = self._delivered = 0  # the latest revisions told of, and handed over
        self._batches_queued = self._batches_done = 0
        self._counting = threading.Lock()  # of these four: between two of them, progress would go back
        self._wanted: Counter[str] = Counter()  # how many subscribe to a resource, those in the queue included
        self._wanting = threading.Lock()
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._queue: queue.SimpleQueue[_Batch | _Join | _Leave | _EndAll | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cache-dispatcher", daemon=True)

    @property
    def progress(self) -> int:
        """A revision up to which every joined subscriber has been given all events."""
        with self._counting:
            return self._published if self._batches_done == self._batches_queued else self._delivered

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Deliver what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def publish(self, events: list[CacheEvent], revision: int) -> None:
        """Queue events that somebody wants; with them everything up to ``revision`` is told.

        As ``join``, for one thread at a time.
        """
        wanted = self._wanted
        wakes = any(resource_of(self._root, event.key) in wanted for event in events)
        with self._counting:
            if wakes and self._batches_done == self._batches_queued:  # nothing is on its way that would change it, too
                self._delivered = self._published
            self._batches_queued += wakes
            self._published = revision
        if wakes:
            self._queue.put(_Batch(events, revision))

    def join(self, subscription: Subscription, resource: str, backlog: list[CacheEvent]) -> None:
        """Queue a new subscriber with the events it missed."""
        with self._wanting:
            self._wanted[resource] += 1
        self._queue.put(_Join(subscription, resource, backlog))

    def leave(self, subscription: Subscription) -> None:
        """Queue the removal of a subscriber."""
        self._queue.put(_Leave(subscription))

    def end_all(self) -> None:
        """Cut all present subscribers off; revisions may start again."""
        with self._counting:
            self._published = self._delivered = 0
        self._queue.put(_EndAll())

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            match item:
                case _Batch():
                    self._deliver(item)
                case _Join(subscription, resource, backlog):
                    subscription.join(backlog)
                    self._subscriptions.setdefault(resource, []).append(subscription)
                case _Leave(subscription):
                    self._drop(subscription)
                case _EndAll():
                    self._end_all()

    def _deliver(self, batch: _Batch) -> None:
        for event in batch.events:
            for subscription in self._subscriptions.get(resource_of(self._root, event.key), ()):
                subscription.offer(event)
        with self._counting:
            self._delivered = batch.revision
            self._batches_done += 1

    def _drop(self, subscription: Subscription) -> None:
        for resource, subscriptions in self._subscriptions.items():
            if subscription in subscriptions:
                subscriptions.remove(subscription)
                with self._wanting:
                    self._wanted[resource] -= 1
                    if not self._wanted[resource]:
                        del self._wanted[resource]

    def _end_all(self) -> None:
        with self._counting:
            self._delivered = 0  # what was queued before has set it since
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.end()
