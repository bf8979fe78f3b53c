"""Ports of the node that lead to a pod (hostPort): a table of maps in nftables, one a node name.

``table ip minik8s_ports_<8 hex of the node's name>`` has a map of ports and one of address and port for each protocol.
Where the pod has an IPv6 address, ``table ip6`` of the same name leads to it from the IPv6 addresses of the node.
Rules of Services are looked at first, whichever table is the older one. An element has its pod's uid as comment, so
whose it is stands beside it; a change makes the whole table again, in one transaction.
Connections from outside come through prerouting, those of the node itself through output; where both ends are pods of
this node the source becomes the node's, else the answer would take the way over the bridge alone.
So do 127.0.0.1 and its like, which need the bridge's route_localnet to have a way out; ``receiving`` drops what anybody
else would then send to the node's own loopback.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..network.netfilter import IPV4, IPV6, family_of, hooked_chains, in_numbers
from ..network.sources import REDIRECTED_BIT

PREFIX = "minik8s_ports_"
PROTOCOLS = ("tcp", "udp", "sctp")
EVERY_IPV4 = "0.0.0.0"  # noqa: S104 - compared
EVERY_IPV6 = "::"
ADDRESSES = {IPV4: "ipv4_addr", IPV6: "ipv6_addr"}


class Row(NamedTuple):
    """One port: ``address`` "" is every address of the node, of the family that ``ip`` is of."""

    protocol: str
    address: str
    host_port: int
    ip: str
    port: int

    def __str__(self) -> str:
        """Return it for people."""
        place, pod = self.address or "*", self.ip
        if family_of(pod) == IPV6:
            place, pod = f"[{self.address or EVERY_IPV6}]", f"[{pod}]"
        return f"{place}:{self.host_port}/{self.protocol} to {pod}:{self.port}"


Rows = dict[str, frozenset[Row]]  # by pod uid


class Ports(NamedTuple):
    """What the kernel has: rows by pod, whether the rules around are whole, and the networks of the node's pods."""

    rows: Rows
    whole: bool
    network: str = ""


def table_of(node: str) -> str:
    """Return the node's table."""
    return PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]


def declared(entry: Mapping[str, Any]) -> frozenset[Row]:
    """Return the rows of a sandbox entry; a pod on the node's network has its ports there anyway."""
    if entry["host_network"]:
        return frozenset()
    rows: set[Row] = set()
    for one in entry["host_ports"]:
        protocol, ports = one["protocol"].lower(), (one["host_port"], one["port"])
        address = "" if one["ip"] in {EVERY_IPV4, EVERY_IPV6} else one["ip"]
        if ":" not in one["ip"] and entry["ip"]:
            rows.add(Row(protocol, address, ports[0], entry["ip"], ports[1]))
        if (not one["ip"] or ":" in one["ip"]) and entry.get("ipv6"):
            rows.add(Row(protocol, address, ports[0], entry["ipv6"]["ip"], ports[1]))
    return frozenset(rows)


def _frame(family: str, table: str) -> list[str]:
    """Return the commands that make a family's table with its rules, in place of the one that is there."""
    table, address = f"{family} {table}", ADDRESSES[family]
    lines = [f"add table {table}", f"delete table {table}", f"add table {table}"]
    for name in PROTOCOLS:
        lines += [
            f"add map {table} {name}_any {{ type inet_service : {address} . inet_service ; }}",
            f"add map {table} {name}_one {{ type {address} . inet_service : {address} . inet_service ; }}",
            f"add set {table} {name}_pods {{ type {address} . inet_service ; }}",
        ]
    lines += [f"add set {table} near {{ type {address} ; flags interval ; }}"]
    chains = _chains(family)
    lines += [f"add chain {table} {chain}{f' {{ {HOOKS[chain]} }}' if chain in HOOKS else ''}" for chain in chains]
    return lines + [f"add rule {table} {chain} {rule}" for chain, rules in chains.items() for rule in rules]


HOOKS = {
    "prerouting": "type nat hook prerouting priority dstnat + 10; policy accept;",
    "output": "type nat hook output priority -90; policy accept;",
    "receiving": "type filter hook prerouting priority raw; policy accept;",
    "postrouting": "type nat hook postrouting priority srcnat; policy accept;",
    "redirected": "type filter hook prerouting priority -80; policy accept;",
    "leaving": "type filter hook postrouting priority -150; policy accept;",
}


def _chains(family: str) -> dict[str, list[str]]:
    """Return the rules by chain, as nft prints them."""
    to_pods, back = [], []
    for name in PROTOCOLS:
        to_pods += [
            f"dnat {family} to {family} daddr . {name} dport map @{name}_one",
            f"dnat {family} to {name} dport map @{name}_any",
        ]
    for source in ("@near", "127.0.0.0/8") if family == IPV4 else ("@near",):
        back += [
            f"ct status dnat {family} saddr {source} {family} daddr . {name} dport @{name}_pods masquerade"
            for name in PROTOCOLS
        ]
    # there is no route_localnet for IPv6: nothing comes back to ::1
    local = [
        "fib daddr type local jump ports" if family == IPV4 else "fib daddr type local ip6 daddr != ::1 jump ports"
    ]
    found = {"ports": to_pods, "prerouting": local, "output": local, "postrouting": back}
    if family == IPV4:
        return {**found, "receiving": ['iifname != "lo" ip daddr 127.0.0.0/8 drop']}
    # marked is what pods sent to a port of their node (sources.py)
    bit, others = f"{REDIRECTED_BIT:#010x}", f"{~REDIRECTED_BIT & 0xFFFFFFFF:#010x}"
    return {
        **found,
        "redirected": [f"ct status dnat meta mark set meta mark | {bit}"],
        "leaving": [f"meta mark & {bit} == {bit} meta mark set meta mark & {others}"],
    }


