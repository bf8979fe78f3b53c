"""What one service port is in the maps of our nf_tables table, and how that is told to people. Pure.

Each place that leads to a port (a cluster IP, a node port, an address from outside) is one element of a map of
verdicts, and one per endpoint in a map beside it. nftables.py has the chains that look them up.
"""

from __future__ import annotations

import functools
import re
import socket
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from ..network import nftables_wire as wire_words
from . import announcing
from .announcing import ANNOUNCED, UPLINK
from .conntrack import Lost
from .families import IPV4, IPV6, Family, family_of, family_of_key
from .guards import guard_chain, jump_to
from .services_plan import Rule

PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
CLUSTER_IPS, ENDPOINTS, NODE_PORTS, NODE_ENDPOINTS = "cluster_ips", "endpoints", "node_ports", "node_endpoints"
NEAR_PORTS, NEAR_ENDPOINTS = "near_ports", "near_endpoints"
OUTSIDE_IPS, NEAR_IPS, NEAR_IP_ENDPOINTS, GUARDED = "outside_ips", "near_ips", "near_ip_endpoints", "guarded"
AFFINITY, NEAR_AFFINITY = "affinity", "near_affinity"
PICKED_BY = {AFFINITY: (ENDPOINTS, NODE_ENDPOINTS), NEAR_AFFINITY: (NEAR_ENDPOINTS, NEAR_IP_ENDPOINTS)}
"""The maps that numbers remembered for clients are numbers of."""
PLACES = (CLUSTER_IPS, ENDPOINTS, OUTSIDE_IPS, NEAR_IPS, NEAR_IP_ENDPOINTS, GUARDED)
"""Maps whose keys begin with an address, a protocol and a port."""
PICKS = (CLUSTER_IPS, NODE_PORTS, NEAR_PORTS, OUTSIDE_IPS, NEAR_IPS)
VERDICTS = (*PICKS, GUARDED)
MAPS = (*VERDICTS, ENDPOINTS, NODE_ENDPOINTS, NEAR_ENDPOINTS, NEAR_IP_ENDPOINTS)
TURNS = 64
# chains of a former version have no turn: they are known, so that they are tidied away
PICK = re.compile(r"(count|port|keep|near|wide|close)_(\d{5})(?:_t(\d{3}))?(?:_(\d+))?")
_PORT_KEY = struct.Struct(">B3xH2x")
_INDEX = [struct.pack("=I", number) for number in range(1 << 10)]


def _index(number: int) -> bytes:
    return _INDEX[number] if number < len(_INDEX) else struct.pack("=I", number)


@functools.lru_cache(maxsize=1 << 16)
def _target(address: str, port: int) -> bytes:
    family = family_of(address)
    return family.place.pack(family.packed(address), port)


def _key_of(address: str, protocol: int, port: int) -> bytes:
    family = family_of(address)
    return family.key.pack(family.packed(address), protocol, port)


def pick_chain(kind: str, count: int, affinity_s: int, key: bytes) -> str:
    """Return the chain that picks for the service at ``key``.

    Kind: ``count`` (cluster IP), ``port`` (node port), ``wide`` (address from outside). With policy Local ``keep`` and
    ``count`` take their places, ``near`` and ``close`` are for clients in the cluster.
    """
    return f"{kind}_{count:05d}_t{zlib.crc32(key) % TURNS:03d}" + (f"_{affinity_s}" if affinity_s else "")


def rules_of(entry: Mapping[str, Any], node_ip: str = "") -> list[Rule]:
    """Return the elements of one service port on a node; none without endpoints, what comes is then rejected."""
    found: list[Rule] = []
    protocol, sticky = PROTOCOLS[entry["protocol"]], entry.get("affinity_s", 0)
    endpoints = entry["endpoints"]
    value_of = wire_words.value_of
    if endpoints:
        key = _key_of(entry["address"], protocol, entry["port"])
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
    for place in places_of(entry, node_ip):
        found += _from_outside(entry, place)
    return found


def places_of(entry: Mapping[str, Any], node_ip: str) -> list[str]:
    """Return the addresses from outside at which a port is reached on a node."""
    return [*(entry.get("outside") or []), *([node_ip] if entry.get("at_nodes") and node_ip else [])]


