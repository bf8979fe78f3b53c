"""Ports of the node that lead to a pod (hostPort): a table of maps in nftables, one a node name.

``table ip minik8s_ports_<8 hex of the node's name>`` has a map of ports and one of address and port for each protocol.
An element has its pod's uid as comment, so whose it is stands beside it and a change of a pod is a change of elements.
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
from ..network.netfilter import parse_chains

PREFIX = "minik8s_ports_"
PROTOCOLS = ("tcp", "udp", "sctp")


class Row(NamedTuple):
    """One port: ``address`` "" is every address of the node."""

    protocol: str
    address: str
    host_port: int
    ip: str
    port: int

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.address or '*'}:{self.host_port}/{self.protocol} to {self.ip}:{self.port}"


Rows = dict[str, frozenset[Row]]  # by pod uid


class Ports(NamedTuple):
    """What the kernel has: rows by pod, and whether the rules around them are whole."""

    rows: Rows
    whole: bool


def table_of(node: str) -> str:
    """Return the node's table."""
    return PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]


def declared(entry: Mapping[str, Any]) -> frozenset[Row]:
    """Return the rows of a sandbox entry; a pod on the node's network has its ports there anyway."""
    if entry["host_network"]:
        return frozenset()
    return frozenset(
        Row(one["protocol"].lower(), one["ip"], one["host_port"], entry["ip"], one["port"])
        for one in entry["host_ports"]
    )


def _frame(table: str) -> list[str]:
    """Return the commands that make the table with its rules, whatever was there."""
    lines = [f"add table ip {table}"]
    for name in PROTOCOLS:
        lines += [
            f"add map ip {table} {name}_any {{ type inet_service : ipv4_addr . inet_service ; }}",
            f"add map ip {table} {name}_one {{ type ipv4_addr . inet_service : ipv4_addr . inet_service ; }}",
            f"add set ip {table} {name}_pods {{ type ipv4_addr . inet_service ; }}",
        ]
    lines += [f"add set ip {table} near {{ type ipv4_addr ; flags interval ; }}"]
    for chain, rules in _chains().items():
        hook = f" {{ {HOOKS[chain]} }}" if chain in HOOKS else ""
        lines += [f"add chain ip {table} {chain}{hook}", f"flush chain ip {table} {chain}"]
        lines += [f"add rule ip {table} {chain} {rule}" for rule in rules]
    return lines


HOOKS = {
    "prerouting": "type nat hook prerouting priority dstnat; policy accept;",
    "output": "type nat hook output priority -100; policy accept;",
    "receiving": "type filter hook prerouting priority raw; policy accept;",
    "postrouting": "type nat hook postrouting priority srcnat; policy accept;",
}


def _chains() -> dict[str, list[str]]:
    """Return the rules by chain, as nft prints them."""
    to_pods = []
    for name in PROTOCOLS:
        to_pods += [
            f"dnat ip to ip daddr . {name} dport map @{name}_one",
            f"dnat ip to {name} dport map @{name}_any",
        ]
    back = [f"ct status dnat ip saddr @near ip daddr . {name} dport @{name}_pods masquerade" for name in PROTOCOLS]
    back += [
        f"ct status dnat ip saddr 127.0.0.0/8 ip daddr . {name} dport @{name}_pods masquerade" for name in PROTOCOLS
    ]
    outside = ['iifname != "lo" ip daddr 127.0.0.0/8 drop']
    local = ["fib daddr type local jump ports"]
    return {"ports": to_pods, "prerouting": local, "output": local, "receiving": outside, "postrouting": back}


def observe(node: str) -> Ports:
    """Return the node's rows; none where there is no table (or no nft, which has none)."""
    try:
        listed = _run(["nft", "list", "table", "ip", table_of(node)])
    except FileNotFoundError:
        return Ports({}, whole=False)
    if listed.returncode != 0:
        return Ports({}, whole=False)
    chains = parse_chains(listed.stdout)
    found = {name: [rule for rule in rules if not rule.startswith("type ")] for name, rules in chains.items()}
    return Ports(parse_rows(listed.stdout), whole=found == _chains())


def parse_rows(text: str) -> Rows:
    """Return the rows by pod uid from ``nft list table``."""
    rows: dict[str, set[Row]] = {}
    for protocol, body in re.findall(r"^\tmap (\w+)_(?:any|one) \{\n(.*?)^\t\}", text, re.MULTILINE | re.DOTALL):
        for address, host_port, uid, ip, port in _ELEMENT.findall(body):
            rows.setdefault(uid, set()).add(Row(protocol, address, int(host_port), ip, int(port)))
    return {uid: frozenset(group) for uid, group in rows.items()}


_ELEMENT = re.compile(r'(?:([\d.]+) \. )?(\d+) comment "([^"]*)" : ([\d.]+) \. (\d+)')


def _element(row: Row, uid: str = "") -> tuple[str, str]:
    """Return (map, element); with ``uid`` the whole element, else what deletes it."""
    place = f"{row.address} . {row.host_port}" if row.address else str(row.host_port)
    name = f"{row.protocol}_{'one' if row.address else 'any'}"
    message = f' comment "{uid}"' if uid else ""
    return name, f"{place}{message} : {row.ip} . {row.port}"


def change(node: str, seen: Rows, uid: str, wanted: frozenset[Row], network: str) -> None:
    """Give the pod exactly ``wanted``, in one transaction; a port that another pod held is taken over.

    Raises:
        KeyFault: NetworkNotReady, nft refuses or is not installed.
    """
    table = table_of(node)
    places = {row[:3] for row in wanted}
    gone = {row for other, rows in seen.items() for row in rows if other == uid or row[:3] in places}
    kept = {row for rows in seen.values() for row in rows} - gone
    if not wanted and not kept:
        _must([f"add table ip {table}", f"delete table ip {table}"])
        return
    lines = _frame(table)
    lines += [f"delete element ip {table} {name} {{ {place} }}" for name, place in sorted(map(_element, gone))]
    lines += [
        f"add element ip {table} {name} {{ {place} }}" for name, place in sorted(_element(r, uid) for r in wanted)
    ]
    lines += [f"flush set ip {table} {name}_pods" for name in PROTOCOLS]
    for row in sorted(kept | wanted):
        lines.append(f"add element ip {table} {row.protocol}_pods {{ {row.ip} . {row.port} }}")
    if wanted:
        lines.append(f"add element ip {table} near {{ {network} }}")
    _must(lines)


def network_of(entry: Mapping[str, Any]) -> str:
    """Return the network of the node's pods."""
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