def observe(node: str) -> Ports:
    """Return the node's rows; none where there is no table (or no nft, which has none)."""
    rows: Rows = {}
    listings = {family: _listing(node, family) for family in (IPV4, IPV6)}
    for text in listings.values():
        for uid, found in parse_rows(text).items():
            rows[uid] = rows.get(uid, frozenset()) | found
    whole = any(listings.values()) and all(_is_whole(family, text) for family, text in listings.items() if text)
    network = _NEAR.search(listings[IPV4])
    return Ports(rows, whole, " ".join(network[1].split()) if network else "")


def _listing(node: str, family: str) -> str:
    """Return what nft says of a family's table, "" where there is none."""
    try:
        listed = _run(["nft", "list", "table", family, table_of(node)])
    except FileNotFoundError:
        return ""
    return listed.stdout if listed.returncode == 0 else ""


def _is_whole(family: str, text: str) -> bool:
    hooks = {chain: [in_numbers(hook)] for chain, hook in HOOKS.items()}
    return hooked_chains(text) == {chain: hooks.get(chain, []) + rules for chain, rules in _chains(family).items()}


def parse_rows(text: str) -> Rows:
    """Return the rows by pod uid from ``nft list table``."""
    rows: dict[str, set[Row]] = {}
    for protocol, body in re.findall(r"^\tmap (\w+)_(?:any|one) \{\n(.*?)^\t\}", text, re.MULTILINE | re.DOTALL):
        for address, host_port, uid, ip, port in _ELEMENT.findall(body):
            place = str(ipaddress.IPv6Address(address)) if ":" in address else address
            rows.setdefault(uid, set()).add(Row(protocol, place, int(host_port), ip, int(port)))
    return {uid: frozenset(group) for uid, group in rows.items()}


_NEAR = re.compile(r"\tset near \{[^}]*elements = \{ ([^}]+) \}")
_ELEMENT = re.compile(r'(?:([\da-f.:]+) \. )?(\d+) comment "([^"]*)" : ([\da-f.:]+) \. (\d+)')


def _element(row: Row, uid: str) -> str:
    """Return what a row is in its map, and the map's name before it."""
    place = f"{row.address} . {row.host_port}" if row.address else str(row.host_port)
    name = f"{row.protocol}_{'one' if row.address else 'any'}"
    return f'{name} {{ {place} comment "{uid}" : {row.ip} . {row.port} }}'


def change(node: str, seen: Ports, uid: str, wanted: frozenset[Row], network: str) -> None:
    """Give the pod exactly ``wanted``, in one transaction; a port that another pod held is taken over.

    Args:
        node: the node's name.
        seen: what the kernel has.
        uid: the pod.
        wanted: its ports.
        network: of the node's pods of IPv4, "" for what is known already.

    Raises:
        KeyFault: NetworkNotReady, nft refuses or is not installed.
    """
    places = {_place(row) for row in wanted}
    kept = [(row, other) for other, rows in seen.rows.items() if other != uid for row in rows]
    rows = [each for each in kept if _place(each[0]) not in places] + [(row, uid) for row in wanted]
    lines: list[str] = []
    for family in (IPV4, IPV6):
        own = sorted(each for each in rows if family_of(each[0].ip) == family)
        if own:
            lines += _made(family, table_of(node), own, network or seen.network)
        elif family == IPV4 or _listing(node, family):
            lines += [f"{verb} table {family} {table_of(node)}" for verb in ("add", "delete")]
    _must(lines)


def _place(row: Row) -> tuple[Any, ...]:
    return (family_of(row.ip), *row[:3])


def _made(family: str, table: str, rows: list[tuple[Row, str]], network: str) -> list[str]:
    """Return the commands that make a family's table with these rows."""
    lines, table = _frame(family, table), f"{family} {table}"
    for row, uid in rows:
        lines.append(f"add element {table} {_element(row, uid)}")
        lines.append(f"add element {table} {row.protocol}_pods {{ {row.ip} . {row.port} }}")
    # pods whose answers would not pass the node: of IPv6 those to itself alone, all else does anyway (network_ipv6.py)
    near = [network] if family == IPV4 else sorted({row.ip for row, _ in rows})
    return lines + [f"add element {table} near {{ {each} }}" for each in near if each]


def network_of(entry: Mapping[str, Any]) -> str:
    """Return the network of the node's pods, "" where they have none of IPv4."""
    if not entry["ip"]:
        return ""
    return str(ipaddress.IPv4Interface(f"{entry['ip']}/{entry['prefix_length']}").network)


def _run(argv: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)


def _must(lines: Iterable[str]) -> None:
    try:
        done = _run(["nft", "-f", "-"], "\n".join(lines) + "\n")
    except FileNotFoundError:
        raise KeyFault("NetworkNotReady", "the command nft is not installed (package nftables)") from None
    if done.returncode != 0:
        raise KeyFault("NetworkNotReady", f"nft refused the host ports: {done.stderr.strip()[:300]}")
