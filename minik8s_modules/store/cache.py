"""Every object in memory, fed by one watch of the store, for all lists, gets and watches of an API server.

For a caller::

    cache = WatchCache(store)
    cache.start()                                   # after a fork, if there is one
    cache.wait_ready(30.0)                          # list, get and subscribe raise StoreUnavailable before
    revision = store.create(key, value)
    cache.wait_for(revision, 5.0)                   # read your writes
    items, revision = cache.list("/registry/core/pods/default/")       # CachedObjects, ordered by key
    subscription = cache.subscribe("/registry/core/pods/", revision, on_event)   # on_event(CacheEvent)
    subscription.progress()                         # a bookmark's revision for this subscriber; cancel() ends it

A prefix names at least group and plural. Bytes carry ``metadata.resourceVersion``; they are made once per event.
All readers share them, and objects (``CachedObject.object``), too: never change them.

Two threads. The *reader* loads all objects, then applies the watch's batches under the lock and calls the
subscribers, so a callback must not block, nor ask the cache, and never runs in parallel with another. A subscriber
joins under the lock, too, with the ring's events it missed; that is why it sees each event once and in order. Each
resource has a ring of its latest events; older resumptions answer Expired. The other thread lets events go that are
some minutes old, so that what a large change has left is not held for months.

Who has written something need not wait until the watch brings it (``wrote``): what is next in the order of revisions
is applied in the writer's own thread, what comes later than that as soon as everything before it is there. The watch
brings it as well and is passed over then. While the reader loads, writers wait for it.

With a ``history``, the first load is of so many revisions ago, and the watch brings what came since, before anybody is
answered: so whoever watched the server before its restart resumes, where else all of them would list at once.

The watch covers the whole store, not only the prefix: who waits for the store's latest revision never waits in vain.
When the store has forgotten the position, the reader loads again and applies the difference: nothing is lost or twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from minik8s_modules.base import heap
from minik8s_modules.base.backoff import RECONNECT
from minik8s_modules.store.cached import (
    CachedObject,
    CacheEvent,
    CacheList,
    CachePage,
    Resource,
    difference,
    made_of,
    resource_of,
)
from minik8s_modules.store.dispatch import Dispatcher, Subscription
from minik8s_modules.store.errors import Compacted, Expired, StoreUnavailable
from minik8s_modules.store.interface import Change, Page, Store, Watch
from minik8s_modules.store.resting import Rest
from minik8s_modules.store.waiters import Waiter, Waiters

__all__ = ["CacheEvent", "CacheList", "CachedObject", "Subscription", "WatchCache"]

log = logging.getLogger(__name__)

LOAD_PAGE = 2_000  # entries a request; 2,000 x 1.6 KB stay far below a second of etcd's time
RING_EVENTS = 5_000  # per resource, and at most RING_BYTES of them
HISTORY = 10_000  # revisions: a bookmark is at most a minute old, in which a busy cluster writes as much
_PARTS = (1, 4, 16, 64)  # of the history, if the store has forgotten more
AGE_S = 120.0  # events stay for as long, and at most twice as long (docs/explanation/decisions/store.md)
HISTORY_S = 10.0  # it is not waited for longer: then all clients list again


class WatchCache:
    """See the top of this file.

    Args:
        store: where the objects are.
        prefix: everything below it is kept.
        ring_events: how many events per resource a resumption may go back, if they fit into ``RING_BYTES``.
        history: how many revisions before the first load are known, too, if the store has not forgotten them.
    """

    def __init__(
        self, store: Store, prefix: str = "/registry/", *, ring_events: int = RING_EVENTS, history: int = 0
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._ring_events = ring_events
        self._history = history
        self._lock = threading.Lock()
        self._rest = Rest()
        self._waiters = Waiters(self._rest.want)
        self._resources: dict[str, Resource] = {}
        self._dispatcher = Dispatcher(prefix)
        self._following = False  # the objects are those of the revision, not being loaded
        self._ahead: dict[int, tuple[str, CachedObject | None]] = {}  # writers' own, of revisions to come
        self._floor = 0
        self._revision = 0
        self._needed = 1  # nothing is answered before this revision is shown
        self._loaded = threading.Event()
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._reader = threading.Thread(target=self._read, name="cache-reader", daemon=True)
        self._aging = threading.Thread(target=self._age, name="cache-aging", daemon=True)

    def start(self) -> None:
        """Start loading; returns at once."""
        self._reader.start()
        self._aging.start()

    def stop(self) -> None:
        """End both threads; the store stays open."""
        self._stopping.set()
        with self._lock:
            if self._watch:
                self._watch.cancel()
            self._rest.want()
        self._reader.join()
        self._aging.join()

    def ready(self) -> bool:
        """Return whether the first load is done."""
        return self._loaded.is_set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Return whether the first load was done within ``timeout_s`` seconds."""
        return self._loaded.wait(timeout_s)

    @property
    def revision(self) -> int:
        """The revision that lists and gets show; 0 before the first load."""
        return self._revision if self._loaded.is_set() else 0

    def settle(self, revision: int, timeout_s: float) -> bool:
        """Do as ``wait_for``, for the caller's own write, which the watch shows."""
        shown = self.wait_for(revision, timeout_s)
        with self._lock:
            self._rest.claimed(revision)
        return shown

    def wait_for(self, revision: int, timeout_s: float) -> bool:
        """Return whether the cache showed ``revision`` within ``timeout_s`` seconds."""
        if self._revision >= revision:
            return True
        with self._lock:
            if self._revision >= revision:
                return True
            waiter = self._waiters.join(revision)
        return self._waited(waiter, revision, timeout_s)

    def wrote(self, key: str, item: CachedObject | None, revision: int, timeout_s: float) -> bool:
        """Show the caller's own write; return whether the cache showed it within ``timeout_s`` seconds.

        Args:
            key: of the object that was written.
            item: as the watch would make it of the stored bytes; None if the object was deleted.
            revision: of the write, which changed nothing else.
            timeout_s: how long to wait for what was written before.
        """
        with self._lock:
            if self._following and revision > self._revision:
                self._ahead[revision] = (key, item)
                self._catch_up()
            self._rest.claimed(revision)
            if self._revision >= revision:
                return True
            waiter = self._waiters.join(revision)
        return self._waited(waiter, revision, timeout_s)

    def _waited(self, waiter: Waiter, revision: int, timeout_s: float) -> bool:
        if waiter.wait(timeout_s):
            return True
        with self._lock:
            self._waiters.leave(waiter)
        return self._revision >= revision

    def progress(self) -> int:
        """Return the revision up to which all joined subscribers have been given every event."""
        return self._dispatcher.progress

    def list(self, prefix: str) -> CacheList:
        """Return the objects below ``prefix``, ordered by key."""
        name = resource_of(self._prefix, prefix)
        with self._lock:
            self._check_ready()
            resource = self._resources.get(name)
            return CacheList(resource.below(prefix) if resource else [], self._revision)

    def page(self, prefix: str, revision: int, start: str, limit: int) -> CachePage | None:
        """Return what was below ``prefix`` from the key ``start`` on at ``revision``; None: ask the store."""
        name = resource_of(self._prefix, prefix)
        with self._lock:
            self._check_ready()
            resource = self._resources.get(name)
            if not (resource.floor if resource else self._floor) <= revision <= self._revision:
                return None
            return resource.page(prefix, revision, start, limit) if resource else CachePage([], 0)

    def get(self, key: str) -> CachedObject | None:
        """Return the object at ``key``, or None."""
        self._check_ready()
        resource = self._resources.get(resource_of(self._prefix, key))
        return resource.objects.get(key) if resource else None

    def changes(self, prefix: str) -> int:
        """Return a number that rises whenever an object of the resource ``prefix`` changes.

        Read it before the objects: what is made of them holds while the number stays.
        """
        resource = self._resources.get(prefix)
        return resource.changes if resource else 0

    def subscribe(
        self,
        prefix: str,
        after_revision: int,
        callback: Callable[[CacheEvent], None],
        *,
        on_end: Callable[[], None] | None = None,
    ) -> Subscription:
        """Have ``callback`` called with every event below ``prefix`` after ``after_revision``.

        Args:
            prefix: names at least group and plural.
            after_revision: usually a list's revision; one in the future is waited for.
            callback: called under the cache's lock, in any thread; must not block, nor ask the cache.
            on_end: called so, too, when the cache cuts the subscriber off: its callback raised, or the
                store went back to an earlier revision. It then has to list again.

        Raises:
            Expired: the ring does not reach back to ``after_revision``; list again.
            StoreUnavailable: the cache is not loaded yet.
        """
        name = resource_of(self._prefix, prefix)
        subscription = Subscription(self._dispatcher, prefix, after_revision, callback, on_end)
        with self._lock:
            backlog = self._after(name, after_revision)
            self._dispatcher.join(subscription, name, backlog)
        return subscription

    def history(self, prefix: str, after_revision: int) -> Sequence[CacheEvent]:
        """Return the events below ``prefix`` after ``after_revision``, oldest first.

        Raises:
            Expired: the ring does not reach back to ``after_revision``; list again.
            StoreUnavailable: the cache is not loaded yet.
        """
        with self._lock:
            missed = self._after(resource_of(self._prefix, prefix), after_revision)
        return [event for event in missed if event.key.startswith(prefix)]

    def forget_old(self) -> int:
        """Drop the events that were known at the last call, but for a resource's latest few; return how many."""
        with self._lock:
            return sum(resource.forget_old() for resource in self._resources.values())

    def _age(self) -> None:
        while not self._stopping.wait(AGE_S):
            if self.forget_old():
                heap.give_back()

    def _after(self, name: str, revision: int) -> Sequence[CacheEvent]:
        self._check_ready()
        resource = self._resources.get(name)
        floor = resource.floor if resource else self._floor
        if revision < floor:
            raise Expired(f"the oldest event kept is after revision {floor}, not {revision}")
        return resource.after(revision) if resource else []

    def _check_ready(self) -> None:
        if not self._loaded.is_set():
            raise StoreUnavailable("the cache has not been loaded from etcd yet; try again")

    def _read(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self._load()
                failures = 0
                self._follow()
            except Compacted as error:
                log.warning("loading all objects again: %s", error)
            except StoreUnavailable as error:
                failures += 1
                log.warning("cannot load objects: %s", error)
            except Exception:  # a loop's edge; the load repairs whatever was left half done
                failures += 1
                log.exception("the cache's reader failed and starts again")
            self._stopping.wait(RECONNECT.delay_s(failures))

    def _load(self) -> None:
        with self._lock:
            # while a load is under way, nobody can say which writes it will contain: writers wait for it
            self._following = False
            self._ahead.clear()
        page = self._first_page()
        entries, revision = page.entries, page.revision
        while page.remaining:
            start = entries[-1].key + "\0"
            page = self._store.range(self._prefix, limit=LOAD_PAGE, start=start, revision=revision)
            entries += page.entries
        known = {key: found.revision for part in self._resources.values() for key, found in part.objects.items()}
        self._apply(difference(known, entries, revision), revision, loaded=True)

    def _first_page(self) -> Page:
        """Return the first page of a load: of long ago the first time, where the store still knows it."""
        if self._history and not self._revision:
            latest = self._store.revision()
            for back in (self._history // part for part in _PARTS):
                try:
                    page = self._store.range(self._prefix, limit=LOAD_PAGE, revision=max(1, latest - back))
                except Compacted:
                    continue  # where little is written, five minutes are few revisions
                self._needed = latest
                return page
            log.info("the store has forgotten what was before: all clients list again")
        return self._store.range(self._prefix, limit=LOAD_PAGE)

    def _follow(self) -> None:
        watch = self._store.watch("", self._revision)
        with self._lock:
            self._watch = watch
        if self._stopping.is_set():
            watch.cancel()
        patience = threading.Timer(HISTORY_S, lambda: None if self.ready() else watch.cancel())
        patience.daemon = True
        if not self.ready():
            patience.start()
        try:
            for batch in watch:
                if batch:
                    self._apply(batch, batch[-1].revision)
                elif self._may_rest():
                    self._rest.take()
        finally:
            patience.cancel()
        if not self.ready() and not self._stopping.is_set():
            raise Compacted(f"the history since revision {self._revision} took longer than {HISTORY_S:g} s")

    def _may_rest(self) -> bool:
        with self._lock:
            return not self._stopping.is_set() and self._rest.begin(is_waited_for=self._waiters.some)

    def _apply(self, changes: Sequence[Change], revision: int, *, loaded: bool = False) -> None:
        shown = 0 if loaded else self._revision
        if not loaded and revision <= shown:
            return  # the writers have shown it: most often so, and they are who waits for the lock
        # parsed without the lock, which every list takes
        pairs = [
            (change, made) for change in changes if change.revision > shown for made in made_of(change, self._prefix)
        ]
        with self._lock:
            went_back = loaded and revision < self._revision
            shown = 0 if loaded else self._revision  # writers may have been faster
            if revision > shown:
                new = [pair for pair in pairs if pair[0].revision > shown]
                events = [event for change, made in new for event in self._applied(change.key, change.revision, made)]
                if loaded:
                    self._forget_history(revision)
                    self._following = True
                for change in () if loaded else changes:
                    if change.revision > shown and change.revision not in self._ahead:
                        self._rest.brought(change.revision)
                self._revision = revision
                # a restored store: revisions that subscribers have seen now mean something else
                if went_back:
                    self._dispatcher.end_all()
                self._dispatcher.publish(events, revision)
                self._ahead = {at: own for at, own in self._ahead.items() if at > revision}
                self._catch_up()
                self._waiters.reached(self._revision)
                if self._revision >= self._needed:
                    self._loaded.set()

    def _catch_up(self) -> None:
        """Show the writers' own writes that are next; the caller holds the lock."""
        events: list[CacheEvent] = []
        revision = self._revision
        # without a gap only: a write before it may not have come yet, and a list must not show the later one alone
        while (own := self._ahead.pop(revision + 1, None)) is not None:
            revision += 1
            key, item = own
            events += self._applied(key, revision, item)
        if revision > self._revision:
            self._revision = revision
            self._dispatcher.publish(events, revision)
            self._waiters.reached(revision)

    def _applied(self, key: str, revision: int, made: CachedObject | None) -> Sequence[CacheEvent]:
        name = resource_of(self._prefix, key)
        resource = self._resources.get(name)
        if resource is None:
            resource = self._resources[name] = Resource(self._floor, self._ring_events)
        event = resource.apply(key, revision, made)
        if event is None:
            return []
        resource.remember(event)
        return [event]

    def _forget_history(self, revision: int) -> None:
        self._floor = revision
        for resource in self._resources.values():
            resource.forget_history(revision)
