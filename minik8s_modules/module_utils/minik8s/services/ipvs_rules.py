"""What one service port is among the virtual servers of IPVS, and in the table beside them. Pure."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..network import nftables_wire as wire_words
from . import announcing
from .announcing import ANNOUNCED, UPLINK
from .conntrack import Lost
from .families import Family, as_the_kernel_says, family_of, family_of_key
from .guards import guard_chain, jump_to
from .ipvs_wire import DESTINATIONS, SCHEDULER, SERVERS, Place
from .nftables_elements import GUARDED, PROTOCOLS, places_of
from .services_plan import Rule

DEVICE = "minik8s-dummy"
ADDRESSES, KEPT = "addresses", "kept_ports"
MASKED_PLACES, KEPT_PLACES = "masked_places", "kept_places"
"""Sets of the places from outside that we made servers for; from the first, clients do not keep their address."""
ELEMENTS = (KEPT, MASKED_PLACES, KEPT_PLACES, GUARDED, ANNOUNCED)
_CLIENTS = {
    KEPT: "keep their address",
    KEPT_PLACES: "keep their address",
    MASKED_PLACES: "have the node's address",
}


def keeping(services: str, family: Family) -> dict[str, list[str]]:
    """Return the chains by which later rules, such as host ports, lead nothing elsewhere that IPVS is to take."""
    ip, place = family.word, f"{family.word} daddr . meta l4proto . th dport"
    ours = (f"{ip} daddr {services}", f"{place} @{MASKED_PLACES}", f"{place} @{KEPT_PLACES}")
    return {
        "keeping": [*(f"{each} dnat to {ip} daddr" for each in ours), announcing.kept(family)],
        "arriving_first": ["type nat hook prerouting priority dstnat", "jump keeping"],
        "leaving_first": ["type nat hook output priority -100", "jump keeping"],
    }


def rules_of(
    entry: Mapping[str, Any], node_ip: str, node: str = "", second_ips: Sequence[str] = (), own_ip: str = ""
) -> list[Rule]:
    """Return the addresses, the virtual servers and the destinations of one service port.

    Args:
        entry: the port.
        node_ip: the node's own address, of IPv4.
        node: its name.
        second_ips: its own addresses of IPv6: a node port there is a place from outside.
        own_ip: that of them at which load balancers lead to services.
    """
    protocol, sticky = PROTOCOLS[entry["protocol"]], entry.get("affinity_s", 0)
    rules = [Rule(ADDRESSES, as_the_kernel_says(entry["address"]), "")]
    rules += _server((protocol, entry["address"], entry["port"]), entry["endpoints"], sticky)
    if entry.get("node_port") and node_ip:
        place = (protocol, node_ip, entry["node_port"])
        rules += _server(place, entry.get("node_endpoints", entry["endpoints"]), sticky)
        if entry.get("keep_source"):
            rules.append(Rule(KEPT, struct.pack(">B3xH2x", protocol, entry["node_port"]), b""))
    for address in second_ips if entry.get("node_port") else ():
        rules += _at_place(entry, address, entry["node_port"])
    announced = entry.get("announced") or {}
    own = node_ip or own_ip
    for address in places_of(entry, own):
        if announced.get(address, node) == node:  # what another node announces is reached there
            rules += _from_outside(entry, address, own=address == own or address in announced)
    return rules


def _from_outside(entry: Mapping[str, Any], address: str, *, own: bool) -> list[Rule]:
    """Return the rules of one address from outside; ``own``: a device of the node has it already."""
    rules = [] if own else [Rule(ADDRESSES, as_the_kernel_says(address), "")]
    rules += _at_place(entry, address, entry["port"])
    if (sources := entry.get("sources")) is not None:  # none of this family: nobody may come
        key = key_of(address, PROTOCOLS[entry["protocol"]], entry["port"])
        rules.append(Rule(GUARDED, key, jump_to(guard_chain(sources))))
    return rules


def _at_place(entry: Mapping[str, Any], address: str, port: int) -> list[Rule]:
    """Return the virtual server of a place from outside, and that it is ours."""
    protocol, sticky = PROTOCOLS[entry["protocol"]], entry.get("affinity_s", 0)
    ends = entry.get("node_endpoints", entry["endpoints"])
    whose = KEPT_PLACES if entry.get("keep_source") else MASKED_PLACES
    return [*_server((protocol, address, port), ends, sticky), Rule(whose, key_of(address, protocol, port), b"")]


def key_of(address: str, protocol: int, port: int) -> bytes:
    """Return a place as the table's sets have it."""
    family = family_of(address)
    return family.key.pack(family.packed(address), protocol, port)


def read_key(key: bytes) -> Place:
    """Return the place that a key of the table's sets is."""
    family = family_of_key(key)
    packed, protocol, port = family.key.unpack(key[: family.key.size])
    return protocol, family.text(packed), port


def _server(place: tuple[int, str, int], endpoints: Iterable[Any], sticky_s: int) -> list[Rule]:
    protocol, address, port = place
    place = (protocol, as_the_kernel_says(address), port)
    ends = dict.fromkeys((as_the_kernel_says(each[0]), each[1]) for each in endpoints)
    return [Rule(SERVERS, place, (SCHEDULER, sticky_s)), *(Rule(DESTINATIONS, (*place, *end), 1) for end in ends)]


def place_of(rule: Rule) -> str:
    """Return where a rule listens, for people."""
    if rule.table == ADDRESSES:
        return str(rule.key)
    if rule.table in (UPLINK, ANNOUNCED):
        return announcing.shown(rule)[0]
    names = {number: name for name, number in PROTOCOLS.items()}
    if rule.table in (MASKED_PLACES, KEPT_PLACES, GUARDED):
        return _place_of(read_key(rule.key))
    if rule.table == KEPT:
        protocol, port = struct.unpack(">B3xH2x", rule.key)
        return f"*:{port}/{names.get(protocol, protocol)}"
    return _place_of(rule.key[:3])


def _place_of(place: Place) -> str:
    names = {number: name for name, number in PROTOCOLS.items()}
    protocol, address, port = place
    return f"{family_of(address).at(address, port)}/{names.get(protocol, protocol)}"


def shown(rule: Rule) -> tuple[str, str]:
    """Return a rule as (what, text) for a diff."""
    if rule.table == ADDRESSES:
        return place_of(rule), f"on {DEVICE}"
    if rule.table in (UPLINK, ANNOUNCED):
        return announcing.shown(rule)
    if rule.table == GUARDED:
        return f"{place_of(rule)} clients come", wire_words.chain_of(rule.value)
    if rule.table in _CLIENTS:
        return f"{place_of(rule)} clients", _CLIENTS[rule.table]
    if rule.table == SERVERS:
        scheduler, sticky_s = rule.value
        return place_of(rule), scheduler + (f" persistent {sticky_s}" if sticky_s else "")
    return f"{place_of(rule)} {family_of(rule.key[3]).at(*rule.key[3:])}", f"Masq {rule.value}"


def udp_flow(rule: Rule) -> Lost | None:
    """Return what clients send over UDP that this rule has to do with; None for TCP."""
    if rule.table not in (SERVERS, DESTINATIONS) or rule.key[0] != socket.IPPROTO_UDP:
        return None
    endpoint = rule.key[3] if rule.table == DESTINATIONS else ""
    return Lost(rule.key[1], rule.key[2], endpoint, ipv6=":" in rule.key[1])
