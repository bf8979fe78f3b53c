"""What the watch cache is made of: objects, their events, and per resource a ring of the latest events."""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from minik8s_modules.store.encoding import exact, with_revision
from minik8s_modules.store.interface import Change, Entry

log = logging.getLogger(__name__)

RING_BYTES = 16 << 20
"""Bytes of events a resource; a watcher that is further behind is dropped by the hub as well."""
RING_LEAST = 100
"""So many events stay whatever their age."""
PARSED_EVENTS = 200
"""So many of the latest events may hold parsed forms: of what they replaced, and of what they brought."""


class CachedObject:
    """One object's final bytes; ``labels`` and ``object`` are parsed when they are asked for.

    ``shown`` is for readers to whom the object looks otherwise: for whom it was made, and its bytes for them.
    """

    __slots__ = ("_object", "data", "key", "packed_labels", "revision", "shown")

    def __init__(self, key: str, data: bytes, revision: int, labels: Mapping[str, str]) -> None:
        self.key = key
        self.data = exact(data)  # there are as many of these as objects, and events that may be resumed from
        self.revision = revision
        self.packed_labels = exact(orjson.dumps(labels)) if labels else b""  # 60 bytes, a dict of one label takes 250
        self._object: dict[str, Any] | None = None
        self.shown: tuple[tuple[object, bytes], ...] = ()

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's labels, whether it has a parsed form or not."""
        found: dict[str, str] = orjson.loads(self.packed_labels) if self.packed_labels else {}
        return found

    @property
    def object(self) -> dict[str, Any]:
        """The parsed object; shared, not to be changed."""
        found = self._object  # once: another thread may forget it meanwhile
        if found is None:
            found = self._object = orjson.loads(self.data)
        return found

    def peek(self) -> dict[str, Any]:
        """Return the parsed object as ``object``, for who looks once at very many: it is not kept for that."""
        found = self._object
        return orjson.loads(self.data) if found is None else found

    def like(self, previous: CachedObject) -> None:
        """Share with the object before what is equal: ten thousands of events hold it."""
        self.key = previous.key
        if self.packed_labels == previous.packed_labels:
            self.packed_labels = previous.packed_labels

    def forget_parsed(self) -> None:
        """Drop the parsed form, about five times the bytes; whoever asks again has it parsed again."""
        self._object = None


def packed_label(key: str, value: str | None = None) -> bytes:
    """Return what ``packed_labels`` contain that have ``key``, with ``value`` if one is given; others may, too."""
    return orjson.dumps(key) + b":" + (b"" if value is None else orjson.dumps(value))


class _Deleted(CachedObject):
    """What a deletion brings: the object as it was, with the deletion's revision.

    Its bytes are made for whoever asks: most often nobody does, and a ring of deletions would hold each object twice.
    """

    __slots__ = ("_bytes", "_previous")

    def __init__(self, previous: CachedObject, revision: int) -> None:
        self._previous, self._bytes = previous, b""
        super().__init__(previous.key, b"", revision, {})
        self.packed_labels = previous.packed_labels

    @property
    def data(self) -> bytes:
        """The object's final bytes."""
        made = self._bytes  # once: another thread may forget them meanwhile
        if not made:
            made = self._bytes = exact(with_revision(self._previous.data, self.revision)[0])
        return made

    @data.setter
    def data(self, _: bytes) -> None:
        """Leave it: nothing is known before somebody asks."""

    def forget_parsed(self) -> None:
        super().forget_parsed()
        self._bytes = b""


class CacheList(NamedTuple):
    """A snapshot: all objects of a prefix as they were at ``revision``."""

    items: list[CachedObject]
    revision: int


class CachePage(NamedTuple):
    """Some objects of a prefix as they were at a revision, and how many follow them."""

    items: list[CachedObject]
    remaining: int


