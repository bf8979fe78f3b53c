"""Services by nf_tables: table ``ip minik8s`` with maps, and shared chains that pick endpoints in turn.

Where Services have addresses of IPv6, ``ip6 minik8s`` has the same of these (families.py, both_families.py).

    prerouting, output ─▶ services ─▶ map cluster_ips: address . protocol . port ─▶ count_00002_t017
                                  └▶ map node_ports:            protocol . port ─▶ port_00002_t040
                                  └▶ map near_ports: the same for clients in the cluster, of ports with policy Local
                                  └▶ maps outside_ips, near_ips: the same for addresses of load balancers; before them
                                     map guarded ─▶ from_<digest>: drops clients that may not come
    count_00002_t017: dnat to map endpoints[address . protocol . port . next number mod 2]

A service is one element of ``cluster_ips`` and one of ``endpoints`` per endpoint, so a change is a handful of elements
in one transaction, whatever the number of services. A chain serves the services with as many endpoints and the same
one of TURNS turns: a client that calls several services one after the other would otherwise always meet the same
endpoints of each. Source NAT: what has mark 0x4000 (Kubernetes' bit), a pod that reaches itself, and, where bridged
packets pass no rules, all pods of one node. What is left with an address of the service range has no endpoint and is
rejected. The fixed part is written by ``nft -f`` (people can read it) and recognized by the digests of its chains;
elements travel by netlink (nftables_wire.py).
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.faults import KeyFault
from ..network import nftables_wire as wire_words
from ..network.nftables_wire import Change
from ..network.sources import REDIRECTED_BIT
from ..network.wire import NETFILTER, Wire
from . import announcing, picks
from .announcing import ANNOUNCED, UPLINK, Uplink
from .conntrack import Lost
from .families import IPV4, family_of, family_of_table
from .guards import GUARD, guard_chain, guard_messages
from .nftables_elements import (
    AFFINITY,
    CLUSTER_IPS,
    ENDPOINTS,
    GUARDED,
    MAPS,
    NEAR_AFFINITY,
    NEAR_ENDPOINTS,
    NEAR_IP_ENDPOINTS,
    NEAR_IPS,
    NEAR_PORTS,
    NODE_ENDPOINTS,
    NODE_PORTS,
    OUTSIDE_IPS,
    PICK,
    PICKED_BY,
    VERDICTS,
    place_of,
    rules_of,
    shown,
    udp_flow,
)
from .nftables_table import FixedTable, chains_text, head_of, in_words
from .services_plan import FixedPart, Rule, Rules

MASQUERADE_BIT = 0x4000
AFFINITY_SIZE = 65536  # clients remembered; one more is served without
LONGEST_LOOP_PREFIX = 20  # a node with more than 4,096 pod addresses gets no list of them
_BLOCK_PREFIX = 64  # of IPv6, as a /24 of IPv4


REJECTED = {
    "forwarding": ["type filter hook forward priority filter", "jump rejecting"],
    "sending": ["type filter hook output priority filter", "jump rejecting"],
}
"""Chains by which nothing that still has an address of services leaves a machine, from pods or from itself."""


def rejecting(services: str) -> list[str]:
    """Return the rules of the chain ``rejecting`` for a range of services."""
    ip = family_of(services).word
    return [
        f"{ip} daddr {services} meta l4proto tcp reject with tcp reset",
        f"{ip} daddr {services} reject with {family_of(services).icmp} type port-unreachable",
    ]


def skeleton(config: Mapping[str, Any], *, bridged: bool) -> dict[str, list[str]]:
    """Return the fixed chains with their rules; ``bridged``: packets within the pod bridge pass these chains too."""
    services, pods, cluster = config["service_cidr"], config["pod_cidr"], config["cluster_cidr"]
    family = family_of(services)
    ip, ipv4 = family.word, family is IPV4
    place = f"{ip} daddr . meta l4proto . th dport"
    # what pods send by IPv6 is always forwarded, never bridged (network_ipv6.py)
    seen = (bridged or not ipv4) and loops(pods)
    own = "" if seen else f"ct status dnat {ip} saddr {pods} {ip} daddr {pods} masquerade fully-random"
    sets_mark = f"meta mark set meta mark | {MASQUERADE_BIT:#x}"
    takes_mark = f"meta mark set meta mark & {~MASQUERADE_BIT & 0xFFFFFFFF:#x}"
    # nothing comes back to ::1 (host_ports.py): who tries localhost there first is refused, and takes 127.0.0.1
    here = "fib daddr type local" if ipv4 else "fib daddr type local ip6 daddr != ::1"
    return {
        "services": [
            f"{ip} daddr {services} goto to_cluster_ip",
            f"{place} vmap @{GUARDED}",
            f"{ip} saddr {cluster} {place} vmap @{NEAR_IPS}",
            f"fib saddr type local {place} vmap @{NEAR_IPS}",
            f"{place} vmap @{OUTSIDE_IPS}",
            # externalTrafficPolicy Local is for clients from outside: pods and this machine have all endpoints
            f"{here} {ip} saddr {cluster} meta l4proto . th dport vmap @{NEAR_PORTS}",
            f"{here} fib saddr type local meta l4proto . th dport vmap @{NEAR_PORTS}",
            f"{here} meta l4proto . th dport vmap @{NODE_PORTS}",
            announcing.kept(family),
        ],
        "to_cluster_ip": [
            f"{ip} saddr != {cluster} {sets_mark}",
            f"{place} vmap @{CLUSTER_IPS}",
        ],
        "rejecting": rejecting(services),
        "prerouting": ["type nat hook prerouting priority dstnat", "jump services"],
        "output": ["type nat hook output priority -100", "jump services"],
        **REJECTED,
        **(
            _receiving(config["bridge"], config.get("overlay"))
            if ipv4
            else redirected(config["bridge"], "ct status dnat")
        ),
        "arriving": ["type filter hook input priority filter", *announcing.rejecting_here(family)],
        "postrouting": [
            "type nat hook postrouting priority srcnat",
            # this machine as its own client at an address that it answers for
            f"ct status dnat {ip} saddr @{ANNOUNCED} masquerade fully-random",
            f"meta mark & {MASQUERADE_BIT:#x} == {MASQUERADE_BIT:#x} {takes_mark} masquerade fully-random",
            # a client at a loopback address that was sent to a pod
            *(["ct status dnat ip saddr 127.0.0.0/8 ip daddr != 127.0.0.0/8 masquerade fully-random"] if ipv4 else []),
            *([f"{ip} saddr . {ip} daddr @loops masquerade fully-random"] if loops(pods) else []),
            *([own] if own else []),
        ],
    }


def _receiving(*devices: str | None) -> dict[str, list[str]]:
    """Return what only IPv4 has: node ports at 127.0.0.1, where nothing comes in by the devices that lead to pods."""
    rules = [f'iifname "{name}" ip daddr 127.0.0.0/8 drop' for name in devices if name]
    return {"receiving": ["type filter hook prerouting priority raw", *rules]}


def redirected(bridge: str, which: str) -> dict[str, list[str]]:
    """Return what lets a pod's packets of a service pass to a port of the bridge, by a mark (sources.py)."""
    bit = f"{REDIRECTED_BIT:#x}"
    takes_mark = f"meta mark set meta mark & {~REDIRECTED_BIT & 0xFFFFFFFF:#x}"
    return {
        "redirected": [
            "type filter hook prerouting priority -99",
            f'iifname "{bridge}" {which} meta mark set meta mark | {bit}',
        ],
        "leaving": ["type filter hook postrouting priority -150", f"meta mark & {bit} == {bit} {takes_mark}"],
    }


