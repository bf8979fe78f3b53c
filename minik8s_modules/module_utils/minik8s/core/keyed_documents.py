"""The declared services and policies of a node, in a file each that a delta need not read as a whole.

With 10,000 services the JSON of a section takes 46 ms to parse and more to write, so these sections keep their entries
in SQLite (``<state_dir>/documents/<section>.db``; sqlite3 is part of Python): a delta reads and writes its own keys.
The section's digest is the same as everywhere (documents.py), made of the entries' digests. A file that cannot be read
counts as empty: the next delta does not fit, and the whole set is sent. ``extra`` holds what the backend remembers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from .digests import EMPTY_DIGEST, canonical, digest_of_digests
from .files import remove_file

Entries = dict[str, dict[str, Any]]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, address TEXT, entry TEXT, digest TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS addresses ON entries (address);
CREATE TABLE IF NOT EXISTS extra (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
_ROWS = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)"
_BY_KEY = "SELECT key, entry FROM entries WHERE key = ?"
_BY_ADDRESS = "SELECT key, entry FROM entries WHERE address = ?"


def database_path(state_dir: str, section: str) -> str:
    """Return where the section's entries are kept."""
    return os.path.join(state_dir, "documents", section + ".db")


class Ledger:
    """The declared set on disk; open it under the node's lock. ``readable`` only: a check run creates nothing."""

    def __init__(self, state_dir: str, section: str, *, readable: bool = False) -> None:
        self._path = database_path(state_dir, section)
        self._readable = readable
        self._database = self._open()
        self.dirty = False

    def __enter__(self) -> Ledger:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; what was not committed is lost."""
        self._database.close()

    def _open(self) -> sqlite3.Connection:
        if self._readable and not os.path.exists(self._path):
            return self._empty()
        try:
            return _connect(self._path)
        except sqlite3.DatabaseError:
            if self._readable:
                return self._empty()
            remove_file(self._path)
            remove_file(self._path + "-journal")
            return _connect(self._path)

    def _empty(self) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:")
        database.executescript(_SCHEMA)
        return database

    def digest(self) -> str:
        """Return the digest of the set as it was last declared."""
        return str(self.extra().get("digest", EMPTY_DIGEST))

    def extra(self) -> dict[str, Any]:
        """Return what is kept beside the entries."""
        return {name: json.loads(value) for name, value in self._database.execute("SELECT name, value FROM extra")}

    def entries(self, keys: Iterable[str] | None = None) -> Entries:
        """Return the declared entries, or those of ``keys``."""
        if keys is None:
            return _parsed(self._database.execute("SELECT key, entry FROM entries"))
        return self._select(_BY_KEY, list(keys))

    def at_addresses(self, addresses: Iterable[str]) -> Entries:
        """Return the entries that have one of these addresses."""
        return self._select(_BY_ADDRESS, list(addresses))

    def _select(self, statement: str, values: list[str]) -> Entries:
        return _parsed(row for value in values for row in self._database.execute(statement, (value,)))

    def replace(self, entries: Mapping[str, Any]) -> str:
        """Declare a whole set; return its digest."""
        rows = [_row(key, entry) for key, entry in entries.items()]
        digest = digest_of_digests({row[0]: row[3] for row in rows})
        if digest != self.digest():
            self._database.execute("DELETE FROM entries")
            self._database.executemany(_ROWS, rows)
            self.dirty = True
        return digest

    def change(self, upsert: Mapping[str, Any], delete: Iterable[str]) -> str:
        """Declare some entries and take others back; return the digest of the set after it."""
        self._database.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in delete])
        self._database.executemany(_ROWS, [_row(key, entry) for key, entry in upsert.items()])
        self.dirty = True
        return digest_of_digests(dict(self._database.execute("SELECT key, digest FROM entries")))

    def commit(self, **extra: Any) -> None:
        """Make it last, with what is to be kept beside the entries; nothing is written when nothing changed."""
        known = self.extra()
        changed = {name: value for name, value in extra.items() if known.get(name) != value}
        if not self.dirty and not changed:
            return
        rows = [(name, json.dumps(value)) for name, value in changed.items()]
        self._database.executemany("INSERT OR REPLACE INTO extra VALUES (?, ?)", rows)
        self._database.commit()


def _connect(path: str) -> sqlite3.Connection:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=TRUNCATE")
    database.executescript(_SCHEMA)
    return database


def _row(key: str, entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    text = canonical(entry)
    return (
        key,
        str(entry.get("address") or entry.get("address_ipv6") or ""),
        text.decode(),
        hashlib.sha256(text).hexdigest(),
    )


def _parsed(rows: Iterable[tuple[str, str]]) -> Entries:
    return {key: json.loads(entry) for key, entry in rows}


def stored(state_dir: str, section: str) -> tuple[str, str, Entries] | None:
    """Return (node, digest, entries) as last declared, None when nothing ever was or it cannot be read."""
    if not os.path.exists(database_path(state_dir, section)):
        return None
    with Ledger(state_dir, section, readable=True) as ledger:
        node = ledger.extra().get("node")
        return (str(node), ledger.digest(), ledger.entries()) if node else None
