"""Documents of a node: deltas, and the file that keeps the last declared set (digests.py has their canonical form).

A document is what was declared for one section: ``{key: entry}``. Its digest decides whether something has to be
sent, never whether the node is right (the sections observe for that). The file is written last, after the effects:
a pass that was killed leaves the older digest behind, so that the same delta fits again. The pass is in section.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .digests import EMPTY_DIGEST, Entries, canonical, section_digest
from .files import read_bytes, read_json, write_atomically
from .paths import document_path

if TYPE_CHECKING:
    from collections.abc import Iterable


BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Document(NamedTuple):
    """One section's last declared set, as it stands in ``<state_dir>/documents/<section>.json``."""

    digest: str
    entries: dict[str, dict[str, Any]]
    pending: frozenset[str] = frozenset()
    """Keys that were declared and not realized; after a boot all, for what a boot takes away nobody changed."""


def apply_delta(base: Entries, upsert: Entries, delete: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return ``base`` without the keys of ``delete`` and with ``upsert``; nothing is changed in place."""
    gone = set(delete)
    kept = {key: dict(entry) for key, entry in base.items() if key not in gone}
    kept.update({key: dict(entry) for key, entry in upsert.items()})
    return kept


KEPT_BY_KEY = frozenset({"services", "policies"})
"""Sections whose last declared set is kept by keyed_documents.py, not in a JSON file."""


def _kept(state_dir: str, section: str) -> dict[str, Any] | None:
    """Return ``{"digest", "node", "entries"}`` of a section that is kept by key, None when nothing was declared."""
    from .keyed_documents import stored  # noqa: PLC0415  (it imports this file, and sqlite3)

    found = stored(state_dir, section)
    return dict(zip(("node", "digest", "entries"), found)) if found else None


def load_document(state_dir: str, section: str) -> Document:
    """Return the last declared set; a missing or unreadable file is the empty document."""
    if section in KEPT_BY_KEY:
        kept = _kept(state_dir, section) or {"digest": EMPTY_DIGEST, "entries": {}}
        return Document(kept["digest"], kept["entries"])
    found = read_json(document_path(state_dir, section))
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, dict):
        return Document(EMPTY_DIGEST, {})
    return Document(section_digest(entries), entries, _pending(found, entries))


def _pending(found: dict[str, Any], entries: Entries) -> frozenset[str]:
    if found.get("boot") != boot_id():
        return frozenset(entries)
    return frozenset(found.get("pending") or ())


def boot_id() -> str:
    """Return what tells one boot of this machine from another."""
    return (read_bytes(BOOT_ID) or b"").decode().strip()


def is_stored(state_dir: str, section: str, digest: str, pending: Iterable[str]) -> bool:
    """Return whether the set with ``digest`` is the last one that was declared, with these keys ``pending``."""
    found = read_json(document_path(state_dir, section))
    if not isinstance(found, dict) or found.get("digest") != digest:
        return False
    return found.get("boot") == boot_id() and found.get("pending") == sorted(pending)


def stored_digest(state_dir: str, section: str) -> str | None:
    """Return the digest of the last declared set, or None when nothing was ever declared."""
    found = _kept(state_dir, section) if section in KEPT_BY_KEY else read_json(document_path(state_dir, section))
    return found.get("digest") if isinstance(found, dict) else None


def stored_node(state_dir: str, section: str) -> str | None:
    """Return the node name the section was last declared for, None when it never was."""
    found = _kept(state_dir, section) if section in KEPT_BY_KEY else read_json(document_path(state_dir, section))
    return found.get("node") if isinstance(found, dict) else None


def save_document(state_dir: str, section: str, node: str, entries: Entries, pending: Iterable[str] = ()) -> str:
    """Write the declared set (mode 0600, atomically, synced) and return its digest."""
    digest = section_digest(entries)
    header = {"digest": digest, "node": node, "pending": sorted(pending), "boot": boot_id()}
    content = canonical({**header, "entries": entries})
    write_atomically(document_path(state_dir, section), content, sync=True)
    return digest