@functools.lru_cache(maxsize=8)
def loops(cidr: str) -> tuple[str, ...]:
    """Return each pod address of the node with itself; none where they are too many to list."""
    if ":" in cidr:
        return _loops_ipv6(ipaddress.IPv6Network(cidr))
    network = ipaddress.IPv4Network(cidr)
    if network.prefixlen < LONGEST_LOOP_PREFIX:
        return ()
    first, last = int(network.network_address) + 1, int(network.broadcast_address)
    found = (socket.inet_ntoa(struct.pack(">I", number)) for number in range(first, last))
    return tuple(f"{ip} . {ip}" for ip in found)


def _loops_ipv6(network: ipaddress.IPv6Network) -> tuple[str, ...]:
    """Return the same of IPv6: 256 places in each block of 64 bits, as of a range of IPv4 (api's dual_stack.py)."""
    blocks = 1 << max(0, _BLOCK_PREFIX - network.prefixlen)
    if blocks > 1 << (24 - LONGEST_LOOP_PREFIX):
        return ()
    places = min(1 << 8, network.num_addresses)
    first, block = int(network.network_address), 1 << (128 - _BLOCK_PREFIX)
    found = (ipaddress.IPv6Address(first + at * block + place) for at in range(blocks) for place in range(places))
    return tuple(f"{ip} . {ip}" for ip in found)


