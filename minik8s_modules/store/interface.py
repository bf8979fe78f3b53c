"""What the API server asks of a store: bytes under keys, one global revision, compare-and-swap, watch.

``etcd.EtcdStore`` is the real one, ``memory.MemoryStore`` the one for tests; both pass the same suite
(tests/integration/store/test_contract.py). The meaning of revision is etcd's: every write that changes
something raises the store's one revision by one; a key's revision is that of its last write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One key as it stands; ``revision`` is that of its last write."""

    key: str
    value: bytes
    revision: int


class Page(NamedTuple):
    """Part of a range, ordered by key.

    ``revision`` is the one the page shows (the store's at the read, or the one asked for); ``remaining``
    counts the entries after the last one of the page.
    """

    entries: list[Entry]
    revision: int
    remaining: int


class Change(NamedTuple):
    """One write: ``value`` is None for a deletion. What stood there before is not told: it would double what comes."""

    key: str
    value: bytes | None
    revision: int
    created: bool


class Put(NamedTuple):
    """One key to write, if its revision is ``expected``; 0: if it does not exist."""

    key: str
    value: bytes
    expected: int


class Watch(Protocol):
    """An endless stream of changes, in the order of their revisions; each comes exactly once."""

    def __iter__(self) -> Iterator[list[Change]]:
        """Yield batches; changes of one revision are never spread over two. An empty one: that is all for now.

        Blocks while nothing changes and while the store is unreachable (it resumes by itself where it was).
        Ends after ``cancel``.

        Raises:
            Compacted: the changes after the position are forgotten (or the store went back); list and watch
                again.
        """

    def cancel(self) -> None:
        """End the iteration, from any thread; may be called again."""


class Store(Protocol):
    """Keys to bytes. Every call raises StoreUnavailable, within seconds, when no etcd answers."""

    def get(self, key: str) -> Entry | None:
        """Return the latest state of ``key``, or None."""

    def range(self, prefix: str, *, limit: int = 0, start: str = "", revision: int = 0) -> Page:
        """Return the entries whose key begins with ``prefix`` and is not before ``start``.

        Args:
            prefix: "" is everything.
            limit: at most so many entries; 0 is all.
            start: the first key wanted. To go on after a page: its last key and a NUL character.
            revision: the revision to read at; 0 is the latest.

        Raises:
            Compacted: ``revision`` is no longer kept.
            FutureRevision: ``revision`` has not been reached.
        """

    def create(self, key: str, value: bytes) -> int:
        """Write a new key and return the write's revision.

        Raises:
            KeyExists: the key is taken.
            ValueTooLarge: the value is too large for the store.
        """

    def update(self, key: str, value: bytes, expected: int) -> int:
        """Replace the value if the key's revision is ``expected``; return the write's revision.

        Raises:
            StaleWrite: the key has another revision.
            KeyMissing: there is no such key.
            ValueTooLarge: the value is too large for the store.
        """

    def write(self, puts: Sequence[Put]) -> int:
        """Make all of ``puts`` in one revision, or none; return the revision. The keys are different ones.

        Raises:
            KeyExists: a key that should be new is taken.
            StaleWrite: a key has another revision.
            KeyMissing: a key to be replaced does not exist.
            ValueTooLarge: the store does not take so much at once.
        """

    def delete(self, key: str, expected: int) -> int:
        """Remove the key if its revision is ``expected``; return the removal's revision.

        Raises:
            StaleWrite: the key has another revision.
            KeyMissing: there is no such key.
        """

    def watch(self, prefix: str, after: int) -> Watch:
        """Return the changes below ``prefix`` after ``after``; nothing is opened before iteration."""

    def revision(self) -> int:
        """Return the store's latest revision (a read that every earlier write precedes)."""

    def compact(self, revision: int) -> None:
        """Forget what was overwritten or deleted before ``revision``; does nothing if already done.

        Raises:
            FutureRevision: ``revision`` has not been reached.
        """

    def close(self) -> None:
        """Let go of connections; running watches end."""
