"""Section ``policies``: NetworkPolicies, and the Pods they tell of.

A pass of its own, as that of services: all changes are one transaction, entries are kept by key, and a delta reads the
rules of its own keys alone. Where one finds that somebody changed the table meanwhile, it becomes whole. The section
stands before those that make Pods, so a Pod is isolated before its first packet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..core.keyed_documents import Entries, Ledger
from ..core.section import Context, Facets, Request, Step, as_text, differences
from ..network.isolation import NOT_ENFORCED
from ..services.services_host import bridge_rules_possible
from ..services.services_plan import SHOWN, Rule, RulePlan, Words, leftovers_of, plan_rules, result
from .policy_entries import DIRECTIONS, FILTER, POLICY, check_entry, is_key
from .policy_rules import (
    CHAIN,
    IPV4,
    IPV6,
    SET,
    SWITCH,
    Family,
    chain_name,
    is_element,
    place_of,
    rules_of,
    shown,
    ways_in,
)
from .policy_table import PolicyTable, is_left

DRIVERS = frozenset({"bridge", "vxlan"})
KNOWN = {IPV4.word: "known", IPV6.word: "known_ipv6"}
"""What the ledger keeps of the chains of each family."""


def _shown_ipv6(rule: Rule) -> tuple[str, str]:
    what, text = shown(rule)
    return f"{IPV6.word} {what}", text


WORDS = {IPV4.word: Words(shown, place_of, is_left), IPV6.word: Words(_shown_ipv6, place_of, is_left)}


def families_of(config: Mapping[str, Any] | None) -> list[Family]:
    """Return the families that have a table; IPv4 is always one."""
    if config is None:
        return []
    return [IPV4, IPV6] if config.get("ipv6") else [IPV4]


def _table_of(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return how a family's table is realized."""
    name = str(config["table"])
    return {**config, "table": name if family == IPV4 else f"{family.word} {name}"}


class Declared(NamedTuple):
    """What a pass looks at: ``entries`` should be, ``previous`` was declared before; ``whole``: nothing else may be."""

    entries: Entries
    previous: Entries
    config: Mapping[str, Any] | None
    was: Mapping[str, Any] | None
    digest: str
    whole: bool


def declare(ledger: Ledger, request: Request) -> Declared | None:
    """Take the request over into the ledger (committed later); None for a foreign base."""
    was = ledger.entries([FILTER]).get(FILTER)
    if request.mode == "full":
        entries = dict(request.entries or {})
        return Declared(entries, {}, entries.get(FILTER), was, ledger.replace(entries), whole=True)
    if ledger.digest() != request.base:
        return None
    upsert, delete = dict(request.upsert or {}), list(request.delete or ())
    previous = ledger.entries({*upsert, *delete})
    digest = ledger.change(upsert, delete)
    if FILTER in upsert or FILTER in delete:
        entries = ledger.entries()
        return Declared(entries, {}, entries.get(FILTER), was, digest, whole=True)
    return Declared(upsert, previous, was, was, digest, whole=False)


class Policies:
    """The section."""

    name = "policies"

    def realize(self, request: Request, context: Context, *, check: bool) -> dict[str, Any]:
        """Run one pass; the node's lock is held and the token is good."""
        with Ledger(request.state_dir, self.name, readable=check) as ledger:
            declared = declare(ledger, request)
            if declared is None:
                return result(self.name, ledger.digest(), base_mismatch=True)
            return Pass(ledger, declared, context, check=check).run()


