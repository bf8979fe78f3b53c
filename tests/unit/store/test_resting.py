"""A lone API server's reader lets events gather that its own writers have shown, and no others."""

from __future__ import annotations

import threading

import pytest

from minik8s_modules.store import resting
from minik8s_modules.store.cache import CachedObject, WatchCache
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.memory import MemoryStore
from minik8s_modules.store.resting import ALONE_S, CLAIM_S, MOST_UNCLAIMED, Rest
from tests.support.watching import Events, stored

KEY = "/registry/core/pods/default/web"
WAIT_S = 60.0


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def rest(now: Now) -> Rest:
    made = Rest(now)
    now.s += ALONE_S
    return made


def test_who_has_just_begun_does_not_rest(now):
    rest = Rest(now)
    now.s += ALONE_S - 1
    assert not rest.begin(is_waited_for=False)
    now.s += 1
    assert rest.begin(is_waited_for=False)


def test_what_a_writer_shows_in_the_end_was_its_own(rest, now):
    rest.brought(7)
    assert not rest.begin(is_waited_for=False)
    rest.claimed(7)
    now.s += 2 * CLAIM_S
    assert rest.begin(is_waited_for=False)


def test_after_somebody_elses_write_there_is_no_rest_for_a_while(rest, now):
    rest.brought(7)
    now.s += 2 * CLAIM_S
    assert not rest.begin(is_waited_for=False)
    now.s += ALONE_S - 2 * CLAIM_S - 1
    assert not rest.begin(is_waited_for=False)
    now.s += 1
    assert rest.begin(is_waited_for=False)


def test_another_servers_leases_leave_no_time_to_rest(rest, now):
    rest.brought(0)
    now.s += 2 * CLAIM_S
    found = [rest.begin(is_waited_for=False)]
    for half in range(1, 400):  # the reader may rest with each write of its own process
        now.s += 0.5
        if half % 10 == 0:  # RENEW_S of presence
            rest.brought(half)
        found.append(rest.begin(is_waited_for=False))
    assert not any(found)


def test_of_many_writes_of_others_some_are_remembered(rest, now):
    for revision in range(10 * MOST_UNCLAIMED):
        rest.brought(revision)
    now.s += 2 * CLAIM_S
    assert not rest.begin(is_waited_for=False)
    now.s += ALONE_S
    assert rest.begin(is_waited_for=False)


def test_nobody_rests_whom_somebody_waits_for(rest):
    assert not rest.begin(is_waited_for=True)
    assert rest.begin(is_waited_for=False)


@pytest.fixture
def resting_cache(monkeypatch):
    """A cache over a memory store whose reader rests for as long as nobody wants it, and when it does."""
    monkeypatch.setattr(resting, "ALONE_S", 0.0)
    monkeypatch.setattr(resting, "REST_S", WAIT_S)
    store, rests = MemoryStore(), threading.Event()
    take = Rest.take

    def noted(self: Rest) -> None:
        rests.set()
        take(self)

    monkeypatch.setattr(Rest, "take", noted)
    cache = WatchCache(store)
    cache.start()
    assert cache.wait_ready(WAIT_S)
    with store.unwatched():
        own = store.create(KEY, stored("web"))
        data, _ = with_revision(stored("web"), own)
        assert cache.wrote(KEY, CachedObject(KEY, data, own, {}), own, WAIT_S)
    yield store, cache, rests
    cache.stop()


def test_who_waits_for_a_revision_ends_the_rest(resting_cache):
    store, cache, rests = resting_cache
    assert rests.wait(WAIT_S)
    foreign = store.create("/registry/core/pods/default/other", stored("other"))
    assert cache.get("/registry/core/pods/default/other") is None
    assert cache.wait_for(foreign, WAIT_S / 2)
    assert cache.get("/registry/core/pods/default/other") is not None


def test_a_write_that_its_writer_waits_for_is_its_own(resting_cache, monkeypatch):
    store, cache, rests = resting_cache
    assert rests.wait(WAIT_S)
    revision = store.create("/registry/core/pods/default/charged", stored("charged"))
    assert cache.settle(revision, WAIT_S / 2)
    monkeypatch.setattr(resting, "ALONE_S", WAIT_S)
    monkeypatch.setattr(resting, "CLAIM_S", -1.0)  # now or never
    rests.clear()
    with store.unwatched():
        own = store.create("/registry/core/pods/default/next", stored("next"))
    data, _ = with_revision(stored("next"), own)
    assert cache.wrote("/registry/core/pods/default/next", CachedObject("next", data, own, {}), own, WAIT_S)
    assert rests.wait(WAIT_S)


def test_a_reader_that_rests_can_be_stopped(resting_cache):
    _store, cache, rests = resting_cache
    assert rests.wait(WAIT_S)
    stopping = threading.Thread(target=cache.stop)
    stopping.start()
    stopping.join(WAIT_S / 2)
    assert not stopping.is_alive()


def test_what_its_own_writers_show_is_told_while_the_reader_rests(resting_cache):
    store, cache, rests = resting_cache
    assert rests.wait(WAIT_S)
    events = Events()
    cache.subscribe("/registry/core/pods/", cache.revision, events)
    with store.unwatched():
        own = store.create("/registry/core/pods/default/next", stored("next"))
        data, _ = with_revision(stored("next"), own)
        assert cache.wrote("/registry/core/pods/default/next", CachedObject("next", data, own, {}), own, WAIT_S)
        assert [event.revision for event in events.seen] == [own]


def test_once_somebody_else_has_written_what_others_write_comes_at_once(resting_cache, monkeypatch):
    store, cache, rests = resting_cache
    assert rests.wait(WAIT_S)
    monkeypatch.setattr(resting, "ALONE_S", WAIT_S)
    monkeypatch.setattr(resting, "CLAIM_S", -1.0)  # now or never
    rests.clear()
    events = Events()
    cache.subscribe("/registry/core/pods/", cache.revision, events)
    first = store.create("/registry/core/pods/default/other", stored("other"))
    assert cache.wait_for(first, WAIT_S / 2)
    second = store.create("/registry/core/pods/default/another", stored("another"))
    events.until(lambda: second in {event.revision for event in events.seen}, WAIT_S / 2)
    assert not rests.is_set()
