"""The watch cache over the memory store; tests/integration/store/test_faults.py runs it over etcd."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

import orjson
import pytest

from minik8s_modules.store.cache import CacheEvent, WatchCache
from minik8s_modules.store.cached import PARSED_EVENTS, RING_LEAST, CachedObject, Resource, difference
from minik8s_modules.store.dispatch import Dispatcher, Subscription, _Batch
from minik8s_modules.store.encoding import with_revision, without_revision
from minik8s_modules.store.errors import Expired, StoreUnavailable
from minik8s_modules.store.interface import Change, Entry
from minik8s_modules.store.memory import MemoryStore
from tests.support.watching import Events, stored

PODS = "/registry/core/pods/"
KEY = PODS + "default/web"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(store: MemoryStore) -> Iterator[WatchCache]:
    made = WatchCache(store, ring_events=5)
    made.start()
    assert made.wait_ready(60)
    yield made
    made.stop()


def test_bytes_leave_with_their_revision_and_return_without_it():
    data, parsed = with_revision(b'{"metadata":{"name":"a"},"spec":{}}', 7)
    assert data == b'{"metadata":{"name":"a","resourceVersion":"7"},"spec":{}}'
    assert without_revision(parsed) == b'{"metadata":{"name":"a"},"spec":{}}'
    assert parsed["metadata"]["resourceVersion"] == "7"


def test_objects_hold_no_more_memory_than_their_bytes():
    """What orjson returns holds the whole buffer that it was written into, ten times as much."""
    obj = {"metadata": {"name": "a"}, "data": "x" * 1400}
    tracemalloc.start()
    try:
        held = [CachedObject(KEY, orjson.dumps(obj), 7, {}) for _ in range(100)]
        each = tracemalloc.get_traced_memory()[0] / len(held)
    finally:
        tracemalloc.stop()
    assert orjson.loads(held[0].data) == obj
    assert each < 2_000


def test_a_write_is_read_after_waiting_for_its_revision(store, cache):
    revision = store.create(KEY, stored("web", labels={"app": "web"}))
    assert cache.wait_for(revision, 60)
    found = cache.get(KEY)
    assert orjson.loads(found.data) == found.object
    assert found.object["metadata"] == {
        "name": "web",
        "labels": {"app": "web"},
        "resourceVersion": str(revision),
    }
    assert found.labels == {"app": "web"}


def test_waiting_for_a_revision_that_does_not_come_ends(cache):
    assert not cache.wait_for(cache.revision + 1, 0.05)


def test_a_write_outside_the_prefix_moves_the_revision_and_the_progress(store, cache):
    revision = store.create("/elsewhere", b"no JSON at all")
    assert cache.wait_for(revision, 60)
    events = Events()
    events.until(lambda: cache.progress() == revision)


def test_a_list_is_ordered_and_keeps_to_its_prefix(store, cache):
    for name in ("default/b", "default/a", "default-2/a", "kube-system/a"):
        store.create(PODS + name, stored(name))
    revision = store.create("/registry/core/podsets/default/a", stored("a"))
    cache.wait_for(revision, 60)
    assert [item.key for item in cache.list(PODS + "default/").items] == [
        PODS + "default/a",
        PODS + "default/b",
    ]
    assert len(cache.list(PODS).items) == 4
    assert cache.list(PODS).revision == revision
    assert cache.list("/registry/core/secrets/").items == []


@pytest.mark.parametrize(
    "prefix", ["/registry/", "/registry/core", "/registry/core/", "/registry/core/pods", "/x/y/z/"]
)
def test_a_prefix_must_name_a_resource(cache, prefix):
    with pytest.raises(ValueError, match="<group>/<plural>/"):
        cache.list(prefix)


def test_before_the_load_nothing_is_answered(store):
    store.set_available(False)
    cache = WatchCache(store)
    cache.start()
    try:
        with pytest.raises(StoreUnavailable):
            cache.list(PODS)
        with pytest.raises(StoreUnavailable):
            cache.subscribe(PODS, 0, Events())
        assert not cache.ready()
        store.set_available(True)
        assert cache.wait_ready(5)
        assert cache.list(PODS).items == []
    finally:
        cache.stop()


def test_a_subscriber_sees_each_kind_of_event_with_what_was_before(store, cache):
    events = Events()
    cache.subscribe(PODS, cache.revision, events)
    first = store.create(KEY, stored("web", labels={"a": "1"}))
    second = store.update(KEY, stored("web", labels={"a": "2"}), first)
    third = store.delete(KEY, second)
    seen = events.wait(3)
    assert [(event.type, event.revision) for event in seen] == [
        ("ADDED", first),
        ("MODIFIED", second),
        ("DELETED", third),
    ]
    assert [event.previous and event.previous.labels for event in seen] == [None, {"a": "1"}, {"a": "2"}]
    last = orjson.loads(seen[2].data)["metadata"]
    assert last == {"name": "web", "labels": {"a": "2"}, "resourceVersion": str(third)}


def test_a_resumption_gets_what_it_missed_then_what_comes(store, cache):
    after = store.create(PODS + "default/0", stored("0"))
    missed = [store.create(f"{PODS}default/{n}", stored(str(n))) for n in (1, 2, 3)]
    cache.wait_for(missed[-1], 60)
    events = Events()
    cache.subscribe(PODS, after, events)
    live = store.create(PODS + "default/4", stored("4"))
    assert [event.revision for event in events.wait(4)] == [*missed, live]


def test_a_subscriber_of_a_namespace_sees_only_that(store, cache):
    events = Events()
    cache.subscribe(PODS + "default/", cache.revision, events)
    store.create(PODS + "default-2/web", stored("web"))
    store.create("/registry/core/secrets/default/web", stored("web"))
    store.create(KEY, stored("web"))
    assert [event.key for event in events.wait(1)] == [KEY]


def test_a_future_revision_is_waited_for(store, cache):
    events = Events()
    cache.subscribe(PODS, cache.revision + 1, events)
    store.create(PODS + "default/0", stored("0"))
    second = store.create(PODS + "default/1", stored("1"))
    assert [event.revision for event in events.wait(1)] == [second]


def test_a_ring_that_overflowed_answers_expired_and_only_for_its_resource(store, cache):
    start = cache.revision
    revisions = [store.create(f"{PODS}default/{n}", stored(str(n))) for n in range(7)]
    cache.wait_for(revisions[-1], 60)
    with pytest.raises(Expired):
        cache.subscribe(PODS, revisions[0], Events())
    events = Events()
    cache.subscribe(PODS, revisions[1], events)
    assert [event.revision for event in events.wait(5)] == revisions[2:]
    cache.subscribe("/registry/core/secrets/", start, Events())


def _history(resource: Resource, names: Iterable[str], revision: int = 0) -> list[CacheEvent]:
    """Return the events of objects that come, change and go after a revision, remembered by the resource."""
    found = []
    for name in names:
        for value in (stored(name), stored(name, labels={"app": name}), None):
            revision += 1
            change = Change(PODS + name, value, revision, created=False)
            data = with_revision(value, revision)[0] if value else b""
            made = CachedObject(change.key, data, revision, {}) if value else None
            event = resource.apply(change.key, revision, made)
            assert event is not None
            resource.remember(event)
            found.append(event)
    return found


def test_a_ring_is_bounded_by_bytes_too():
    resource = Resource(0, ring_events=1000, ring_bytes=1000)
    events = _history(resource, (str(number) for number in range(50)))
    kept = resource.after(0)
    assert sum(len(event.data) for event in kept) <= 1000
    assert kept == events[-len(kept) :]
    assert resource.floor == kept[0].revision - 1


def test_one_event_larger_than_a_ring_is_kept_alone():
    resource = Resource(0, ring_events=1000, ring_bytes=10)
    events = _history(resource, ["large"])
    assert resource.after(0) == events[-1:]


def test_a_deletion_counts_with_what_it_alone_holds():
    """The object before it stands in no other event once those have left the ring."""
    resource = Resource(0, ring_events=1000, ring_bytes=1000)
    _history(resource, (str(number) for number in range(50)))
    kept = resource.after(0)
    pairs = [(event.current, event.previous) for event in kept if event.type == "DELETED"]
    assert sum(len(each.data) for pair in pairs for each in pair if each is not None) <= 1000


def test_events_that_were_there_at_the_last_call_are_dropped_but_for_the_latest():
    resource = Resource(0, ring_events=10_000)
    old = _history(resource, (str(number) for number in range(RING_LEAST)))
    assert resource.forget_old() == 0
    new = _history(resource, ["new"], old[-1].revision)
    assert resource.forget_old() == len(old) + len(new) - RING_LEAST
    assert resource.after(resource.floor) == [*old, *new][-RING_LEAST:]
    newer = _history(resource, (str(number) for number in range(RING_LEAST)), new[-1].revision)
    assert resource.forget_old() == RING_LEAST
    assert resource.after(resource.floor) == newer


def test_who_resumes_from_before_the_old_events_lists_again(store):
    cache, beside = WatchCache(store), "/registry/core/secrets/"
    cache.start()
    try:
        assert cache.wait_ready(5)
        revisions = [store.create(f"{PODS}default/{n}", stored(str(n))) for n in range(RING_LEAST + 10)]
        cache.wait_for(revisions[-1], 60)
        assert cache.forget_old() == 0
        assert cache.forget_old() == 10
        with pytest.raises(Expired):
            cache.subscribe(PODS, revisions[8], Events())
        events = Events()
        cache.subscribe(PODS, revisions[9], events)
        assert [event.revision for event in events.wait(RING_LEAST)] == revisions[10:]
        cache.subscribe(beside, revisions[0] - 1, Events())
    finally:
        cache.stop()


def test_equal_parts_of_an_object_and_the_one_before_are_one():
    resource = Resource(0, ring_events=1000)
    data = with_revision(stored("web", labels={"app": "web"}), 1)[0]
    made = [CachedObject("".join([*KEY]), data, revision, {"app": "web"}) for revision in (1, 2)]
    for revision, each in enumerate(made, 1):
        resource.apply(each.key, revision, each)
    assert made[0].key is made[1].key
    assert made[0].packed_labels is made[1].packed_labels


def test_labels_of_objects_hold_no_dictionary():
    """The cache has them for each object and event: as a dictionary they take a hundred bytes more."""
    written = [stored(f"web-{number}", labels={"app": f"web-{number}"}) for number in range(100)]
    tracemalloc.start()
    try:
        held = []
        for number, value in enumerate(written, 1_000):
            data, parsed = with_revision(value, number)
            held.append(CachedObject(KEY, data, number, parsed["metadata"]["labels"]))
            del data, parsed
        beside = tracemalloc.get_traced_memory()[0] / len(held) - len(held[0].data)
    finally:
        tracemalloc.stop()
    assert held[7].labels == {"app": "web-7"}
    assert beside < 250


def test_a_ring_of_deletions_holds_each_object_once():
    """A namespace of many objects that is deleted would otherwise stay twice, for minutes."""
    resource = Resource(0, ring_events=1000)
    text = "x" * 10_000
    for number in range(100):
        key = f"{PODS}default/{number}"
        stands = with_revision(orjson.dumps({"metadata": {"name": str(number)}, "data": text}), number + 1)[0]
        resource.apply(key, number + 1, CachedObject(key, stands, number + 1, {"app": "web"}))
    tracemalloc.start()
    try:
        for number in range(100):
            event = resource.apply(f"{PODS}default/{number}", 200 + number, None)
            assert event is not None
            resource.remember(event)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 100 * 1_000
    last = resource.ring[7].current
    assert orjson.loads(last.data) == {"metadata": {"name": "7", "resourceVersion": "207"}, "data": text}
    assert last.data is last.data  # made once for all that watch
    assert (last.object["metadata"]["name"], last.labels) == ("7", {"app": "web"})
    last.forget_parsed()
    assert orjson.loads(last.data)["metadata"]["resourceVersion"] == "207"


def test_what_was_replaced_long_ago_is_not_kept_parsed_but_can_be_asked_for():
    resource = Resource(0, ring_events=1000)
    old = _history(resource, ["old"])
    before = [event.current.object for event in old]
    _history(resource, (str(number) for number in range(PARSED_EVENTS)))
    assert [event.current.object for event in old] == before
    assert all(event.current.object is not first for event, first in zip(old, before, strict=True))


def test_what_was_written_long_ago_and_stands_is_not_kept_parsed_either():
    """Else each of 50,000 Pods holds eight times its bytes once somebody has looked at its last change."""
    resource = Resource(0, ring_events=1000)
    event = resource.apply(KEY, 1, CachedObject(KEY, with_revision(stored("web"), 1)[0], 1, {}))
    assert event is not None
    resource.remember(event)
    first = event.current.object
    assert event.current.peek() is first
    _history(resource, (str(number) for number in range(PARSED_EVENTS)))
    assert event.current.peek() == first
    assert event.current.peek() is not event.current.peek()
    assert event.current.object is event.current.peek()


def test_events_that_stay_for_long_are_not_kept_parsed():
    """A hundred of each kind stay for as long as little happens, with what looked at them long gone."""
    resource = Resource(0, ring_events=1000)
    old = _history(resource, ["a"])
    assert resource.forget_old() == 0
    new = _history(resource, ["b"], old[-1].revision)
    parsed = [event.current.object for event in [*old, *new]]
    assert resource.forget_old() == 0
    assert [event.current.object is before for event, before in zip([*old, *new], parsed, strict=True)] == [
        *(False for _ in old),
        *(True for _ in new),
    ]
    assert [event.current.object for event in old] == parsed[: len(old)]


def test_revisions_before_the_load_are_expired(store):
    early = store.create(KEY, stored("web"))
    store.create(PODS + "default/other", stored("other"))
    cache = WatchCache(store)
    cache.start()
    try:
        assert cache.wait_ready(5)
        with pytest.raises(Expired):
            cache.subscribe(PODS, early, Events())
    finally:
        cache.stop()


def test_with_a_history_watches_of_before_the_restart_resume(store):
    early = store.create(KEY, stored("web"))
    other = store.create(PODS + "default/other", stored("other"))
    store.delete(KEY, early)
    cache, events = WatchCache(store, history=10), Events()
    cache.start()
    try:
        assert cache.wait_ready(5)
        assert [item.key for item in cache.list(PODS).items] == [PODS + "default/other"]
        cache.subscribe(PODS, early, events)
        assert [(event.type, event.revision) for event in events.wait(2)] == [("ADDED", other), ("DELETED", other + 1)]
    finally:
        cache.stop()


def test_a_history_reaches_back_as_far_as_it_is_to_and_the_store_knows(store):
    revisions = [store.create(f"{PODS}default/{number}", stored(str(number))) for number in range(9)]
    for compacted, oldest in ((0, 4), (6, 7)):
        if compacted:
            store.compact(revisions[compacted])
        cache = WatchCache(store, history=4)
        cache.start()
        try:
            assert cache.wait_ready(5)
            assert len(cache.list(PODS).items) == 9
            assert len(cache.history(PODS, revisions[oldest])) == 8 - oldest
            with pytest.raises(Expired):
                cache.history(PODS, revisions[oldest - 1])
        finally:
            cache.stop()


def test_nothing_is_answered_from_the_past(store):
    store.create(KEY, stored("web"))
    with store.unwatched():
        cache = WatchCache(store, history=10)
        cache.start()
        try:
            assert cache.wait_for(1, 60)  # it is loaded, as it was once
            assert not cache.ready()
            for ask in (lambda: cache.list(PODS), lambda: cache.get(KEY)):
                with pytest.raises(StoreUnavailable):
                    ask()
        finally:
            cache.stop()


def test_a_history_that_takes_too_long_is_done_without(store, monkeypatch):
    monkeypatch.setattr("minik8s_modules.store.cache.HISTORY_S", 0.2)
    early = store.create(KEY, stored("web"))
    store.create(PODS + "default/other", stored("other"))
    with store.unwatched():
        cache = WatchCache(store, history=10)
        cache.start()
        try:
            assert cache.wait_ready(20)
            assert len(cache.list(PODS).items) == 2
            with pytest.raises(Expired):
                cache.history(PODS, early)
        finally:
            cache.stop()


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


def test_after_compaction_the_cache_emits_the_difference(store, cache):
    kept = store.create(PODS + "default/kept", stored("kept"))
    changed = store.create(PODS + "default/changed", stored("changed"))
    gone = store.create(PODS + "default/gone", stored("gone"))
    cache.wait_for(gone, 60)
    events = Events()
    cache.subscribe(PODS, gone, events)
    with store.unwatched():
        second = store.update(PODS + "default/changed", stored("changed", labels={"n": "2"}), changed)
        store.delete(PODS + "default/gone", gone)
        third = store.create(PODS + "default/new", stored("new"))
        store.compact(third)
    seen = events.wait(3)
    assert [(event.type, event.key.rpartition("/")[2], event.revision) for event in seen] == [
        ("MODIFIED", "changed", second),
        ("ADDED", "new", third),
        ("DELETED", "gone", third),
    ]
    with pytest.raises(Expired):
        cache.subscribe(PODS, kept, events)
    live = store.create(PODS + "default/live", stored("live"))
    assert [event.revision for event in events.wait(4)][3:] == [live]


def test_a_value_that_is_no_object_is_left_out(store, cache, caplog):
    store.create(PODS + "default/broken", b"[]")
    revision = store.create(KEY, stored("web"))
    cache.wait_for(revision, 60)
    assert [item.key for item in cache.list(PODS).items] == [KEY]
    assert "default/broken" in caplog.text


def test_the_difference_is_ordered_by_revision():
    known = {"/a": 1, "/b": 2, "/c": 3}
    entries = [Entry("/a", b"a", 9), Entry("/b", b"b", 2), Entry("/d", b"d", 5)]
    assert difference(known, entries, 10) == [
        Change("/d", b"d", 5, created=True),
        Change("/a", b"a", 9, created=False),
        Change("/c", None, 10, created=False),
    ]
