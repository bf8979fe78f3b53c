"""From NetworkPolicies to chains, sets and elements of nf_tables. Pure.

    forward ─▶ egress: accept replies ─▶ map egress_of[source] ─▶ pods/egress/HASH
    forward ─▶ ingress: accept replies ─▶ map ingress_of[destination] ─▶ pods/ingress/HASH
    pods/ingress/HASH: jump ingress/NAMESPACE/POLICY for each of a set of policies, then goto refuse
    ingress/NAMESPACE/POLICY: accept from @group/HASH to ports, from a range, to @ports/tcp/NAME
    refuse: what a Pod sends to itself passes; all else is rejected

Pods that the same policies select share a chain, and equal selectors of peers share a group; so a Pod is one element of
a map, and of each group and port that names it. Both directions are base chains: what one accepts the other still
looks at. One that isolates no Pod of the node is not there, as each costs every packet a look. They come after
destination NAT, so they see the addresses of Pods. Every packet is looked at but replies, not only the first of a
connection: when a policy changes, connections under way that it no longer allows end. Packets that the node itself
sends or receives pass no such chain, except in ``ipvs_*``: IPVS sends what it forwards through the hook output. What
is IPv6 has a table of its own, with the same chains and sets.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..network.nftables_wire import chain_of, verdict_of
from ..services.services_plan import Rule
from .policy_entries import DIRECTIONS, FILTER, POD, POLICY

CHAIN, SET, SWITCH = "chain", "set", "switch"
"""Tables of rules that are no elements: a chain by its name, a set or map by its name, a switch of the bridge."""
BRIDGE_RULES = "bridge_rules"
REFUSE, ITSELF = "refuse", "itself"
REPLIES = "ct direction reply accept"
MAP_OF = {direction: f"{direction}_of" for direction in DIRECTIONS}
SIDE = {"ingress": "daddr", "egress": "saddr"}
PEER = {"ingress": "saddr", "egress": "daddr"}
LONGEST_NAME = 120


class Family(NamedTuple):
    """The words of IPv4 or IPv6: each has a table of its own, with the same chains and sets.

    Attributes:
        number: of the family, for ``socket``.
        size: bytes of an address.
        word: what rules about addresses begin with.
        address: nft's type of an address.
        icmp: its ICMP, as a protocol and where something is rejected.
        field: of a Pod's entry, which has its address.
    """

    number: int
    size: int
    word: str
    address: str
    icmp: tuple[str, str]
    field: str

    @property
    def pair(self) -> str:
        """The type of two addresses."""
        return f"{self.address} . {self.address}"

    @property
    def place(self) -> str:
        """The type of an address and a port."""
        return f"{self.address} . inet_service"

    @property
    def verdicts(self) -> str:
        """The type of a map from addresses to chains."""
        return f"{self.address} : verdict"

    def packed(self, address: str) -> bytes:
        """Return an address as the kernel has it."""
        return socket.inet_pton(self.number, address)

    def has(self, cidr: str) -> bool:
        """Return whether a range is of this family."""
        return (":" in cidr) == (self.number == socket.AF_INET6)


IPV4 = Family(socket.AF_INET, 4, "ip", "ipv4_addr", ("icmp", "icmp"), "address")
IPV6 = Family(socket.AF_INET6, 16, "ip6", "ipv6_addr", ("ipv6-icmp", "icmpv6"), "address_ipv6")
_PORT = struct.Struct(">H2x")


def _short(text: str, length: int = 24) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def chain_name(direction: str, policy: str) -> str:
    """Return the chain of a policy's key in one direction."""
    name = f"{direction}/{policy[len(POLICY) :]}"
    return name if len(name) <= LONGEST_NAME else f"{direction}/{_short(policy, 32)}"


def selected_chain(direction: str, policies: Sequence[str]) -> str:
    """Return the chain of the Pods that just these policies select."""
    return f"pods/{direction}/{_short(' '.join(sorted(policies)))}"


