"""What every store must do, run against etcd and against the memory store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

from minik8s_modules.store.errors import (
    Compacted,
    FutureRevision,
    KeyExists,
    KeyMissing,
    StaleWrite,
    StoreUnavailable,
    ValueTooLarge,
)
from minik8s_modules.store.interface import Change, Entry, Put, Store
from tests.support.watching import Recorder

T = TypeVar("T")


@contextmanager
def recording(store: Store, prefix: str, after: int) -> Iterator[Recorder]:
    recorder = Recorder(store.watch(prefix, after))
    yield recorder
    recorder.stop()


def test_a_created_key_is_read_back_with_its_revision(store, prefix):
    revision = store.create(prefix + "a", b"one")
    assert store.get(prefix + "a") == Entry(prefix + "a", b"one", revision)
    assert store.revision() == revision


def test_a_key_that_is_not_there_reads_as_none(store, prefix):
    assert store.get(prefix + "a") is None


def test_a_taken_key_cannot_be_created(store, prefix):
    store.create(prefix + "a", b"one")
    with pytest.raises(KeyExists, match=prefix):
        store.create(prefix + "a", b"two")


def test_a_deleted_key_can_be_created_again(store, prefix):
    first = store.create(prefix + "a", b"one")
    second = store.delete(prefix + "a", first)
    third = store.create(prefix + "a", b"two")
    assert (second, third) == (first + 1, first + 2)


def test_an_update_needs_the_latest_revision(store, prefix):
    first = store.create(prefix + "a", b"one")
    second = store.update(prefix + "a", b"two", first)
    with pytest.raises(StaleWrite, match=f"revision {first} is not the latest {second}"):
        store.update(prefix + "a", b"three", first)
    assert store.get(prefix + "a") == Entry(prefix + "a", b"two", second)


def test_several_keys_are_written_in_one_revision_or_not_at_all(store, prefix):
    a, b = prefix + "a", prefix + "b"
    first = store.create(a, b"one")
    with recording(store, prefix, first) as recorder:
        both = store.write([Put(b, b"new", 0), Put(a, b"two", first)])
        assert both == first + 1 == store.revision()
        assert store.get(a) == Entry(a, b"two", both)
        assert store.get(b) == Entry(b, b"new", both)
        with pytest.raises(KeyExists, match=b):
            store.write([Put(a, b"three", both), Put(b, b"again", 0)])
        with pytest.raises(StaleWrite, match=f"revision {first} is not the latest {both}"):
            store.write([Put(prefix + "c", b"", 0), Put(a, b"three", first)])
        with pytest.raises(KeyMissing):
            store.write([Put(a, b"three", both), Put(prefix + "d", b"", both)])
        assert store.revision() == both
        third = store.update(a, b"three", both)
        changes = recorder.wait(3)
    assert changes == [
        Change(b, b"new", both, created=True),
        Change(a, b"two", both, created=False),
        Change(a, b"three", third, created=False),
    ]


def test_a_deletion_needs_the_latest_revision(store, prefix):
    first = store.create(prefix + "a", b"one")
    store.update(prefix + "a", b"two", first)
    with pytest.raises(StaleWrite):
        store.delete(prefix + "a", first)


@pytest.mark.parametrize("expected", [1, 999])
def test_a_missing_key_is_neither_updated_nor_deleted(store, prefix, expected):
    with pytest.raises(KeyMissing):
        store.update(prefix + "a", b"one", expected)
    with pytest.raises(KeyMissing):
        store.delete(prefix + "a", expected)


def test_a_value_over_the_limit_of_a_request_is_refused(store, prefix):
    with pytest.raises(ValueTooLarge):
        store.create(prefix + "a", b"x" * 3_000_000)
    assert store.get(prefix + "a") is None


def test_a_range_is_ordered_and_ends_with_its_prefix(store, prefix):
    for name in ("b", "a/2", "a", "c"):
        store.create(prefix + name, name.encode())
    store.create(prefix[:-1] + "0/x", b"a neighbour")
    assert [entry.value for entry in store.range(prefix).entries] == [b"a", b"a/2", b"b", b"c"]


def test_pages_of_one_revision_give_the_whole_while_writes_go_on(store, prefix):
    for number in range(10):
        store.create(f"{prefix}{number}", b"")
    first = store.range(prefix, limit=4)
    store.delete(f"{prefix}7", first.entries[-1].revision + 4)
    store.create(f"{prefix}55", b"")
    second = store.range(prefix, limit=4, start=first.entries[-1].key + "\0", revision=first.revision)
    third = store.range(prefix, limit=4, start=second.entries[-1].key + "\0", revision=first.revision)
    assert [page.remaining for page in (first, second, third)] == [6, 2, 0]
    assert {page.revision for page in (first, second, third)} == {first.revision}
    keys = [entry.key for page in (first, second, third) for entry in page.entries]
    assert keys == [f"{prefix}{number}" for number in range(10)]


def test_a_page_that_starts_after_everything_is_empty(store, prefix):
    revision = store.create(prefix + "a", b"")
    page = store.range(prefix, start=prefix + "b")
    assert (page.entries, page.revision, page.remaining) == ([], revision, 0)
    assert store.range(prefix, start="/z").entries == []


def test_an_empty_prefix_is_everything(store, prefix):
    store.create(prefix + "a", b"")
    assert prefix + "a" in {entry.key for entry in store.range("").entries}


def test_a_future_revision_is_refused(store, prefix):
    with pytest.raises(FutureRevision):
        store.range(prefix, revision=store.revision() + 1000)
    with pytest.raises(FutureRevision):
        store.compact(store.revision() + 1000)


def test_16_threads_lose_no_increment(store, prefix):
    store.create(prefix + "n", b"0")

    def increment(_: int) -> None:
        while True:
            entry = store.get(prefix + "n")
            try:
                store.update(prefix + "n", b"%d" % (int(entry.value) + 1), entry.revision)
            except StaleWrite:
                continue
            return

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(increment, range(160)))
    assert store.get(prefix + "n").value == b"160"


def test_of_16_creators_one_wins(store, prefix):
    def create(number: int) -> bool:
        try:
            store.create(prefix + "n", b"%d" % number)
        except KeyExists:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(create, range(16))) == 1


def test_a_watch_tells_creation_update_and_deletion(store, prefix):
    after = store.revision()
    key = prefix + "a"
    first = store.create(key, b"one")
    second = store.update(key, b"two", first)
    third = store.delete(key, second)
    with recording(store, prefix, after) as seen:
        assert seen.wait(3) == [
            Change(key, b"one", first, created=True),
            Change(key, b"two", second, created=False),
            Change(key, None, third, created=False),
        ]


def test_a_watch_sees_old_and_new_changes_once_in_order(store, prefix):
    after = store.revision()
    before = [store.create(f"{prefix}{number:03}", b"") for number in range(50)]
    with recording(store, prefix, after) as seen:
        with ThreadPoolExecutor(8) as pool:
            live = list(pool.map(lambda number: store.create(f"{prefix}{number}", b""), range(100, 250)))
        revisions = [change.revision for change in seen.wait(200)]
        assert revisions == before + sorted(live)


def test_a_watch_ignores_its_neighbours(store, prefix):
    after = store.revision()
    with recording(store, prefix, after) as seen:
        store.create(prefix[:-1] + "0/x", b"")
        store.create(prefix + "a", b"")
        assert [change.key for change in seen.wait(1)] == [prefix + "a"]


def test_a_watch_from_a_future_revision_starts_there(store, prefix):
    after = store.create(prefix + "a", b"")
    with recording(store, prefix, after) as seen:
        assert seen.nothing_for(0.1)
        store.create(prefix + "b", b"")
        assert [change.key for change in seen.wait(1)] == [prefix + "b"]


def test_a_cancelled_watch_ends(store, prefix):
    watch = store.watch(prefix, store.revision())
    thread = threading.Thread(target=lambda: list(watch))
    thread.start()
    threading.Timer(0.1, watch.cancel).start()
    thread.join(60)
    assert not thread.is_alive()
    watch.cancel()
    assert list(watch) == []


def test_closing_the_store_ends_its_watches(store, prefix):
    watch = store.watch(prefix, store.revision())
    thread = threading.Thread(target=lambda: list(watch))
    thread.start()
    threading.Timer(0.1, store.close).start()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(StoreUnavailable):
        store.get(prefix)


def test_compaction_forgets_history_but_no_state(store, prefix):
    first = store.create(prefix + "a", b"one")
    second = store.update(prefix + "a", b"two", first)
    third = store.create(prefix + "b", b"")
    store.compact(third)
    store.compact(third)
    store.compact(first)
    with pytest.raises(Compacted):
        store.range(prefix, revision=second)
    ended = Recorder(store.watch(prefix, first))
    ended.until_error()
    assert isinstance(ended.error, Compacted)
    assert [entry.revision for entry in store.range(prefix, revision=third).entries] == [second, third]
    with recording(store, prefix, third) as seen:
        fourth = store.delete(prefix + "a", second)
        assert [change.revision for change in seen.wait(1)] == [fourth]


def test_an_unreachable_store_says_so_and_comes_back(interruptible, prefix):
    store = interruptible.store
    revision = store.create(prefix + "a", b"one")
    interruptible.cut()
    for call in (
        lambda: store.get(prefix + "a"),
        lambda: store.range(prefix),
        lambda: store.create(prefix + "b", b""),
        lambda: store.update(prefix + "a", b"two", revision),
        lambda: store.delete(prefix + "a", revision),
        lambda: store.compact(1),
        store.revision,
    ):
        with pytest.raises(StoreUnavailable):
            call()
    interruptible.heal()
    assert until_available(lambda: store.get(prefix + "a")) == Entry(prefix + "a", b"one", revision)
    assert store.get(prefix + "b") is None


def test_a_watch_outlives_an_outage(interruptible, prefix):
    store = interruptible.store
    with recording(store, prefix, store.revision()) as seen:
        first = store.create(prefix + "a", b"")
        seen.wait(1)
        interruptible.cut()
        assert seen.nothing_for(0.1)
        interruptible.heal()
        second = until_available(lambda: store.create(prefix + "b", b""))
        assert [change.revision for change in seen.wait(2)] == [first, second]
        assert seen.error is None


def until_available(call: Callable[[], T], timeout_s: float = 60.0) -> T:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except StoreUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)