class Pass:
    """One pass: observe → plan → apply → report."""

    def __init__(self, ledger: Ledger, declared: Declared, context: Context, *, check: bool) -> None:
        self._ledger, self._declared, self._context, self._check = ledger, declared, context, check
        self._errors: dict[str, KeyFault] = {}
        self._steps: list[Step] = []
        self._before: dict[str, Facets | None] = {}
        self._after: dict[str, Facets | None] = {}

    def run(self) -> dict[str, Any]:
        """Return the result of the pass."""
        before = self._ledger.extra()
        known: dict[str, dict[str, str]] = {word: dict(before.get(name) or {}) for word, name in KNOWN.items()}
        config = self._config()
        try:
            self._leave(config)
            if config is not None:
                self._realize(config, known)
        except (KeyFault, OSError) as error:
            self._errors[FILTER] = error if isinstance(error, KeyFault) else KeyFault("NodeError", str(error))
        declared = self._declared
        if not self._check:
            if self._ledger.dirty:
                self._context.checkpoint("document policies")
            kept = {name: known[word] for word, name in KNOWN.items() if known[word] or word == IPV4.word}
            self._ledger.commit(node=self._context.node, digest=declared.digest, **kept, faults=self._faults())
        found = result(
            "policies",
            declared.digest,
            steps=self._steps,
            diff={"before": as_text(self._before), "after": as_text(self._after)},
            errors=self._errors,
            status=self._status(),
        )
        return {**found, **differences(self._before, self._after)} if self._check else found

    def _faults(self) -> dict[str, str]:
        """Return what is not realized, by key: sandboxes ask (network/isolation.py)."""
        looked_at = {*self._declared.entries, *self._declared.previous, FILTER}
        kept = {} if self._declared.whole else dict(self._ledger.extra().get("faults") or {})
        kept = {key: text for key, text in kept.items() if key not in looked_at}
        return kept | {key: str(fault) for key, fault in self._errors.items()}

    def _status(self) -> dict[str, Any]:
        declared = self._declared
        if len(declared.entries) > SHOWN:
            return dict.fromkeys(self._errors)
        gone = dict.fromkeys(key for key in declared.previous if key not in declared.entries)
        broken = FILTER in self._errors
        return {
            **gone,
            **{key: None if broken or key in self._errors else {"state": "present"} for key in declared.entries},
        }

    def _config(self) -> Mapping[str, Any] | None:
        """Return how policies are realized, None for not at all; entries without it are errors."""
        declared = self._declared
        if declared.config is None:
            for key in declared.entries:
                self._errors[key] = KeyFault("InvalidEntry", f"{key}: the section has no entry {FILTER!r}")
            return None
        try:
            check_entry(FILTER, declared.config)
        except KeyFault as fault:
            self._errors[FILTER] = fault
            return None
        driver = declared.config["driver"]
        if driver not in DRIVERS:
            text = f"the network driver is {driver}: its own program must hold back what NetworkPolicies do not allow"
            self._errors[FILTER] = KeyFault(NOT_ENFORCED, text)
            return None
        return declared.config

    def _leave(self, config: Mapping[str, Any] | None) -> None:
        """Remove the table that was declared before, where another or none is declared now."""
        was = self._declared.was
        if was is None or was["driver"] not in DRIVERS:
            return
        same = config is not None and was["table"] == config["table"]
        kept = families_of(config) if same else []
        for family in families_of(was):
            if family not in kept:
                self._remove(_table_of(was, family))

    def _remove(self, was: Mapping[str, Any]) -> None:
        table = PolicyTable(self._context.node, was, {})
        with contextlib.closing(table):
            if not table.exists():
                return
            self._steps.append(Step("remove", FILTER, f"table {was['table']}"))
            self._before[FILTER], self._after[FILTER] = {"table": str(was["table"])}, None
            if not self._check:
                self._context.checkpoint("remove policies")
                table.remove()

    def _realize(self, config: Mapping[str, Any], known: dict[str, dict[str, str]]) -> None:
        bridged = bridge_rules_possible()
        for family in families_of(config):
            self._realize_family(config, family, known[family.word], bridged=bridged)
        if not bridged:
            text = "Pods of this node reach each other whatever policies say: load the kernel's module br_netfilter"
            self._errors[FILTER] = KeyFault(NOT_ENFORCED, text)

    def _realize_family(
        self, config: Mapping[str, Any], family: Family, known: dict[str, str], *, bridged: bool
    ) -> None:
        table = PolicyTable(self._context.node, _table_of(config, family), known)
        with contextlib.closing(table):
            if not self._declared.whole and not table.exists():
                self._become_whole()
            try:
                self._converge(table, family, bridged=bridged)
            except OSError:
                if self._declared.whole:
                    raise
                self._become_whole()  # somebody changed the table: all of it is looked at
                self._converge(table, family, bridged=bridged)
            finally:
                known.clear()
                known.update(table.known)

    def _become_whole(self) -> None:
        self._declared = self._declared._replace(entries=self._ledger.entries(), previous={}, whole=True)

    def _usable(self, entries: Entries) -> Entries:
        usable, holders = {}, dict[str, str]()
        for key in sorted(entries):
            try:
                check_entry(key, entries[key])
                for each in {str(entries[key].get(family.field) or key) for family in (IPV4, IPV6)}:
                    holder = holders.setdefault(each, key)
                    if holder != key:
                        raise KeyFault("InvalidEntry", f"{key}: {holder} has the same address")  # noqa: TRY301
                usable[key] = entries[key]
            except KeyFault as fault:
                self._errors[key] = fault
        return usable

    def _converge(self, table: PolicyTable, family: Family, *, bridged: bool) -> None:
        declared = self._declared
        there = table.exists()
        usable = self._usable(declared.entries)
        wanted = {key: rules_of(key, entry, bridged=bridged, family=family) for key, entry in usable.items()}
        wanted[FILTER] = [*wanted.get(FILTER, ()), *ways_in(usable, family)]
        wanted.update(self._shut(declared.entries))
        every = [rule for rules in wanted.values() for rule in rules]
        stale, owners = list[Rule](), dict[tuple[str, Any], str]()
        if declared.whole:
            seen = table.read(every, whole=True) if there else {}
            seen[SWITCH] = table.switches()
            stale = [rule for rule in leftovers_of(seen, wanted) if is_element(rule) or rule.table in {CHAIN, SET}]
        else:
            previous = self._previous(family)
            owners = {(rule.table, rule.key): key for key, rules in previous.items() for rule in rules}
            stale = [rule for rules in previous.values() for rule in rules]
            seen = table.read([*stale, *every], whole=False)
        plan = plan_rules(wanted, stale, seen, WORDS[family.word], owners)
        if not self._check:
            self._apply(table, plan, every, there=there)
        self._steps += plan.steps
        for told, found in ((self._before, plan.before), (self._after, plan.after)):
            for key, facets in found.items():
                told[key] = {**(told.get(key) or {}), **(facets or {})} or None

    def _shut(self, entries: Entries) -> dict[str, list[Rule]]:
        """Return the chains of policies that cannot be used, empty: whom they select takes what others allow."""
        known = (key for key in entries if is_key(key, POLICY) and key in self._errors)
        return {key: [Rule(CHAIN, chain_name(each, key), "") for each in DIRECTIONS] for key in known}

    def _previous(self, family: Family) -> dict[str, list[Rule]]:
        """Return the elements of what was declared before for each key of a delta, but those that others have too.

        Chains and sets may be others' as well: those that nobody wants any more go when all of it is looked at.
        """
        previous, rules = self._declared.previous, dict[str, list[Rule]]()
        for key, entry in previous.items():
            with contextlib.suppress(KeyFault):
                check_entry(key, entry)
                rules[key] = [rule for rule in rules_of(key, entry, family=family) if is_element(rule)]
        known = (entry.get("address") or entry.get("address_ipv6") for entry in previous.values())
        addresses = {str(address) for address in known if address}
        shared = {
            (rule.table, rule.key)
            for key, entry in self._ledger.at_addresses(addresses).items()
            for rule in rules_of(key, entry, family=family)
        }
        return {key: [rule for rule in each if (rule.table, rule.key) not in shared] for key, each in rules.items()}

    def _apply(self, table: PolicyTable, plan: RulePlan, every: list[Rule], *, there: bool) -> None:
        delete, add = ([rule for rule in rules if rule.table != SWITCH] for rules in (plan.delete, plan.add))
        if delete or add:
            self._context.checkpoint("rules of policies")
            try:
                table.write(delete, add)
            except KeyFault:
                if not there or not self._declared.whole:
                    raise
                rules = [rule for rule in every if rule.table != SWITCH]
                table.write([], rules, replace=True)  # somebody gave it another shape
        if len(add) < len(plan.add):
            self._context.checkpoint("rules of the bridge")
            table.switch_on()
