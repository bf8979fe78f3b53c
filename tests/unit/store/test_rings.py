"""What a resource of the watch cache remembers: its ring of events, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import orjson

from minik8s_modules.store.cache import CacheEvent
from minik8s_modules.store.cached import PARSED_EVENTS, RING_LEAST, CachedObject, Resource
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.interface import Change
from tests.support.watching import stored

PODS = "/registry/core/pods/"
KEY = PODS + "default/web"


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
