"""A Store that keeps the values below some prefixes encrypted in another one; whoever uses it sees them plain.

Values written before encryption was on are read as they are and become encrypted when they are next written
(``rewrite`` writes them all). A value that cannot be decrypted fails a ``get``; in ranges and watches it comes out as
it is stored, which no reader takes for an object: the watch cache logs and skips it, and the others are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minik8s_modules.store.at_rest.keyring import KeyRing, key_of
from minik8s_modules.store.errors import KeyMissing, StaleWrite, Undecryptable
from minik8s_modules.store.interface import Change, Entry, Page, Put, Store, Watch

PREFIXES = ("/registry/core/secrets/",)
_PAGE = 500


class EncryptedStore:
    """``store`` with the values below ``prefixes`` encrypted; see store/interface.py for what the calls mean."""

    def __init__(self, store: Store, ring: KeyRing, prefixes: tuple[str, ...] = PREFIXES) -> None:
        self._store = store
        self._ring = ring
        self._prefixes = prefixes

    def get(self, key: str) -> Entry | None:
        """Return the latest state of ``key``, or None. Raises Undecryptable."""
        entry = self._store.get(key)
        if entry is None or not key.startswith(self._prefixes):
            return entry
        try:
            return entry._replace(value=self._ring.open(key, entry.value))
        except ValueError as error:
            raise Undecryptable(f"cannot decrypt {key}: {error}") from error

    def range(self, prefix: str, *, limit: int = 0, start: str = "", revision: int = 0) -> Page:
        """Return a page of the entries below ``prefix``."""
        page = self._store.range(prefix, limit=limit, start=start, revision=revision)
        return page._replace(entries=[self._entry(entry) for entry in page.entries])

    def create(self, key: str, value: bytes) -> int:
        """Write a new key."""
        return self._store.create(key, self._sealed(key, value))

    def update(self, key: str, value: bytes, expected: int) -> int:
        """Replace a value by compare-and-swap."""
        return self._store.update(key, self._sealed(key, value), expected)

    def write(self, puts: Sequence[Put]) -> int:
        """Write several keys by compare-and-swap, all or none."""
        return self._store.write([put._replace(value=self._sealed(put.key, put.value)) for put in puts])

    def delete(self, key: str, expected: int) -> int:
        """Remove a key by compare-and-swap."""
        return self._store.delete(key, expected)

    def watch(self, prefix: str, after: int) -> Watch:
        """Return the changes after a revision."""
        return _Decrypted(self._store.watch(prefix, after), self)

    def revision(self) -> int:
        """Return the store's latest revision."""
        return self._store.revision()

    def compact(self, revision: int) -> None:
        """Forget history before ``revision``."""
        self._store.compact(revision)

    def close(self) -> None:
        """Let go of connections."""
        self._store.close()

    def change(self, change: Change) -> Change:
        """Return a change of the other store with its value plain."""
        if change.value is None or not change.key.startswith(self._prefixes):
            return change
        return change._replace(value=self._opened(change.key, change.value))

    def rewrite(self) -> int:
        """Write every value again that the ring's first key did not write; returns how many those were.

        Safe beside running API servers: each write is a compare-and-swap, and whoever is faster writes with the ring,
        too. Raises Undecryptable at a value whose key is gone; what was written before stays written.
        """
        return sum(self._rewritten(entry) for prefix in self._prefixes for entry in self._raw(prefix))

    def _rewritten(self, entry: Entry) -> bool:
        if key_of(entry.value) == self._ring.keys()[0].id:
            return False
        plain = self.get(entry.key)
        if plain is None:
            return False
        try:
            self.update(entry.key, plain.value, plain.revision)
        except (StaleWrite, KeyMissing):
            return False
        return True

    def _raw(self, prefix: str) -> Iterator[Entry]:
        start = ""
        while True:
            page = self._store.range(prefix, limit=_PAGE, start=start)
            yield from page.entries
            if not page.remaining:
                return
            start = f"{page.entries[-1].key}\0"

    def _sealed(self, key: str, value: bytes) -> bytes:
        return self._ring.seal(key, value) if key.startswith(self._prefixes) else value

    def _entry(self, entry: Entry) -> Entry:
        if not entry.key.startswith(self._prefixes):
            return entry
        return entry._replace(value=self._opened(entry.key, entry.value))

    def _opened(self, key: str, stored: bytes) -> bytes:
        try:
            return self._ring.open(key, stored)
        except ValueError:
            return stored


class _Decrypted:
    """A watch whose changes come out plain."""

    def __init__(self, watch: Watch, store: EncryptedStore) -> None:
        self._watch = watch
        self._store = store

    def __iter__(self) -> Iterator[list[Change]]:
        for batch in self._watch:
            yield [self._store.change(change) for change in batch]

    def cancel(self) -> None:
        """End the iteration."""
        self._watch.cancel()
