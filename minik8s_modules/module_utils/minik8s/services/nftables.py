"""Services by nf_tables: table ``ip minik8s`` with maps, and shared chains that pick endpoints in turn.

    prerouting, output ─▶ services ─▶ map cluster_ips: address . protocol . port ─▶ count_00002_t017
                                  └▶ map node_ports:            protocol . port ─▶ port_00002_t040
                                  └▶ map near_ports: the same for clients in the cluster, of ports with policy Local
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
import re
import socket
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.faults import KeyFault
from . import nftables_wire as wire_words
from .conntrack import Lost
from .nftables_table import FixedTable, chains_text, head_of
from .nftables_wire import Change
from .services_plan import FixedPart, Rule, Rules
from .services_wire import NETFILTER, Wire

PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP}
CLUSTER_IPS, ENDPOINTS, NODE_PORTS, NODE_ENDPOINTS = "cluster_ips", "endpoints", "node_ports", "node_endpoints"
NEAR_PORTS, NEAR_ENDPOINTS = "near_ports", "near_endpoints"
AFFINITY, NEAR_AFFINITY = "affinity", "near_affinity"
PICKED_BY = {AFFINITY: (ENDPOINTS, NODE_ENDPOINTS), NEAR_AFFINITY: (NEAR_ENDPOINTS,)}
"""The maps that numbers remembered for clients are numbers of."""
MAPS = (CLUSTER_IPS, ENDPOINTS, NODE_PORTS, NODE_ENDPOINTS, NEAR_PORTS, NEAR_ENDPOINTS)
VERDICTS = (CLUSTER_IPS, NODE_PORTS, NEAR_PORTS)
MASQUERADE_BIT = 0x4000
AFFINITY_SIZE = 65536  # clients remembered; one more is served without
LONGEST_LOOP_PREFIX = 20  # a node with more than 4,096 pod addresses gets no list of them
TURNS = 64
# chains of a former version have no turn: they are known, so that they are tidied away
_PICK = re.compile(r"(count|port|keep|near)_(\d{5})(?:_t(\d{3}))?(?:_(\d+))?")
_KEY = struct.Struct(">4sB3xH2x")
_PORT_KEY = struct.Struct(">B3xH2x")
_PLACE = struct.Struct(">4sH2x")
_INDEX = [struct.pack("=I", number) for number in range(1 << 10)]


def _index(number: int) -> bytes:
    return _INDEX[number] if number < len(_INDEX) else struct.pack("=I", number)


@functools.lru_cache(maxsize=1 << 16)
def _target(address: str, port: int) -> bytes:
    return _PLACE.pack(socket.inet_aton(address), port)


def pick_chain(kind: str, count: int, affinity_s: int, key: bytes) -> str:
    """Return the chain that picks for the service at ``key``.

    Kind: ``count`` (cluster IP), ``port``, of policy Local ``keep`` and ``near``.
    """
    return f"{kind}_{count:05d}_t{zlib.crc32(key) % TURNS:03d}" + (f"_{affinity_s}" if affinity_s else "")


def rules_of(entry: Mapping[str, Any]) -> list[Rule]:
    """Return the elements of one service port; none without endpoints, what comes is then rejected."""
    found: list[Rule] = []
    protocol, sticky = PROTOCOLS[entry["protocol"]], entry.get("affinity_s", 0)
    endpoints = entry["endpoints"]
    value_of = wire_words.value_of
    if endpoints:
        key = _KEY.pack(socket.inet_aton(entry["address"]), protocol, entry["port"])
        chain = pick_chain("count", len(endpoints), sticky, key)
        found.append(Rule(CLUSTER_IPS, key, wire_words.verdict_of(chain)))
        found += [Rule(ENDPOINTS, key + _index(at), value_of(_target(*each))) for at, each in enumerate(endpoints)]
    if entry.get("node_port"):
        key = _PORT_KEY.pack(protocol, entry["node_port"])
        ends, keep = entry.get("node_endpoints", endpoints), bool(entry.get("keep_source"))
        found += _at_port(
            (NODE_PORTS, NODE_ENDPOINTS), key, pick_chain("keep" if keep else "port", len(ends), sticky, key), ends
        )
        if keep:
            found += _at_port(
                (NEAR_PORTS, NEAR_ENDPOINTS), key, pick_chain("near", len(endpoints), sticky, key), endpoints
            )
    return found


def _at_port(maps: tuple[str, str], key: bytes, chain: str, ends: list[Any]) -> list[Rule]:
    if not ends:
        return []
    verdict = Rule(maps[0], key, wire_words.verdict_of(chain))
    value_of = wire_words.value_of
    return [verdict, *(Rule(maps[1], key + _index(at), value_of(_target(*each))) for at, each in enumerate(ends))]


def place_of(rule: Rule) -> str:
    """Return where a rule listens, for people: ``100.0.0.7:80/TCP`` or ``*:30080/TCP``."""
    names = {number: name for name, number in PROTOCOLS.items()}
    if rule.table in (CLUSTER_IPS, ENDPOINTS):
        ip, protocol, port = _KEY.unpack(rule.key[: _KEY.size])
        return f"{socket.inet_ntoa(ip)}:{port}/{names.get(protocol, protocol)}"
    protocol, port = _PORT_KEY.unpack(rule.key[: _PORT_KEY.size])
    return f"*:{port}/{names.get(protocol, protocol)}"


def udp_flow(rule: Rule) -> Lost | None:
    """Return what clients send over UDP that this rule has something to do with; None for TCP."""
    whole = rule.table in (CLUSTER_IPS, ENDPOINTS)
    if rule.key[4 if whole else 0] != socket.IPPROTO_UDP:
        return None
    ip, port = ("", _PORT_KEY.unpack(rule.key[: _PORT_KEY.size])[1])
    if whole:
        packed, _, port = _KEY.unpack(rule.key[: _KEY.size])
        ip = socket.inet_ntoa(packed)
    if rule.table in VERDICTS:
        return Lost(ip, port, "")
    return Lost(ip, port, socket.inet_ntoa(wire_words.data_of(rule.value)[:4]))


_WHOSE = {"keep": ", whose clients keep their address", "near": ", for clients in the cluster"}


def picking(chain: str) -> str:
    """Return in words what a chain of ``pick_chain`` does; a chain of anybody else is told by its name."""
    found = _PICK.fullmatch(chain)
    if found is None:
        return chain
    kind, count, _turn, affinity_s = found.groups()
    sticky = f", the same for {affinity_s} s" if affinity_s else ""
    return f"1 of {int(count)} endpoints{_WHOSE.get(kind, '')}{sticky}"


def told(rule: Rule) -> tuple[str, str]:
    """Return a rule as (what, text) for a diff."""
    if rule.table in VERDICTS:
        return place_of(rule), picking(wire_words.chain_of(rule.value))
    ip, port = _PLACE.unpack(wire_words.data_of(rule.value))
    (at,) = struct.unpack("=I", rule.key[-4:])
    return f"{place_of(rule)} [{at}]", f"{socket.inet_ntoa(ip)}:{port}"


REJECTED = {
    "forwarding": ["type filter hook forward priority filter", "jump rejecting"],
    "sending": ["type filter hook output priority filter", "jump rejecting"],
}
"""Chains by which nothing that still has an address of services leaves a machine, from pods or from itself."""


def rejecting(services: str) -> list[str]:
    """Return the rules of the chain ``rejecting`` for a range of services."""
    return [
        f"ip daddr {services} meta l4proto tcp reject with tcp reset",
        f"ip daddr {services} reject with icmp type port-unreachable",
    ]


def skeleton(config: Mapping[str, Any], *, bridged: bool) -> dict[str, list[str]]:
    """Return the fixed chains with their rules; ``bridged``: packets within the pod bridge pass these chains too."""
    services, pods = config["service_cidr"], config["pod_cidr"]
    own = "" if bridged and loops(pods) else f"ct status dnat ip saddr {pods} ip daddr {pods} masquerade fully-random"
    sets_mark = f"meta mark set meta mark | {MASQUERADE_BIT:#x}"
    takes_mark = f"meta mark set meta mark & {~MASQUERADE_BIT & 0xFFFFFFFF:#x}"
    return {
        "services": [
            f"ip daddr {services} goto to_cluster_ip",
            # externalTrafficPolicy Local is for clients from outside: pods and this machine have all endpoints
            f"fib daddr type local ip saddr {config['cluster_cidr']} meta l4proto . th dport vmap @{NEAR_PORTS}",
            f"fib daddr type local fib saddr type local meta l4proto . th dport vmap @{NEAR_PORTS}",
            f"fib daddr type local meta l4proto . th dport vmap @{NODE_PORTS}",
        ],
        "to_cluster_ip": [
            f"ip saddr != {config['cluster_cidr']} {sets_mark}",
            f"ip daddr . meta l4proto . th dport vmap @{CLUSTER_IPS}",
        ],
        "rejecting": rejecting(services),
        "prerouting": ["type nat hook prerouting priority dstnat", "jump services"],
        "output": ["type nat hook output priority -100", "jump services"],
        **REJECTED,
        "receiving": [
            "type filter hook prerouting priority raw",
            f'iifname "{config["bridge"]}" ip daddr 127.0.0.0/8 drop',
        ],
        "postrouting": [
            "type nat hook postrouting priority srcnat",
            f"meta mark & {MASQUERADE_BIT:#x} == {MASQUERADE_BIT:#x} {takes_mark} masquerade fully-random",
            # a client at a loopback address that was sent to a pod
            "ct status dnat ip saddr 127.0.0.0/8 ip daddr != 127.0.0.0/8 masquerade fully-random",
            *(["ip saddr . ip daddr @loops masquerade fully-random"] if loops(pods) else []),
            *([own] if own else []),
        ],
    }


@functools.lru_cache(maxsize=8)
def loops(cidr: str) -> tuple[str, ...]:
    """Return each pod address of the node with itself; none where they are too many to list."""
    network = ipaddress.IPv4Network(cidr)
    if network.prefixlen < LONGEST_LOOP_PREFIX:
        return ()
    first, last = int(network.network_address) + 1, int(network.broadcast_address)
    found = (socket.inet_ntoa(struct.pack(">I", number)) for number in range(first, last))
    return tuple(f"{ip} . {ip}" for ip in found)


def script(table: str, node: str, chains: Mapping[str, list[str]], pods: str) -> str:
    """Return the input of ``nft -f`` that makes the fixed part, or mends it; elements of the maps stay."""
    key = "ipv4_addr . inet_proto . inet_service"
    # with typeof: of a pick (a plain number) no other way to say it exists
    pick = "meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport"
    maps = {
        CLUSTER_IPS: f"type {key} : verdict;",
        ENDPOINTS: f"typeof ip daddr . {pick};",
        NODE_PORTS: "type inet_proto . inet_service : verdict;",
        NODE_ENDPOINTS: f"typeof {pick};",
        NEAR_PORTS: "type inet_proto . inet_service : verdict;",
        NEAR_ENDPOINTS: f"typeof {pick};",
        **dict.fromkeys(PICKED_BY, f"type ipv4_addr . {key} : mark; size {AFFINITY_SIZE}; flags dynamic,timeout;"),
    }
    lines = [head_of(table, node), *(f"add map ip {table} {name} {{ {body} }}" for name, body in maps.items())]
    lines += loops_text(table, pods)
    return "\n".join([*lines, *chains_text(table, chains)]) + "\n"


def loops_text(table: str, pods: str) -> list[str]:
    """Return the lines that make the set of (address, same address) of the node's pods."""
    lines = [f"add set ip {table} loops {{ type ipv4_addr . ipv4_addr; }}", f"flush set ip {table} loops"]
    if found := loops(pods):
        lines.append(f"add element ip {table} loops {{ {', '.join(found)} }}")
    return lines