def script(table: str, node: str, chains: Mapping[str, list[str]], pods: str) -> str:
    """Return the input of ``nft -f`` that makes the fixed part, or mends it; elements of the maps stay."""
    family = family_of_table(table)
    ip, own = family.word, in_words(table)
    key = f"{family.type} . inet_proto . inet_service"
    # with typeof: of a pick (a plain number) no other way to say it exists
    pick = f"meta l4proto . th dport . numgen random mod 65536 : {ip} daddr . th dport"
    maps = {
        CLUSTER_IPS: f"type {key} : verdict;",
        ENDPOINTS: f"typeof {ip} daddr . {pick};",
        NODE_PORTS: "type inet_proto . inet_service : verdict;",
        NODE_ENDPOINTS: f"typeof {pick};",
        NEAR_PORTS: "type inet_proto . inet_service : verdict;",
        NEAR_ENDPOINTS: f"typeof {pick};",
        **dict.fromkeys((OUTSIDE_IPS, NEAR_IPS, GUARDED), f"type {key} : verdict;"),
        NEAR_IP_ENDPOINTS: f"typeof {ip} daddr . {pick};",
        **dict.fromkeys(PICKED_BY, f"type {family.type} . {key} : mark; size {AFFINITY_SIZE}; flags dynamic,timeout;"),
    }
    lines = [head_of(table, node), *(f"add map {own} {name} {{ {body} }}" for name, body in maps.items())]
    lines += [*loops_text(table, pods), f"add set {own} {ANNOUNCED} {{ type {family.type}; }}"]
    return "\n".join([*lines, *chains_text(table, chains)]) + "\n"


def loops_text(table: str, pods: str) -> list[str]:
    """Return the lines that make the set of (address, same address) of the node's pods."""
    own, type_ = in_words(table), family_of_table(table).type
    lines = [f"add set {own} loops {{ type {type_} . {type_}; }}", f"flush set {own} loops"]
    if found := loops(pods):
        lines.append(f"add element {own} loops {{ {', '.join(found)} }}")
    return lines


_PICKS = {
    "count": (ENDPOINTS, True, 0, AFFINITY),
    "wide": (ENDPOINTS, True, MASQUERADE_BIT, AFFINITY),
    "port": (NODE_ENDPOINTS, False, MASQUERADE_BIT, AFFINITY),
    "keep": (NODE_ENDPOINTS, False, 0, AFFINITY),
    "near": (NEAR_ENDPOINTS, False, 0, NEAR_AFFINITY),
    "close": (NEAR_IP_ENDPOINTS, True, 0, NEAR_AFFINITY),
}
"""By a chain's kind: its map of endpoints, whether its keys have an address, the mark it sets, its clients' map."""


def pick_messages(table: str, chain: str) -> list[bytes]:
    """Return what makes a chain that picks."""
    kind, count, sticky_s = _parts(chain)
    endpoints, has_address, mark, affinity = _PICKS[kind]
    pick = picks.Pick(endpoints, has_address, count, mark)
    rules = picks.pick_rules(pick, affinity, sticky_s, family_of_table(table))
    return wire_words.chain_messages(table, chain, rules)


def _parts(chain: str) -> tuple[str, int, int]:
    found = PICK.fullmatch(chain)
    if not found:
        raise KeyFault("InvalidEntry", f"{chain} is no chain that picks")
    return found[1], int(found[2]), int(found[4] or 0)


