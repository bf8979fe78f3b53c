"""How events come to subscribers of the watch cache, and what progress they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from minik8s_modules.store.cache import CacheEvent
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.dispatch import Dispatcher, Subscription, _Batch
from tests.support.watching import Events, stored

PODS = "/registry/core/pods/"
KEY = PODS + "default/web"


def test_a_cancelled_subscriber_hears_no_more(store, cache):
    events, witness = Events(), Events()
    subscription = cache.subscribe(PODS, cache.revision, events)
    subscription.cancel()
    subscription.cancel()
    cache.subscribe(PODS, cache.revision, witness)
    store.create(KEY, stored("web"))
    witness.wait(1)
    assert events.seen == []


def test_a_subscriber_that_fails_is_cut_off_and_the_others_go_on(store, cache):
    ended = threading.Event()

    def fail(event: CacheEvent) -> None:
        raise RuntimeError("as a broken watcher would")

    witness = Events()
    cache.subscribe(PODS, cache.revision, fail, on_end=ended.set)
    cache.subscribe(PODS, cache.revision, witness)
    store.create(KEY, stored("web"))
    assert len(witness.wait(1)) == 1
    assert ended.wait(60)


def test_progress_never_runs_ahead_of_what_a_subscriber_has_seen(store, cache):
    start = store.create(PODS + "default/0", stored("0"))
    cache.wait_for(start, 60)
    gate, events = threading.Event(), Events()

    def slow(event: CacheEvent) -> None:
        gate.wait(60)
        events(event)

    subscription = cache.subscribe(PODS, start, slow)
    revision = store.create(KEY, stored("web"))
    cache.wait_for(revision, 60)
    assert subscription.progress() == start
    gate.set()
    events.until(lambda: subscription.progress() == revision)
    assert len(events.seen) == 1


def test_what_nobody_subscribes_to_wakes_nobody_and_counts_as_seen():
    dispatcher, events, gate = Dispatcher("/registry/"), Events(), threading.Event()

    def event(kind: str, revision: int) -> CacheEvent:
        key = f"/registry/core/{kind}/default/a"
        return CacheEvent("ADDED", key, revision, CachedObject(key, b"{}", revision, {}), None)

    def slow(seen: CacheEvent) -> None:
        gate.wait(60)
        events(seen)

    dispatcher.publish([event("pods", 1)], 1)  # no thread is there yet that could take it
    assert dispatcher.progress == 1
    subscription = Subscription(dispatcher, PODS, 1, slow, None)
    dispatcher.join(subscription, PODS, [])
    dispatcher.publish([event("configmaps", 2)], 2)
    assert dispatcher.progress == 2
    dispatcher.publish([event("configmaps", 3), event("pods", 3)], 3)
    dispatcher.publish([event("configmaps", 4)], 4)
    assert dispatcher.progress == 2  # not yet 4, and never less than it was
    dispatcher.start()
    gate.set()
    assert [each.revision for each in events.wait(1)] == [3]
    events.until(lambda: dispatcher.progress == 4)
    subscription.cancel()
    subscription.cancel()
    dispatcher.stop()
    dispatcher.publish([event("pods", 5)], 5)
    assert dispatcher.progress == 5
    assert [each.revision for each in events.seen] == [3]


class _Interrupted(Dispatcher):
    """A dispatcher whose ``publish`` is interrupted where it has compared its counts and goes on to change them."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._counted, self._meanwhile = 0, meanwhile
        super().__init__("/registry/")

    @property
    def _batches_queued(self) -> int:
        return self._counted

    @_batches_queued.setter
    def _batches_queued(self, count: int) -> None:
        if count > 1:
            self._meanwhile()
        self._counted = count


def test_progress_does_not_go_back_whatever_happens_while_a_batch_is_published():
    seen: list[int] = []
    threads: list[threading.Thread] = []

    def deliver() -> None:
        batch = dispatcher._queue.get_nowait()
        assert isinstance(batch, _Batch)
        dispatcher._deliver(batch)
        seen.append(dispatcher.progress)

    def meanwhile() -> None:
        threads.append(threading.Thread(target=deliver))
        threads[0].start()
        threads[0].join(0.2)  # it may have to wait until the batch is published

    def event(revision: int) -> list[CacheEvent]:
        return [CacheEvent("ADDED", KEY, revision, CachedObject(KEY, b"{}", revision, {}), None)]

    dispatcher = _Interrupted(meanwhile)
    dispatcher.join(Subscription(dispatcher, PODS, 1, lambda _event: None, None), PODS, [])
    dispatcher._queue.get_nowait()
    dispatcher.publish(event(5), 5)
    dispatcher.publish([], 7)
    dispatcher.publish(event(8), 8)
    threads[0].join(60)
    assert dispatcher.progress >= seen[0] >= 5


def test_progress_of_a_store_that_went_back_is_not_that_of_what_was_still_on_its_way():
    dispatcher = Dispatcher("/registry/")
    first, second = (Subscription(dispatcher, PODS, after, lambda _event: None, None) for after in (1, 50))

    def event(revision: int) -> list[CacheEvent]:
        return [CacheEvent("ADDED", KEY, revision, CachedObject(KEY, b"{}", revision, {}), None)]

    dispatcher.join(first, PODS, [])
    first.join([])
    dispatcher.publish([], 99)
    assert first.progress() == 99
    dispatcher.publish(event(100), 100)
    dispatcher.end_all()
    assert first.progress() == 99
    dispatcher.publish([], 50)
    dispatcher.join(second, PODS, [])
    shown: list[int] = []
    dispatcher.publish(event(51), 51)
    second._callback = lambda _event: shown.append(second.progress())
    dispatcher.start()
    dispatcher.stop()
    assert not first.active
    assert shown == [50]
    assert second.progress() == 51