def pick_messages(table: str, chain: str) -> list[bytes]:
    """Return what makes a chain that picks."""
    kind, count, sticky_s = _parts(chain)
    near = NEAR_ENDPOINTS if kind == "near" else NODE_ENDPOINTS
    endpoints, register = (ENDPOINTS, 9) if kind == "count" else (near, 10)
    pick = wire_words.Pick(endpoints, register, count, MASQUERADE_BIT if kind == "port" else 0)
    affinity = NEAR_AFFINITY if kind == "near" else AFFINITY
    return wire_words.chain_messages(table, chain, wire_words.pick_rules(pick, affinity, sticky_s))


def _parts(chain: str) -> tuple[str, int, int]:
    found = _PICK.fullmatch(chain)
    if not found:
        raise KeyFault("InvalidEntry", f"{chain} is no chain that picks")
    return found[1], int(found[2]), int(found[4] or 0)


class Nftables:
    """The backend; one pass, one thread."""

    name = "nftables"
    rules_of = staticmethod(rules_of)
    told = staticmethod(told)
    place_of = staticmethod(place_of)
    udp_flow = staticmethod(udp_flow)

    def __init__(self, node: str, config: Mapping[str, Any], known: Mapping[str, str], *, bridged: bool) -> None:
        name, chains = config["table"], skeleton(config, bridged=bridged)
        self._wire = Wire(NETFILTER)
        self._name = name
        self._table = FixedTable(self._wire, node, name, chains, script(name, node, chains, config["pod_cidr"]), known)

    def close(self) -> None:
        """Close the socket."""
        self._wire.__exit__()

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
            return {name: wire_words.listed(self._wire, self._name, name) for name in MAPS}
        keys: dict[str, dict[bytes, None]] = {name: {} for name in MAPS}
        for rule in rules:
            keys[rule.table][rule.key] = None
        return {name: wire_words.looked_up(self._wire, self._name, name, keys[name]) for name in MAPS if keys[name]}

    def write(self, delete: Iterable[Rule], add: Iterable[Rule]) -> None:
        """Carry the changes out as one transaction.

        Raises:
            KeyFault, OSError: refused; nothing was changed.
        """
        delete, add = list(delete), list(add)
        changes = {name: Change(name, [], {}) for name in MAPS}
        for rule in delete:
            changes[rule.table].delete.append(rule.key)
        for rule in add:
            changes[rule.table].add[rule.key] = rule.value
        verdicts = {value for name in VERDICTS for value in changes[name].add.values()}
        chains = [name for name in sorted(map(wire_words.chain_of, verdicts)) if not self._table.is_right(name)]
        made = [asked for name in chains for asked in pick_messages(self._name, name)]
        asked = [*made, *wire_words.element_messages(self._name, changes.values()), *self._remembered(delete, add)]
        wire_words.commit(self._wire, asked)
        if chains:
            self._table.learn(chains)

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
            service = one.key[4:] if one.key[4:] in old else one.key[8:]
            place = old.get(service, {}).get(one.number)
            if place is not None:
                gone.append(one.key)
                if number := new.get(service, {}).get(place):
                    moved.append(one._replace(number=number))
        return wire_words.remembering_messages(self._name, affinity, gone, moved)

    def tidy(self, rules: Rules) -> None:
        """Remove chains that nothing goes to, given all elements of the maps."""
        used = {wire_words.chain_of(value) for name in VERDICTS for value in set(rules.get(name, {}).values())}
        idle = [name for name in self._table.seen if _PICK.fullmatch(name) and name not in used]
        wire_words.commit(self._wire, wire_words.deletion_messages(self._name, idle))
        for name in idle:
            self._table.known.pop(name, None)

    def remove(self) -> None:
        """Remove the table with everything in it, if it is ours."""
        self._table.remove()