class Nftables:
    """The backend; one pass, one thread."""

    name = "nftables"
    shown = staticmethod(shown)
    place_of = staticmethod(place_of)

    def __init__(self, node: str, config: Mapping[str, Any], known: Mapping[str, str], *, bridged: bool) -> None:
        self.family = family_of(config["service_cidr"])
        name, chains = config["table"], skeleton(config, bridged=bridged)
        if self.family is not IPV4:
            name = f"{self.family.word} {name}"
        self._wire, self._route = Wire(NETFILTER), Wire(0)
        self._uplink = Uplink(self._route, config.get("uplink_ip") or config["node_ip"], self.family)
        self._node, self._node_ip = node, config.get("own_ip", config["node_ip"])
        self._sources: dict[str, list[str]] = {}
        self._name = name
        self._table = FixedTable(self._wire, node, name, chains, script(name, node, chains, config["pod_cidr"]), known)

    def close(self) -> None:
        """Close the sockets."""
        self._wire.__exit__()
        self._route.__exit__()

    def rules_of(self, entry: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of one service port."""
        if (sources := entry.get("sources")) is not None:
            self._sources[guard_chain(sources)] = sources
        return rules_of(entry, self._node_ip) + announcing.rules_here(entry, self._node, self._uplink)

    def udp_flow(self, rule: Rule) -> Lost | None:
        """Return what clients send over UDP that a rule has something to do with; None for TCP."""
        return udp_flow(rule, self.family)

    def known(self) -> dict[str, str]:
        """Return what the next pass needs to recognize the chains."""
        return dict(self._table.known)

    def found(self) -> FixedPart:
        """Return how the fixed part is and should be."""
        return self._table.found()

    def mend(self, aspect: str) -> None:
        """Write the fixed part."""
        self._table.mend()

    def read(self, rules: Iterable[Rule] | None) -> Rules:
        """Return the elements of all maps, or those with the keys of ``rules``."""
        if rules is None:
            listed = {name: wire_words.listed(self._wire, self._name, name) for name in (*MAPS, ANNOUNCED)}
            return {**listed, UPLINK: self._uplink.addresses()}
        keys: dict[str, dict[Any, None]] = {name: {} for name in (*MAPS, ANNOUNCED, UPLINK)}
        for rule in rules:
            keys[rule.table][rule.key] = None
        own = self._uplink.addresses() if keys[UPLINK] else {}
        found = {UPLINK: {key: own[key] for key in keys.pop(UPLINK) if key in own}}
        return found | {
            name: wire_words.looked_up(self._wire, self._name, name, asked) for name, asked in keys.items() if asked
        }

    def write(self, delete: Iterable[Rule], add: Iterable[Rule]) -> None:
        """Carry the changes out as one transaction.

        Raises:
            KeyFault, OSError: refused; nothing was changed.
        """
        delete, add = list(delete), list(add)
        moved = announcing.changes_of(delete, add)
        self._uplink.leave(moved)
        changes = {name: Change(name, [], {}) for name in (*MAPS, ANNOUNCED)}
        for rule in (each for each in delete if each.table != UPLINK):
            changes[rule.table].delete.append(rule.key)
        for rule in (each for each in add if each.table != UPLINK):
            changes[rule.table].add[rule.key] = rule.value
        verdicts = {value for name in VERDICTS for value in changes[name].add.values()}
        chains = [name for name in sorted(map(wire_words.chain_of, verdicts)) if not self._table.is_right(name)]
        made = [asked for name in chains for asked in self._chain(name)]
        asked = [*made, *wire_words.element_messages(self._name, changes.values()), *self._remembered(delete, add)]
        wire_words.commit(self._wire, asked)
        if chains:
            self._table.learn(chains)
        self._uplink.take(moved)

    def _chain(self, name: str) -> list[bytes]:
        if GUARD.fullmatch(name):
            return guard_messages(self._name, self._sources[name])
        return pick_messages(self._name, name)

    def _remembered(self, delete: Iterable[Rule], add: Iterable[Rule]) -> list[bytes]:
        """Return what keeps clients with their endpoints when those get other numbers, and frees them of lost ones."""
        asked = list[bytes]()
        for affinity, tables in PICKED_BY.items():
            old, new = dict[bytes, dict[bytes, bytes]](), dict[bytes, dict[bytes, bytes]]()
            for rule in delete:
                if rule.table in tables:
                    old.setdefault(rule.key[:-4], {})[rule.key[-4:]] = rule.value
            for rule in add:
                if rule.table in tables:
                    new.setdefault(rule.key[:-4], {})[rule.value] = rule.key[-4:]
            asked += self._renumbered(affinity, old, new) if old else []
        return asked

    def _renumbered(
        self, affinity: str, old: Mapping[bytes, Mapping[bytes, bytes]], new: Mapping[bytes, Mapping[bytes, bytes]]
    ) -> list[bytes]:
        """Return the changes of one map of clients; ``old``: endpoints by service and number, ``new``: the reverse."""
        gone, moved = list[bytes](), list[wire_words.Remembered]()
        for one in wire_words.remembered(self._wire, self._name, affinity):
            size = self.family.width
            service = one.key[size:] if one.key[size:] in old else one.key[2 * size :]
            place = old.get(service, {}).get(one.number)
            if place is not None:
                gone.append(one.key)
                if number := new.get(service, {}).get(place):
                    moved.append(one._replace(number=number))
        return wire_words.remembering_messages(self._name, affinity, gone, moved)

    def tidy(self, rules: Rules) -> None:
        """Remove chains that nothing goes to, given all elements of the maps."""
        used = {wire_words.chain_of(value) for name in VERDICTS for value in set(rules.get(name, {}).values())}
        ours = [name for name in self._table.seen if PICK.fullmatch(name) or GUARD.fullmatch(name)]
        idle = [name for name in ours if name not in used]
        wire_words.commit(self._wire, wire_words.deletion_messages(self._name, idle))
        for name in idle:
            self._table.known.pop(name, None)

    def remove(self) -> None:
        """Remove the table with everything in it, if it is ours, and the addresses that this node answers for."""
        self._uplink.leave(announcing.Changes(self._uplink.addresses(), []))
        self._table.remove()
