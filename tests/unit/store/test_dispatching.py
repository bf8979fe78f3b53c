"""How events come to subscribers of the watch cache, and what progress they are told."""

from __future__ import annotations

import threading

from minik8s_modules.store.cache import CacheEvent
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.dispatch import Dispatcher, Subscription
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


def test_a_subscriber_that_fails_at_what_it_missed_is_cut_off(store, cache):
    start = cache.revision
    revision = store.create(KEY, stored("web"))
    assert cache.wait_for(revision, 60)
    ended: list[bool] = []

    def fail(event: CacheEvent) -> None:
        raise RuntimeError("as a broken watcher would")

    subscription = cache.subscribe(PODS, start, fail, on_end=lambda: ended.append(True))
    assert ended == [True]
    assert cache.wait_for(store.create(KEY + "2", stored("web2")), 60)
    assert subscription.progress() == start
    assert ended == [True]


def test_progress_never_runs_ahead_of_what_a_subscriber_has_seen(store, cache):
    start = store.create(PODS + "default/0", stored("0"))
    cache.wait_for(start, 60)
    told: list[int] = []
    subscription: Subscription = cache.subscribe(PODS, start, lambda _event: told.append(subscription.progress()))
    revision = store.create(KEY, stored("web"))
    cache.wait_for(revision, 60)
    assert told == [start]
    assert subscription.progress() == revision


def event(kind: str, revision: int) -> CacheEvent:
    key = f"/registry/core/{kind}/default/a"
    return CacheEvent("ADDED", key, revision, CachedObject(key, b"{}", revision, {}), None)


def test_what_nobody_subscribes_to_counts_as_seen():
    dispatcher, events = Dispatcher("/registry/"), Events()
    dispatcher.publish([event("pods", 1)], 1)
    assert dispatcher.progress == 1
    subscription = Subscription(dispatcher, PODS, 1, events, None)
    dispatcher.join(subscription, PODS, [])
    dispatcher.publish([event("configmaps", 2)], 2)
    assert subscription.progress() == 2
    dispatcher.publish([event("configmaps", 3), event("pods", 3)], 4)
    assert [each.revision for each in events.seen] == [3]
    assert subscription.progress() == 4
    subscription.cancel()
    dispatcher.publish([event("pods", 5)], 5)
    assert [each.revision for each in events.seen] == [3]


def test_a_subscriber_may_leave_while_it_is_told():
    dispatcher, events = Dispatcher("/registry/"), Events()
    leaving = Subscription(dispatcher, PODS, 0, lambda _event: leaving.cancel(), None)
    for each in (leaving, Subscription(dispatcher, PODS, 0, events, None)):
        dispatcher.join(each, PODS, [])
    dispatcher.publish([event("pods", 1), event("pods", 2)], 2)
    assert [each.revision for each in events.seen] == [1, 2]
    assert not leaving.active


def test_progress_of_a_store_that_went_back_is_not_that_of_what_was_before():
    dispatcher, ended = Dispatcher("/registry/"), list[bool]()
    first, second = (
        Subscription(dispatcher, PODS, after, lambda _: None, lambda: ended.append(True)) for after in (1, 50)
    )
    dispatcher.join(first, PODS, [])
    dispatcher.publish([], 99)
    assert first.progress() == 99
    dispatcher.end_all()
    dispatcher.publish([event("pods", 49)], 49)
    dispatcher.join(second, PODS, [])
    assert ended == [True]
    assert (first.progress(), second.progress()) == (99, 50)
    dispatcher.publish([event("pods", 51)], 51)
    assert (first.progress(), second.progress()) == (99, 51)