def _from_outside(entry: Mapping[str, Any], address: str) -> list[Rule]:
    """Return the elements of one address from outside; who may not come is refused though nobody is there to answer."""
    protocol, sticky, endpoints = PROTOCOLS[entry["protocol"]], entry.get("affinity_s", 0), entry["endpoints"]
    ends, keep = entry.get("node_endpoints", endpoints), bool(entry.get("keep_source"))
    key = _key_of(address, protocol, entry["port"])
    found = _at_port(
        (OUTSIDE_IPS, ENDPOINTS), key, pick_chain("count" if keep else "wide", len(ends), sticky, key), ends
    )
    if keep:
        chain = pick_chain("close", len(endpoints), sticky, key)
        found += _at_port((NEAR_IPS, NEAR_IP_ENDPOINTS), key, chain, endpoints)
    if (sources := entry.get("sources")) is not None:
        found.append(Rule(GUARDED, key, jump_to(guard_chain(sources))))
    return found


def _at_port(maps: tuple[str, str], key: bytes, chain: str, ends: list[Any]) -> list[Rule]:
    if not ends:
        return []
    verdict = Rule(maps[0], key, wire_words.verdict_of(chain))
    value_of = wire_words.value_of
    return [verdict, *(Rule(maps[1], key + _index(at), value_of(_target(*each))) for at, each in enumerate(ends))]


def place_of(rule: Rule) -> str:
    """Return where a rule listens, for people: ``100.0.0.7:80/TCP``, ``[fd00::7]:80/TCP`` or ``*:30080/TCP``."""
    if rule.table in (UPLINK, ANNOUNCED):
        return announcing.shown(rule)[0]
    names = {number: name for name, number in PROTOCOLS.items()}
    if rule.table in PLACES:
        family = family_of_key(rule.key)
        ip, protocol, port = family.key.unpack(rule.key[: family.key.size])
        return f"{family.at(family.text(ip), port)}/{names.get(protocol, protocol)}"
    protocol, port = _PORT_KEY.unpack(rule.key[: _PORT_KEY.size])
    return f"*:{port}/{names.get(protocol, protocol)}"


def udp_flow(rule: Rule, family: Family = IPV4) -> Lost | None:
    """Return what clients send over UDP that this rule of a family has something to do with; None for TCP."""
    if rule.table in (GUARDED, UPLINK, ANNOUNCED):
        return None
    whole = rule.table in PLACES
    if rule.key[family.width if whole else 0] != socket.IPPROTO_UDP:
        return None
    ip, port = ("", _PORT_KEY.unpack(rule.key[: _PORT_KEY.size])[1])
    if whole:
        packed, _, port = family.key.unpack(rule.key[: family.key.size])
        ip = family.text(packed)
    endpoint = "" if rule.table in VERDICTS else family.text(wire_words.data_of(rule.value)[: family.width])
    return Lost(ip, port, endpoint, ipv6=family is IPV6)


_WHOSE = {
    "keep": ", whose clients keep their address",
    "near": ", for clients in the cluster",
    "close": ", for clients in the cluster",
}


def picking(chain: str) -> str:
    """Return in words what a chain of ``pick_chain`` does; a chain of anybody else is told by its name."""
    found = PICK.fullmatch(chain)
    if found is None:
        return chain
    kind, count, _turn, affinity_s = found.groups()
    sticky = f", the same for {affinity_s} s" if affinity_s else ""
    return f"1 of {int(count)} endpoints{_WHOSE.get(kind, '')}{sticky}"


def shown(rule: Rule) -> tuple[str, str]:
    """Return a rule as (what, text) for a diff."""
    if rule.table in (UPLINK, ANNOUNCED):
        return announcing.shown(rule)
    if rule.table == GUARDED:
        return f"{place_of(rule)} clients", wire_words.chain_of(rule.value)
    if rule.table in (NEAR_IPS, NEAR_PORTS):
        return f"{place_of(rule)} (near)", picking(wire_words.chain_of(rule.value))
    if rule.table in VERDICTS:
        return place_of(rule), picking(wire_words.chain_of(rule.value))
    data = wire_words.data_of(rule.value)
    family = IPV6 if len(data) == IPV6.place.size else IPV4
    ip, port = family.place.unpack(data)
    (at,) = struct.unpack("=I", rule.key[-4:])
    return f"{place_of(rule)} [{at}]", family.at(family.text(ip), port)
