"""The canonical form of a document's entries, and the digests that say whether two are the same. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Entry = Mapping[str, Any]
Entries = Mapping[str, Entry]


def canonical(value: Any) -> bytes:
    """Return the one JSON spelling of ``value``: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def entry_digest(entry: Entry) -> str:
    """Return the sha256 (hex) of the entry's canonical JSON."""
    return hashlib.sha256(canonical(entry)).hexdigest()


def digest_of_digests(digests: Mapping[str, str]) -> str:
    """Return the section digest for ``{key: entry digest}``; lets a caller keep entry digests and skip the JSON."""
    lines = (f"{key}\0{digests[key]}\n" for key in sorted(digests))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def section_digest(entries: Entries) -> str:
    """Return the sha256 (hex) over the lines ``<key>NUL<entry digest>LF``, sorted by key."""
    return digest_of_digests({key: entry_digest(entry) for key, entry in entries.items()})


EMPTY_DIGEST = section_digest({})
