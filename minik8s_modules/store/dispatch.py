"""Whom the cache tells of its events: its subscribers by resource, each event once and in order.

The cache calls ``publish``, ``join`` and ``end_all`` under its lock, in the thread of whoever has made an event known.
So a callback neither blocks nor asks the cache; what there is to do is left to a thread of the subscriber's own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

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

    def cancel(self) -> None:
        """Stop the callbacks (one may still be running); may be called again."""
        self.active = False
        self._dispatcher.leave(self)

    def progress(self) -> int:
        """Return a revision up to which every event has been handed to the callback; it never goes back."""
        if self.active:
            self._told = max(self._told, self._dispatcher.progress)
        return self._told

    def offer(self, event: CacheEvent) -> None:
        """Call the callback if the event is wanted; a callback that raises ends the subscription."""
        if not self.active or event.revision <= self._after or not event.key.startswith(self.prefix):
            return
        try:
            self._callback(event)
        except Exception:  # whoever writes tells all subscribers: one must neither end that nor be the writer's trouble
            log.exception("a subscriber of %s failed and is cut off", self.prefix)
            self.end()

    def end(self) -> None:
        """Cut the subscriber off and tell it."""
        was_active = self.active
        self.cancel()
        if was_active and self._on_end:
            self._on_end()


class Dispatcher:
    """The subscriptions; ``progress`` is a revision up to which all of them have been given every event."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.progress = 0
        self._subscriptions: dict[str, tuple[Subscription, ...]] = {}  # exchanged, never changed
        self._exchanging = threading.Lock()

    def publish(self, events: Iterable[CacheEvent], revision: int) -> None:
        """Tell of events; with them everything up to ``revision`` is told."""
        for event in events:
            for subscription in self._subscriptions.get(resource_of(self._root, event.key), ()):
                subscription.offer(event)
        self.progress = revision

    def join(self, subscription: Subscription, resource: str, backlog: Iterable[CacheEvent]) -> None:
        """Take a new subscriber, once it has been told of the events it missed."""
        for event in backlog:
            subscription.offer(event)
        with self._exchanging:
            if subscription.active:
                joined = (*self._subscriptions.get(resource, ()), subscription)
                self._subscriptions = {**self._subscriptions, resource: joined}

    def leave(self, subscription: Subscription) -> None:
        """Forget a subscriber; from any thread."""
        with self._exchanging:
            left = {
                resource: tuple(each for each in found if each is not subscription)
                for resource, found in self._subscriptions.items()
            }
            self._subscriptions = {resource: found for resource, found in left.items() if found}

    def end_all(self) -> None:
        """Cut all present subscribers off; revisions may start again."""
        for subscription in [each for found in self._subscriptions.values() for each in found]:
            subscription.end()
        self.progress = 0
