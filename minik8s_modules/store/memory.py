"""A store in this process's memory: etcd's revisions, history, compaction and watches, without etcd.

Two structures hold everything: per key the list of its versions (for reads at a revision), and one log of
changes (for watches). Compaction cuts both, by etcd's rule: reads at the compacted revision itself still
work.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import NamedTuple

from minik8s_modules.store.errors import (
    Compacted,
    FutureRevision,
    StoreUnavailable,
    ValueTooLarge,
    check_expected,
)
from minik8s_modules.store.interface import Change, Entry, Page, Put

MAX_VALUE_BYTES = 1_572_864  # etcd's default --max-request-bytes


class _Version(NamedTuple):
    revision: int
    value: bytes | None


class MemoryStore:
    """The Store protocol without a server; ``set_available(False)`` makes it fail as an unreachable etcd."""

    def __init__(self) -> None:
        self._available = True
        self._watchable = True
        self._changed = threading.Condition()
        self._versions: dict[str, list[_Version]] = {}
        self._log: list[Change] = []
        self._revision = 1  # an empty etcd stands at 1
        self._compacted = 0
        self._closed = False

    def get(self, key: str) -> Entry | None:
        """Return the latest state of ``key``, or None."""
        with self._changed:
            self._check()
            return self._at(key, self._revision)

    def range(self, prefix: str, *, limit: int = 0, start: str = "", revision: int = 0) -> Page:
        """Return the entries below ``prefix`` from ``start`` on, at ``revision``."""
        with self._changed:
            self._check()
            shown = revision or self._revision
            self._check_revision(shown)
            keys = sorted(k for k in self._versions if k.startswith(prefix) and k >= start)
            found = [entry for key in keys if (entry := self._at(key, shown))]
        entries = found[:limit] if limit else found
        return Page(entries, shown, len(found) - len(entries))

    def create(self, key: str, value: bytes) -> int:
        """Write a new key and return its revision."""
        return self.write([Put(key, value, 0)])

    def update(self, key: str, value: bytes, expected: int) -> int:
        """Replace the value if the key's revision is ``expected``; return the new revision."""
        return self.write([Put(key, value, expected)])

    def write(self, puts: Sequence[Put]) -> int:
        """Make all of ``puts`` in one revision, or none; return the revision."""
        with self._changed:
            for put in puts:
                self._check(put.value)
                self._expect("update", put.key, put.expected)
            return self._write(*((put.key, put.value) for put in puts))

    def delete(self, key: str, expected: int) -> int:
        """Remove the key if its revision is ``expected``; return the removal's revision."""
        with self._changed:
            self._check()
            self._expect("delete", key, expected)
            return self._write((key, None))

    def watch(self, prefix: str, after: int) -> MemoryWatch:
        """Return the changes below ``prefix`` after the revision ``after``."""
        return MemoryWatch(self, prefix, after)

    def revision(self) -> int:
        """Return the store's latest revision."""
        with self._changed:
            self._check()
            return self._revision

    def compact(self, revision: int) -> None:
        """Forget what was overwritten or deleted before ``revision``."""
        with self._changed:
            self._check()
            if revision > self._revision:
                raise FutureRevision(f"cannot compact to {revision}: the store is at {self._revision}")
            if revision <= self._compacted:
                return
            self._compacted = revision
            self._log = [change for change in self._log if change.revision > revision]
            for key in list(self._versions):
                self._cut(key)

    def close(self) -> None:
        """End all watches; later calls raise StoreUnavailable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def set_available(self, available: bool) -> None:  # noqa: FBT001 - it is the state that is named
        """Answer again, or fail as an unreachable etcd does: calls raise, watches stand still."""
        with self._changed:
            self._available = available
            self._changed.notify_all()

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Let watches stand still inside the block, as if their connections were cut; calls still work."""
        with self._changed:
            self._watchable = False
        try:
            yield
        finally:
            with self._changed:
                self._watchable = True
                self._changed.notify_all()

    def wake(self) -> None:
        """Make every watch look at its state again."""
        with self._changed:
            self._changed.notify_all()

    def take(self, watch: MemoryWatch) -> list[Change] | None:
        """Wait for changes ``watch`` has not seen and move it past them; None when it has ended."""
        with self._changed:
            while not (watch.cancelled or self._closed):
                batch = self._unseen(watch) if self._available and self._watchable else []
                if batch:
                    return batch
                self._changed.wait()
        return None

    def _unseen(self, watch: MemoryWatch) -> list[Change]:
        if watch.after < self._compacted:
            raise Compacted(f"cannot watch after revision {watch.after}: the oldest kept is {self._compacted}")
        new = self._log[bisect_right(self._log, watch.after, key=lambda change: change.revision) :]
        watch.after = max(watch.after, self._revision)
        return [change for change in new if change.key.startswith(watch.prefix)]

    def _check(self, value: bytes = b"") -> None:
        if not self._available or self._closed:
            raise StoreUnavailable("the store is not available")
        if len(value) > MAX_VALUE_BYTES:
            raise ValueTooLarge(f"a value of {len(value)} bytes is over the {MAX_VALUE_BYTES} a request may have")

    def _check_revision(self, revision: int) -> None:
        if revision < self._compacted:
            raise Compacted(f"revision {revision} is compacted; the oldest kept is {self._compacted}")
        if revision > self._revision:
            raise FutureRevision(f"revision {revision} is in the future; the latest is {self._revision}")

    def _expect(self, verb: str, key: str, expected: int) -> None:
        entry = self._at(key, self._revision)
        check_expected(verb, key, expected, entry.revision if entry else 0)

    def _at(self, key: str, revision: int) -> Entry | None:
        seen = list(takewhile(lambda version: version.revision <= revision, self._versions.get(key, ())))
        if not seen or seen[-1].value is None:
            return None
        return Entry(key, seen[-1].value, seen[-1].revision)

    def _write(self, *writes: tuple[str, bytes | None]) -> int:
        new = {key for key, _ in writes if self._at(key, self._revision) is None}
        self._revision += 1
        for key, value in writes:
            self._versions.setdefault(key, []).append(_Version(self._revision, value))
            created = value is not None and key in new
            self._log.append(Change(key, value, self._revision, created))
        self._changed.notify_all()
        return self._revision

    def _cut(self, key: str) -> None:
        versions = self._versions[key]
        old = [version for version in versions if version.revision <= self._compacted]
        kept = versions[max(0, len(old) - 1) :]
        if old and kept[0].value is None:
            kept = kept[1:]
        if kept:
            self._versions[key] = kept
        else:
            del self._versions[key]


class MemoryWatch:
    """The Watch protocol over a MemoryStore's log; the store moves ``after`` on under its lock."""

    def __init__(self, store: MemoryStore, prefix: str, after: int) -> None:
        self._store = store
        self.prefix = prefix
        self.after = after
        self.cancelled = False

    def __iter__(self) -> Iterator[list[Change]]:
        """Yield the changes as they come; raises Compacted when the log no longer reaches back."""
        while (batch := self._store.take(self)) is not None:
            yield batch
            yield []

    def cancel(self) -> None:
        """End the iteration."""
        self.cancelled = True
        self._store.wake()
