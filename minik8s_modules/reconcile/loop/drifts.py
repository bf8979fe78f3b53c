"""What of a node's answer is drift: somebody changed what the node had as it was declared. Pure, but for its memory.

A step tells drift when the node once had this very entry without an error and has another state now. A step that leads
from one declaration to the next, or does again what failed or was put off, does not; neither does anything a node is
asked for the first time. Only passes over a whole section are judged: a delta touches what changed by our own doing.
``Realized`` is the memory of one node; ``drift_events.py`` tells people, ``planning/drifting.py`` answers them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.section import TIDY
from minik8s_modules.module_utils.minik8s.names import dns_entries, ingress_entries
from minik8s_modules.module_utils.minik8s.policies.policy_entries import FILTER
from minik8s_modules.module_utils.minik8s.services.services_entries import DATAPLANE
from minik8s_modules.module_utils.minik8s.volumes import secrets, tmpfs
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.values.values import Entries, Entry

SHARED = {
    "policies": frozenset({FILTER}),
    "secrets": frozenset({secrets.SEAL_KEY, tmpfs.KEY}),
    "services": frozenset({DATAPLANE}),
    "dns": frozenset({dns_entries.SERVER}),
    "ingress": frozenset({ingress_entries.SERVER}),
}
"""Keys that have steps of their own whenever another key of the section changes: one file or table holds them all."""

_ATTACHING = frozenset({"attach", "plug"})
"""Steps of a sandbox that runs without its network."""


class Difference(NamedTuple):
    """One key that was not as the node had had it.

    Attributes:
        what: the steps that put it right, or the error that keeps it from being so.
        since: when the section was last seen to be right; None when that is not known.
    """

    section: str
    key: str
    what: str
    since: datetime | None
    healed: bool
    held: bool = False
    """Whether it is left so by a policy."""


def drifted(
    section: str, steps: Collection[str], errors: Collection[str], wanted: Entries, realized: Entries
) -> frozenset[str]:
    """Return the keys with ``steps`` or ``errors`` towards ``wanted`` that the node had had so before."""

    def same(key: str) -> bool:
        return realized.get(key) == wanted.get(key)  # None both: nobody declared it, and there it is

    shared = SHARED.get(section, frozenset())
    ours = any(not same(key) for key in steps if key not in shared and key not in errors)
    return frozenset(key for key in {*steps, *errors} if same(key) and not (ours and key in shared))


def without_network(result: JsonObject) -> set[str]:
    """Return the pods that a pass over sandboxes found without their network and left so."""
    left = {*result["errors"], *(str(due["key"]) for due in result["due"])}
    attaching = [str(step["key"]) for step in result["steps"] if step["action"] in _ATTACHING]
    held = {str(step["key"]) for step in result["held"] if step["action"] in _ATTACHING}
    return {key for key in attaching if key in left} | held


class Realized:
    """What a node has had as declared since we know it, by section and key."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {}
        self._right_at: dict[str, datetime] = {}
        self.held: dict[str, dict[str, Difference]] = {}
        """What is left as somebody else made it, by section and key."""

    def known(self) -> dict[str, Entries]:
        """Return the entries by section; a section that was never looked at as a whole is missing."""
        return {section: dict(entries) for section, entries in self._entries.items()}

    def take(self, section: str, request: Request, result: JsonObject, now: datetime) -> list[Difference]:
        """Take over a pass over the section, and return what of it was drift."""
        found = []
        if request.keys is None:
            since = self._right_at.get(section)
            if section in self._entries:
                found = _differences(section, request.entries, result, self._entries[section], since)
            found += self._hold(section, request, result, since)
            self._right_at[section] = now
        else:
            found = self._hold(section, request, result, self._right_at.get(section))
        pending = {*result["errors"], *(str(due["key"]) for due in result["due"])}
        self._remember(section, request, pending)
        return found

    def _hold(self, section: str, request: Request, result: JsonObject, since: datetime | None) -> list[Difference]:
        """Note what the pass left as it is; ``since`` is of what was not known before."""
        before = self.held.get(section, {})
        found = {
            key: Difference(section, key, what, before[key].since if key in before else since, healed=False, held=True)
            for key, what in sorted(_steps(result["held"]).items())
        }
        kept = {} if request.keys is None else {key: one for key, one in before.items() if key not in request.keys}
        self.held[section] = kept | found
        return [one for key, one in found.items() if key not in request.ignored]

    def _remember(self, section: str, request: Request, pending: set[str]) -> None:
        """Note what the node has now; of a key that is ``pending`` it still has what it had, if that is declared."""
        known, wanted = self._entries.get(section), request.entries
        if request.keys is None:
            had = known or {}
            kept = {key: had[key] for key in pending if key in had and had[key] == wanted.get(key)}
            self._entries[section] = {key: one for key, one in wanted.items() if key not in pending} | kept
        elif known is not None:
            for key in request.keys:
                if key in wanted and (key not in pending or known.get(key) == wanted[key]):
                    known[key] = wanted[key]
                elif key in wanted or key not in pending:
                    known.pop(key, None)


def _steps(steps: Sequence[JsonObject]) -> dict[str, str]:
    """Return the steps of each key in words, but for those that take away what we left ourselves."""
    found: dict[str, list[str]] = {}
    for step in steps:
        if step["action"] != TIDY:
            found.setdefault(str(step["key"]), []).append(f"{step['action']} {step['detail']}".strip())
    return {key: ", ".join(each) for key, each in found.items()}


def _differences(
    section: str, wanted: Entries, result: JsonObject, realized: Entries, since: datetime | None
) -> list[Difference]:
    steps = _steps(result["steps"])
    errors: Mapping[str, JsonObject] = result["errors"]
    return [
        Difference(section, key, str(errors[key].get("message")), since, healed=False)
        if key in errors
        else Difference(section, key, steps[key], since, healed=True)
        for key in sorted(drifted(section, steps, errors, wanted, realized))
    ]
