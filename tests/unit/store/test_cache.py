"""The watch cache over the memory store; tests/integration/store/test_faults.py runs it over etcd."""

from __future__ import annotations

import tracemalloc

import orjson
import pytest

from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.cached import RING_LEAST, CachedObject, difference
from minik8s_modules.store.encoding import with_revision, without_revision
from minik8s_modules.store.errors import Expired, StoreUnavailable
from minik8s_modules.store.interface import Change, Entry
from tests.support.watching import Events, stored

PODS = "/registry/core/pods/"
KEY = PODS + "default/web"


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
