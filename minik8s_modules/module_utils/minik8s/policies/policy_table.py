"""Rules of policies as the kernel has them: what is there, and one transaction that changes it.

What changes chains or sets is written by ``nft -f``, with the elements that go with it; where elements alone change,
which is what Pods that come and go do, they travel by netlink. A chain is known to be right by the digest of the text
it was written from and that of the kernel's own bytes of it (``known``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.faults import KeyFault
from ..network import nftables_wire as wire_words
from ..network.netfilter import mark_of
from ..network.nftables_wire import Change, SetKind
from ..network.wire import NETFILTER, Wire
from ..services.nftables_table import head_of, in_words, run_nft
from ..services.services_host import Host, device
from ..services.services_plan import Rule, Rules
from .policy_rules import BRIDGE_RULES, CHAIN, IPV4, IPV6, SET, SWITCH, element_text, is_element, is_set

_IPV4, _IPV6, _SERVICE, _VERDICT, _BITS = 7, 8, 13, 0xFFFFFF00, 6  # numbers of nft's types (libnftables datatype.h)
KINDS = {
    kind: text
    for family, number in ((IPV4, _IPV4), (IPV6, _IPV6))
    for kind, text in (
        (SetKind(number, 0), family.address),
        (SetKind(number << _BITS | number, 0), family.pair),
        (SetKind(number << _BITS | _SERVICE, 0), family.place),
        (SetKind(number, _VERDICT), family.verdicts),
    )
}
FEW_CHAINS = 16
"""So many are asked for one by one; more are read with all others."""
CHANGED, PRESENT, LEFT = "changed", "present", "left over"


class PolicyTable:
    """The table of one node; one pass, one thread."""

    def __init__(self, node: str, config: Mapping[str, Any], known: Mapping[str, str]) -> None:
        self._name, self._node = str(config["table"]), node
        self._wire = Wire(NETFILTER)
        self._host = Host(config)
        self.known = dict(known)
        """Digests of each chain's text and of what the kernel made of it."""

    def close(self) -> None:
        """Close the sockets."""
        self._wire.__exit__()
        self._host.close()

    def exists(self) -> bool:
        """Return whether the table is there.

        Raises:
            KeyFault: it is somebody else's.
        """
        comment = wire_words.comment_of(self._wire, self._name)
        if comment is not None and comment != mark_of(self._node):
            raise KeyFault(
                "NetworkNotReady",
                f"table {in_words(self._name)} exists and is not ours (comment {comment!r}); remove it",
            )
        return comment is not None

    def read(self, wanted: Iterable[Rule], *, whole: bool) -> Rules:
        """Return all rules, or (not ``whole``) those with the keys of ``wanted``."""
        keys: dict[str, dict[Any, Any]] = {}
        for rule in wanted:
            keys.setdefault(rule.table, {})[rule.key] = rule.value
        sets = self._sets() if whole or SET in keys else {}
        names = list(sets) if whole else [name for name in keys if name not in {CHAIN, SET, SWITCH}]
        seen: Rules = {SET: {**sets}, CHAIN: self._chains(keys.get(CHAIN, {}), whole=whole)}
        for name in names:
            seen[name] = (
                wire_words.listed(self._wire, self._name, name)
                if whole
                else wire_words.looked_up(self._wire, self._name, name, keys[name])
            )
        return seen

    def switches(self) -> dict[str, str]:
        """Return whether packets within the bridge are shown to the rules."""
        bridge = device(self._host.wire, str(self._host.config["bridge"]))
        return {BRIDGE_RULES: "on" if bridge and bridge.bridged else "off"}

    def switch_on(self) -> None:
        """Have packets within the bridge shown to the rules.

        Raises:
            KeyFault: there is no bridge.
        """
        self._host.mend(BRIDGE_RULES)

    def _sets(self) -> dict[str, str]:
        found = wire_words.sets_of(self._wire, self._name)
        return {name: KINDS.get(kind, f"type {kind.key} : {kind.data}") for name, kind in found.items()}

    def _chains(self, texts: Mapping[str, str], *, whole: bool) -> dict[str, str]:
        if whole or len(texts) > FEW_CHAINS:
            prints = wire_words.fingerprints(self._wire, self._name)
        else:
            prints = {}
            for name in texts:
                prints.update(wire_words.fingerprints(self._wire, self._name, name))
        found = {name: prints[name] for name in (prints if whole else texts) if name in prints}
        return {name: self._shown(name, print_, texts.get(name)) for name, print_ in found.items()}

    def _shown(self, name: str, print_: str, wanted: str | None) -> str:
        if wanted is None:
            return LEFT if self.known.get(name, "").endswith(f" {print_}") else PRESENT
        return wanted if self.known.get(name) == _digests(wanted, print_) else CHANGED

    def write(self, delete: Iterable[Rule], add: Iterable[Rule], *, replace: bool = False) -> None:
        """Carry the changes out, the rules as one transaction; ``replace`` replaces the table by what is to be added.

        Raises:
            KeyFault, OSError: refused; no rule was changed.
        """
        gone, new = _unique(delete), _unique(add)
        if all(is_element(rule) for rule in (*gone, *new)) and not replace:
            wire_words.commit(self._wire, wire_words.element_messages(self._name, _changes(gone, new)))
            return
        first = [f"{verb} table {in_words(self._name)}" for verb in ("add", "delete")] if replace else []
        run_nft("\n".join([*first, head_of(self._name, self._node), *script(self._name, gone, new)]) + "\n")
        self._learn(gone, new)

    def _learn(self, gone: list[Rule], new: list[Rule]) -> None:
        texts = {rule.key: rule.value for rule in new if rule.table == CHAIN}
        for rule in gone:
            if rule.table == CHAIN:
                self.known.pop(rule.key, None)
        prints = wire_words.fingerprints(self._wire, self._name) if texts else {}
        self.known.update({name: _digests(each, prints[name]) for name, each in texts.items() if name in prints})

    def remove(self) -> None:
        """Remove the table with everything in it, if it is ours."""
        if wire_words.comment_of(self._wire, self._name) == mark_of(self._node):
            run_nft(f"delete table {in_words(self._name)}\n")
        self.known.clear()


