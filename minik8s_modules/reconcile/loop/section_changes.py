"""From what a node should be and what it confirmed to the options of its next item. Pure.

A section is sent in full while the node's set is not known, else as a delta against the digest the node last
answered with. What changes nothing on the node by itself is not worth an item; it goes along with the next one: a
container that ended and is to be kept, and a Service that has no endpoints yet, of which nftables has no rule.
Variables of Services, which a container that runs was given once, stay in its entry as they were given: whoever makes
it again from the document has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.services.services_entries import DATAPLANE
from minik8s_modules.reconcile.values.values import Entries


class Confirmed(NamedTuple):
    """The set a node declared itself to have, with the digest it answered."""

    digest: str
    entries: Entries


class Request(NamedTuple):
    """What to ask of one section: the options, the set the node has after it, and the keys it looks at (None: all).

    ``ignored`` are those of the keys to hold that nobody is told of (drift_holds.py).
    """

    options: JsonObject
    entries: Entries
    keys: frozenset[str] | None
    ignored: frozenset[str] = frozenset()


def full(wanted: Entries) -> Request:
    """Return the request that observes and converges the whole section."""
    return Request({"mode": "full", "entries": dict(wanted)}, wanted, None)


def delta(wanted: Entries, confirmed: Confirmed, again: AbstractSet[str]) -> Request | None:
    """Return the request that leads from ``confirmed`` to ``wanted`` and looks at ``again`` too; None for no need.

    Both mappings are kept and must not be changed later; the same one again (10,000 services) needs no comparison.
    """
    if wanted is confirmed.entries and not again:
        return None
    upsert = {key: entry for key, entry in wanted.items() if not _same(confirmed.entries.get(key), entry)}
    if given := {key: confirmed.entries[key] for key, entry in upsert.items() if _has_links(confirmed, key, entry)}:
        wanted = {**wanted, **given}
        upsert = {key: entry for key, entry in upsert.items() if key not in given}
    delete = sorted(key for key in confirmed.entries if key not in wanted)
    repeated = {key: wanted[key] for key in again if key in wanted}
    absent = sorted(key for key in again if key not in wanted and key not in delete)
    changes = delete or repeated or absent
    if not changes and all(_idle(confirmed.entries.get(k), e, wanted) for k, e in upsert.items()):
        return None
    options = {
        "mode": "delta",
        "base": confirmed.digest,
        "upsert": upsert | repeated,
        "delete": delete + absent,
    }
    return Request(options, wanted, frozenset(upsert) | frozenset(repeated) | frozenset(delete + absent))


def _same(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    return before is after or before == after


def _has_links(confirmed: Confirmed, key: str, after: Mapping[str, Any]) -> bool:
    """Return whether all that ``after`` lacks of what was confirmed are variables of Services."""
    before = confirmed.entries.get(key)
    return (
        before is not None
        and "links" in before
        and "links" not in after
        and before == {**after, "links": before["links"]}
    )


def _idle(before: Mapping[str, Any] | None, after: Mapping[str, Any], section: Entries) -> bool:
    """Return whether the node has nothing to do when ``before`` becomes ``after`` in ``section``."""
    if before is None and "endpoints" in after and not after["endpoints"] and not after.get("node_endpoints"):
        return section.get(DATAPLANE, {}).get("mode") == "nftables"
    if before is None or after.get("state") != "kept" or after.get("stop") is not None or before.get("stop"):
        return False
    return all(before.get(name) == after.get(name) for name in _HELD)


_HELD = ("attempt", "cpu_shares", "cpu_quota_us", "memory_bytes")
"""What counts of a container that is left as it is otherwise."""
