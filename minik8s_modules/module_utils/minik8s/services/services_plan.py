"""From the services a node should have, and the rules it has, to the rules to delete and to add. Pure.

A rule is (table, key, value), whatever the backend makes of it: an element of an nft map, a virtual server, an address.
Every rule belongs to the entry (service port) that wants it; what nobody wants goes. Rules are compared as they are;
a changed value is a deletion and an addition of the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Callable, NamedTuple

from ..core.faults import KeyFault
from ..core.section import TIDY, Facets, Step

SHARED = frozenset(f"{family}{table}" for family in ("", "ipv6 ") for table in ("addresses", "announced", "uplink"))
"""Tables whose rules are one for all ports of a service: its addresses, wherever they are."""
SHOWN = 500
"""Keys told one by one; of a cold load of 44,000 services nobody reads each."""
LEFTOVERS = "left over"
"""The key of all that we left ourselves; no rule is told by this name."""


class Rule(NamedTuple):
    """One element; key and value are the backend's, and hashable."""

    table: str
    key: Any
    value: Any


Rules = dict[str, dict[Any, Any]]
"""``{table: {key: value}}``, as the node has them."""


class FixedPart(NamedTuple):
    """The fixed part: what is, and what should be, by aspect; of an optional one any state is accepted."""

    seen: Facets
    wanted: Facets

    def wrong(self) -> list[str]:
        """Return the aspects to mend."""
        return [aspect for aspect in self.wanted if self.seen.get(aspect) != self.wanted[aspect]]


@dataclass
class RulePlan:
    """What to do; ``before`` and ``after`` for the diff, ``steps`` for the report."""

    delete: list[Rule] = field(default_factory=list)
    add: list[Rule] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    before: dict[str, Facets | None] = field(default_factory=dict)
    after: dict[str, Facets | None] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def gone(self) -> list[Rule]:
        """Return the deleted rules whose value no added rule has at any key of the same table and place."""
        kept = {(rule.table, rule.key[:-4], rule.value) for rule in self.add if isinstance(rule.key, bytes)}
        return [
            rule
            for rule in self.delete
            if not isinstance(rule.key, bytes) or (rule.table, rule.key[:-4], rule.value) not in kept
        ]


class Words(NamedTuple):
    """How a backend's rules are told to people; ``ours`` says of one that no entry wants whether we left it."""

    shown: Callable[[Rule], tuple[str, str]]
    place_of: Callable[[Rule], str]
    ours: Callable[[Rule], bool] = lambda _: False


def plan_rules(
    wanted: Mapping[str, list[Rule]],
    stale: Iterable[Rule],
    seen: Rules,
    words: Words,
    owners: Mapping[tuple[str, Any], str] = MappingProxyType({}),
) -> RulePlan:
    """Return the plan for the entries ``wanted`` (their rules by key); ``stale`` rules go unless one of them is wanted.

    ``seen`` holds at least the keys of both; ``owners`` says, by table and key, which entry a stale rule is known to be
    of. The others are told by where they listen.
    """
    plan = RulePlan()
    kept = {(rule.table, rule.key) for rules in wanted.values() for rule in rules}
    leftovers: dict[str, list[Rule]] = {}
    for rule in stale:
        value = seen.get(rule.table, {}).get(rule.key)
        if value is not None and (rule.table, rule.key) not in kept:
            left = rule._replace(value=value)
            owner = owners.get((rule.table, rule.key)) or words.place_of(left)
            leftovers.setdefault(owner, []).append(left)
    for key, rules in wanted.items():
        _plan_entry(plan, key, (rules, leftovers.pop(key, [])), seen, words)
    ours = list[Rule]()
    for place, rules in leftovers.items():
        plan.delete += rules
        if all(map(words.ours, rules)):
            ours += rules
        else:
            _tell(plan, "remove", place, (rules, []), words)
    if ours:  # apart from the others, whose number "and N more" tells as drift
        _show(plan, TIDY, LEFTOVERS, (ours[:SHOWN], []), words)
    if len(plan.touched) > SHOWN:
        more = f"and {len(plan.touched) - SHOWN} more"
        plan.steps.append(Step("load", more, f"{len(plan.delete)} rules go, {len(plan.add)} come"))
    return plan


def _plan_entry(plan: RulePlan, key: str, rules: tuple[list[Rule], list[Rule]], seen: Rules, words: Words) -> None:
    """Plan the rules that an entry wants, and those it had and wants no more."""
    before, after = list[Rule](), list[Rule]()
    for rule in rules[0]:
        value = seen.get(rule.table, {}).get(rule.key)
        if value == rule.value:
            continue
        if value is not None:
            before.append(rule._replace(value=value))
        after.append(rule)
    before += rules[1]
    if not after and not before:
        return
    plan.delete += before
    plan.add += after
    _tell(plan, "set", key, (before, after), words)


def _tell(plan: RulePlan, action: str, key: str, rules: tuple[list[Rule], list[Rule]], words: Words) -> None:
    plan.touched.add(key)
    if len(plan.touched) <= SHOWN:
        _show(plan, action, key, rules, words)


def _show(plan: RulePlan, action: str, key: str, rules: tuple[list[Rule], list[Rule]], words: Words) -> None:
    before, after = (dict(map(words.shown, each)) for each in rules)
    plan.before[key] = before or None
    plan.after[key] = after or None
    detail = ", ".join(f"{what} {text}" for what, text in (after or before).items())
    plan.steps.append(Step(action, key, detail[:300]))


def leftovers_of(seen: Rules, wanted: Mapping[str, list[Rule]]) -> list[Rule]:
    """Return everything seen that no entry wants."""
    kept: dict[str, set[Any]] = {}
    for rules in wanted.values():
        for rule in rules:
            kept.setdefault(rule.table, set()).add(rule.key)
    empty: set[Any] = set()
    return [
        Rule(table, key, value)
        for table, found in seen.items()
        for key, value in found.items()
        if key not in kept.get(table, empty)
    ]


def result(
    section: str,
    digest: str,
    *,
    steps: list[Step] | None = None,
    diff: Mapping[str, str] | None = None,
    errors: Mapping[str, KeyFault] | None = None,
    status: Mapping[str, Any] | None = None,
    base_mismatch: bool = False,
) -> dict[str, Any]:
    """Return the result that docs/reference/node-document.md describes."""
    return {
        "changed": bool(steps),
        "diff": dict(diff or {"before": "", "after": ""}),
        "section": section,
        "digest": digest,
        "steps": [{"action": step.action, "key": step.key, "detail": step.detail} for step in steps or []],
        "status": dict(status or {}),
        "errors": {key: {"reason": fault.reason, "message": str(fault)} for key, fault in (errors or {}).items()},
        "due": [],
        "held": [],
        "base_mismatch": base_mismatch,
        "fenced": False,
    }