def is_left(rule: Rule) -> bool:
    """Return whether a rule that no entry wants is a chain as we wrote it, or an empty set of ours by name and type.

    A delta takes elements away, and leaves chains and sets to the next look at all of the table.
    """
    return rule.value == LEFT if rule.table == CHAIN else rule.table == SET and is_set(*rule[1:])


def _digests(lines: str, print_: str) -> str:
    return f"{wire_words.digest_of(lines)} {print_}"


def _unique(rules: Iterable[Rule]) -> list[Rule]:
    """Return each rule once: entries share chains and sets."""
    return [*{(rule.table, rule.key): rule for rule in rules}.values()]


def _changes(gone: Iterable[Rule], new: Iterable[Rule]) -> list[Change]:
    changes: dict[str, Change] = {}
    for rule in gone:
        changes.setdefault(rule.table, Change(rule.table, [], {})).delete.append(rule.key)
    for rule in new:
        changes.setdefault(rule.table, Change(rule.table, [], {})).add[rule.key] = rule.value
    return [*changes.values()]


def script(table: str, gone: Iterable[Rule], new: Iterable[Rule]) -> list[str]:
    """Return the lines for ``nft -f``: what is new comes before what needs it, what goes after what needed it."""
    place = in_words(table)
    chains = {rule.key: rule.value.split("\n") if rule.value else [] for rule in new if rule.table == CHAIN}
    sets = {rule.key: rule.value for rule in new if rule.table == SET}
    old = [(rule.table, rule.key) for rule in gone]
    stale_chains = [key for kind, key in old if kind == CHAIN and key not in chains]
    stale_sets = [key for kind, key in old if kind == SET and key not in sets]
    lines = [f"add {'map' if ':' in kind else 'set'} {place} {name} {{ type {kind}; }}" for name, kind in sets.items()]
    for name, body in chains.items():
        hook = f" {{ {body[0]}; }}" if body and body[0].startswith("type ") else ""
        lines += [f"add chain {place} {name}{hook}", f"flush chain {place} {name}"]
    for name, body in chains.items():
        lines += [f"add rule {place} {name} {rule}" for rule in body if not rule.startswith("type ")]
    lines += _element_lines("delete", place, (rule for rule in gone if rule.table not in stale_sets))
    lines += _element_lines("add", place, new)
    lines += [f"flush chain {place} {name}" for name in stale_chains]
    lines += [f"delete chain {place} {name}" for name in stale_chains]
    return lines + [f"delete set {place} {name}" for name in stale_sets]


def _element_lines(verb: str, place: str, rules: Iterable[Rule]) -> list[str]:
    by_set: dict[str, list[str]] = {}
    for rule in rules:
        if is_element(rule):
            goes = f" : goto {wire_words.chain_of(rule.value)}" if rule.value and verb == "add" else ""
            by_set.setdefault(rule.table, []).append(element_text(rule) + goes)
    return [f"{verb} element {place} {name} {{ {', '.join(each)} }}" for name, each in by_set.items()]