def port_set(protocol: str, name: str) -> str:
    """Return the set of the places (address and number) of a named port."""
    return f"ports/{protocol.lower()}/{name}"


def rules_of(key: str, entry: Mapping[str, Any], *, bridged: bool = True, family: Family = IPV4) -> list[Rule]:
    """Return what one entry wants in the table of a family; several may want the same set or chain."""
    if key == FILTER:
        return _of_filter(family, bridged=bridged)
    return _of_policy(key, entry, family) if key.startswith(POLICY) else _of_pod(entry, family)


def _of_filter(family: Family, *, bridged: bool) -> list[Rule]:
    maps = [Rule(SET, MAP_OF[direction], family.verdicts) for direction in DIRECTIONS]
    # what is IPv6 goes from Pod to Pod by way of the node, whatever the bridge shows to rules
    switch = [Rule(SWITCH, BRIDGE_RULES, "on")] if bridged and family == IPV4 else []
    return [*switch, *maps, Rule(SET, ITSELF, family.pair), Rule(CHAIN, REFUSE, "\n".join(refusal(family)))]


def refusal(family: Family = IPV4) -> list[str]:
    """Return the rules for what nothing has allowed."""
    word, (protocol, refused) = family.word, family.icmp
    return [
        f"meta l4proto {protocol} ct state related accept",  # what became of a connection that was allowed
        f"{word} saddr . {word} daddr @{ITSELF} accept",
        "meta l4proto tcp reject with tcp reset",
        f"reject with {refused} type admin-prohibited",
    ]


def base_chains(direction: str, family: Family = IPV4) -> dict[str, list[str]]:
    """Return the chains that every packet between Pods passes, where most pay for one look, and replies for none."""
    look = f"{family.word} {SIDE[direction]} vmap @{MAP_OF[direction]}"
    own = "fib saddr type local accept"  # of the node itself, which reaches its Pods whatever policies say
    priority = {"egress": -10, "ingress": -9}[direction]
    return {
        direction: [f"type filter hook forward priority {priority}", REPLIES, look],
        f"ipvs_{direction}": [f"type filter hook output priority {priority}", REPLIES, own, look],
    }


def ways_in(entries: Mapping[str, Mapping[str, Any]], family: Family = IPV4) -> list[Rule]:
    """Return the base chains of the directions in which Pods among the entries are isolated."""
    pods = [entry for key, entry in entries.items() if key.startswith(POD) and entry.get(family.field)]
    used = [each for each in DIRECTIONS if any(pod[each] is not None for pod in pods)]
    return [Rule(CHAIN, name, "\n".join(lines)) for each in used for name, lines in base_chains(each, family).items()]


def _of_policy(key: str, entry: Mapping[str, Any], family: Family) -> list[Rule]:
    found, sets = list[Rule](), dict[str, str]()
    for direction in DIRECTIONS:
        if entry[direction] is None:
            continue
        lines = [line for rule in entry[direction] for line in rule_lines(direction, rule, family)]
        found.append(Rule(CHAIN, chain_name(direction, key), "\n".join(lines)))
        for rule in entry[direction]:
            sets.update((name, family.address) for name in (rule["peers"] or {}).get("groups", ()))
            sets.update((port_set(*row), family.place) for row in rule["ports"] or [] if len(row) == 2)  # noqa: PLR2004
    return [*(Rule(SET, name, kind) for name, kind in sorted(sets.items())), *found]


def rule_lines(direction: str, rule: Mapping[str, Any], family: Family = IPV4) -> list[str]:
    """Return the rules of nft for one rule of a policy: its peers times its protocols."""
    peers, ports = _peer_words(direction, rule["peers"], family), _port_words(rule["ports"], family)
    return [" ".join(word for word in (peer, port, "accept") if word) for peer in peers for port in ports]


def _peer_words(direction: str, peers: Mapping[str, Any] | None, family: Family) -> list[str]:
    if peers is None:
        return [""]
    field = f"{family.word} {PEER[direction]}"
    words = [f"{field} @{name}" for name in peers["groups"]]
    for cidr, excepted in (block for block in peers["blocks"] if family.has(block[0])):
        whole = [] if str(cidr).endswith("/0") else [f"{field} {cidr}"]
        words.append(" ".join([*whole, *(f"{field} != {each}" for each in excepted)]))
    return words