class CacheEvent(NamedTuple):
    """One change for subscribers.

    ``current`` holds the object after the change; of a deletion, the last object with the deletion's
    resourceVersion. ``previous`` is the object before the change, for selectors that it enters or leaves.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: str
    revision: int
    current: CachedObject
    previous: CachedObject | None

    @property
    def data(self) -> bytes:
        """The bytes of ``current``."""
        return self.current.data


class Resource:
    """The objects below one ``/registry/<group>/<plural>/`` and its ring of events."""

    def __init__(self, floor: int, ring_events: int, ring_bytes: int = RING_BYTES) -> None:
        self.objects: dict[str, CachedObject] = {}
        self.keys: list[str] = []
        self.ring: deque[CacheEvent] = deque()
        self._ring_events, self._ring_bytes, self._held_bytes = ring_events, ring_bytes, 0
        self.floor = floor  # events up to this revision are not in the ring
        self._old = floor  # events up to this revision were there when the old ones were last forgotten
        self._forgotten = floor  # events up to this revision have lost their parsed forms then, or before
        self.changes = 0  # how often an object came, changed or went

    def below(self, prefix: str) -> list[CachedObject]:
        """Return the objects whose key begins with ``prefix``, ordered by key."""
        first = bisect_left(self.keys, prefix)
        last = bisect_left(self.keys, prefix + "\U0010ffff", first)
        return [self.objects[key] for key in self.keys[first:last]]

    def page(self, prefix: str, revision: int, start: str, limit: int) -> CachePage:
        """Return at most ``limit`` objects below ``prefix``, from the key ``start`` on, as they were at ``revision``.

        The ring must reach back to it.
        """
        first = bisect_left(self.keys, max(prefix, start))
        keys = self.keys[first : bisect_left(self.keys, prefix + "\U0010ffff", first)]
        was: dict[str, CachedObject | None] = {}
        for event in self.after(revision):
            if event.key >= start and event.key.startswith(prefix):
                was.setdefault(event.key, event.previous)
        if gone := [key for key, before in was.items() if before is not None and key not in self.objects]:
            keys = sorted(keys + gone)
        if came := {key for key, before in was.items() if before is None}:
            keys = [key for key in keys if key not in came]
        items = [was.get(key) or self.objects[key] for key in keys[:limit]]
        return CachePage(items, len(keys) - len(items))

    def after(self, revision: int) -> list[CacheEvent]:
        """Return the ring's events after ``revision``, oldest first."""
        missed: list[CacheEvent] = []
        for event in reversed(self.ring):
            if event.revision <= revision:
                break
            missed.append(event)
        return missed[::-1]

    def apply(self, key: str, revision: int, made: CachedObject | None) -> CacheEvent | None:
        """Change the objects; return the event, or None for the deletion of what was never known.

        Args:
            key: of the object.
            revision: of the write.
            made: the object after it, None once it is deleted.
        """
        previous = self.objects.get(key)
        if made is None and previous is None:
            return None
        self.changes += 1
        if made is None:
            assert previous is not None  # noqa: S101 - the case above; told to the type checker
            del self.objects[key]
            del self.keys[bisect_left(self.keys, key)]
            return CacheEvent("DELETED", key, revision, _Deleted(previous, revision), previous)
        if previous is None:
            insort(self.keys, key)
        else:
            made.like(previous)
            key = previous.key
        self.objects[key] = made
        kind: Literal["ADDED", "MODIFIED"] = "MODIFIED" if previous else "ADDED"
        return CacheEvent(kind, key, revision, made, previous)

    def remember(self, event: CacheEvent) -> None:
        """Put the event into the ring; the oldest leave one that holds too many, or too much."""
        self.ring.append(event)
        self._held_bytes += _held(event)
        while len(self.ring) > self._ring_events or (self._held_bytes > self._ring_bytes and len(self.ring) > 1):
            self._drop_oldest()
        if len(self.ring) >= PARSED_EVENTS:
            _forget_parsed(self.ring[-PARSED_EVENTS])  # what was written last may stand for months

    def forget_old(self) -> int:
        """Drop the events that were there at the last call, but for the latest few; return how many have gone.

        Those few lose their parsed forms: of an object as it stands, once, as it may be asked for all the time.
        """
        before = len(self.ring)
        while len(self.ring) > RING_LEAST and self.ring[0].revision <= self._old:
            self._drop_oldest()
        for event in self.ring:
            if event.revision > self._old:
                break
            if event.revision > self._forgotten or self.objects.get(event.key) is not event.current:
                _forget_parsed(event)
        self._forgotten, self._old = self._old, self.ring[-1].revision if self.ring else self.floor
        return before - len(self.ring)

    def _drop_oldest(self) -> None:
        oldest = self.ring.popleft()
        self._held_bytes -= _held(oldest)
        self.floor = oldest.revision

    def forget_history(self, revision: int) -> None:
        """Empty the ring: it reaches back to ``revision`` from now on."""
        self.ring.clear()
        self._held_bytes = 0
        self.floor = revision


def _forget_parsed(event: CacheEvent) -> None:
    event.current.forget_parsed()
    if event.previous is not None:
        event.previous.forget_parsed()


def _held(event: CacheEvent) -> int:
    """Return the bytes that an event alone holds: what a deletion brings replaces nothing that stays."""
    held = event.previous if event.type == "DELETED" else event.current
    return len(held.data) if held is not None else 0


def difference(known: Mapping[str, int], entries: Iterable[Entry], revision: int) -> list[Change]:
    """Return the changes that lead from what is ``known`` to ``entries``, which were read at ``revision``.

    Args:
        known: keys and their revisions.
        entries: all entries as they stand now.
        revision: given to the deletions, because nobody knows theirs any more.

    Returns:
        The changes ordered by revision.
    """
    found = list(entries)
    written = [
        Change(entry.key, entry.value, entry.revision, entry.key not in known)
        for entry in found
        if known.get(entry.key) != entry.revision
    ]
    written.sort(key=lambda change: change.revision)
    gone = sorted(known.keys() - {entry.key for entry in found})
    return written + [Change(key, None, revision, created=False) for key in gone]


def made_of(change: Change, root: str) -> Sequence[CachedObject | None]:
    """Return the object after the change, or None for a deletion, in a sequence; of a key not below ``root``: empty."""
    if not change.key.startswith(root) or change.key.count("/") < root.count("/") + 2:
        return []
    if change.value is None:
        return [None]
    try:
        data, parsed = with_revision(change.value, change.revision, change.key)
    except ValueError as error:
        log.error("ignoring %s at revision %d: %s", change.key, change.revision, error)  # noqa: TRY400
        return []
    return [CachedObject(change.key, data, change.revision, parsed["metadata"].get("labels") or {})]


def resource_of(root: str, path: str) -> str:
    """Return the ``<root><group>/<plural>/`` that a key or prefix belongs to.

    Raises:
        ValueError: ``path`` does not reach that far.
    """
    group, slash, rest = path[len(root) :].partition("/")
    plural, second_slash, _ = rest.partition("/")
    if not path.startswith(root) or not slash or not second_slash:
        raise ValueError(f"{path!r} does not begin with {root}<group>/<plural>/")
    return f"{root}{group}/{plural}/"