def _port_words(ports: Sequence[Sequence[Any]] | None, family: Family) -> list[str]:
    if ports is None:
        return [""]
    numbers, named = dict[str, list[tuple[int, int]]](), list[str]()
    for row in ports:
        protocol = str(row[0]).lower()
        if len(row) == 2:  # noqa: PLR2004 - protocol, name
            named.append(f"{family.word} daddr . {protocol} dport @{port_set(row[0], row[1])}")
        else:
            numbers.setdefault(protocol, []).append((row[1], row[2]))
    words = []
    for protocol, ranges in numbers.items():
        if (0, 0) in ranges:
            words.append(f"meta l4proto {protocol}")
            continue
        texts = [str(first) if first == last else f"{first}-{last}" for first, last in merged(ranges)]
        words.append(f"{protocol} dport " + (texts[0] if len(texts) == 1 else "{ " + ", ".join(texts) + " }"))
    return words + named


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same ports as ranges that do not touch, in order."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _of_pod(entry: Mapping[str, Any], family: Family) -> list[Rule]:
    if not entry.get(family.field):
        return []
    address = family.packed(entry[family.field])
    found = [Rule(name, address, b"") for name in entry["groups"]]
    found += [Rule(port_set(row[0], row[1]), address + _PORT.pack(row[2]), b"") for row in entry["ports"]]
    isolated = False
    for direction in DIRECTIONS:
        policies = entry[direction]
        if policies is None:
            continue
        isolated, name = True, selected_chain(direction, policies)
        jumps = [f"jump {chain_name(direction, policy)}" for policy in sorted(policies)]
        found.append(Rule(CHAIN, name, "\n".join([*jumps, f"goto {REFUSE}"])))
        found.append(Rule(MAP_OF[direction], address, verdict_of(name)))
    if isolated:
        found.append(Rule(ITSELF, address + address, b""))
    return found


def is_element(rule: Rule) -> bool:
    """Return whether a rule is an element of a set or map."""
    return rule.table not in {CHAIN, SET, SWITCH}


_SETS = {
    "group/": {IPV4.address, IPV6.address},
    "ports/": {IPV4.place, IPV6.place},
    ITSELF: {IPV4.pair, IPV6.pair},
    **{name: {IPV4.verdicts, IPV6.verdicts} for name in MAP_OF.values()},
}


def is_set(name: str, kind: str) -> bool:
    """Return whether we make sets or maps of this name and type, in the table of either family."""
    first, slash, _ = name.partition("/")
    return kind in _SETS.get(first + slash, ())


def element_text(rule: Rule) -> str:
    """Return an element as nft writes it, without the value of a map."""
    if rule.table.startswith("ports/"):
        at = len(rule.key) - _PORT.size
        return f"{_address_text(rule.key[:at])} . {_PORT.unpack(rule.key[at:])[0]}"
    size = len(rule.key) // 2 if rule.table == ITSELF else len(rule.key)
    return " . ".join(_address_text(rule.key[at : at + size]) for at in range(0, len(rule.key), size))


def _address_text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == IPV4.size else socket.AF_INET6, packed)


def shown(rule: Rule) -> tuple[str, str]:
    """Return a rule as (what, text) for a diff."""
    if not is_element(rule):
        return f"{rule.table} {rule.key}", str(rule.value).replace("\n", "; ")
    return f"{rule.table} {element_text(rule)}", chain_of(rule.value) if rule.value else "listed"


def place_of(rule: Rule) -> str:
    """Return where a rule is that no entry is known to want, for people."""
    return str(rule.key) if not is_element(rule) else rule.table


def owner_of(key: str) -> str:
    """Return the ``<namespace>/<name>`` of the policy or Pod that a key is of."""
    return key.partition("/")[2] if key.startswith((POLICY, POD)) else ""
