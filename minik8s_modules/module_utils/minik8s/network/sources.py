"""Source addresses: what a pod sends has the pod's own address, whatever the pod could forge.

Table ``bridge minik8s_sources`` holds the pairs of device and address of the node's pods; what comes from such a
device into its bridge with another IPv4 address, in a packet or in ARP, is dropped before anything looks at it. So a
pod with NET_RAW cannot pass as another one that NetworkPolicies allow more. A kernel whose nf_tables does not know
bridges has no such table, and pods of such a node can forge. A bridge of another name has a table of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import NamedTuple

from .netfilter import mark_of

TABLE, DEFAULT_BRIDGE = "minik8s_sources", "mk8s-br0"
GUARDED, DEVICES = "own", "links"
_PAIR = re.compile(r'"?([\w.-]+)"? \. (\d+\.\d+\.\d+\.\d+)')
_SET = re.compile(r"set own \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_DEVICES = re.compile(r"set links \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r'"([\w.-]+)"')
_CHAIN = re.compile(r"chain arriving \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)


class Pair(NamedTuple):
    """A pod's device and its address."""

    device: str
    address: str


class Guard(NamedTuple):
    """What the table has: the pairs, and whether the rules are there."""

    pairs: frozenset[Pair] = frozenset()
    rules: int = 0


def table_of(bridge: str) -> str:
    """Return the name of a bridge's table."""
    return TABLE if bridge == DEFAULT_BRIDGE else f"{TABLE}_{bridge}"


RULES = (
    "iifname @links ether type ip iifname . ip saddr != @own drop",
    # who asks whether an address is free has none
    "iifname @links ether type arp arp saddr ip != 0.0.0.0 iifname . arp saddr ip != @own drop",
)


def script(node: str, bridge: str, pair: Pair) -> str:
    """Return the input of ``nft -f`` that makes the table, with this pair among those it has."""
    table = f"bridge {table_of(bridge)}"
    lines = [f'add table {table} {{ comment "{mark_of(node)}"; }}']
    lines.append(f"add set {table} {GUARDED} {{ type ifname . ipv4_addr; }}")
    lines.append(f"add set {table} {DEVICES} {{ type ifname; }}")
    lines.append(f"add chain {table} arriving {{ type filter hook prerouting priority -300; }}")
    lines.append(f"flush chain {table} arriving")
    lines += [f"add rule {table} arriving {rule}" for rule in RULES]
    lines.append(f'add element {table} {GUARDED} {{ "{pair.device}" . {pair.address} }}')
    lines.append(f'add element {table} {DEVICES} {{ "{pair.device}" }}')
    return "\n".join(lines) + "\n"


def admit(node: str, bridge: str, pair: Pair) -> bool:
    """Let a device send with an address; return whether this kernel can hold back what has another."""
    return _nft(script(node, bridge, pair))


def dismiss(bridge: str, pair: Pair) -> None:
    """Forget a pair; where there is none, nothing happens."""
    place = f"delete element bridge {table_of(bridge)}"
    _nft(f'{place} {DEVICES} {{ "{pair.device}" }}\n{place} {GUARDED} {{ "{pair.device}" . {pair.address} }}\n')


def remove(bridge: str) -> None:
    """Remove the table of a bridge that goes; where there is none, nothing happens."""
    _nft(f"delete table bridge {table_of(bridge)}\n")


def found(bridge: str) -> Guard | None:
    """Return what the table has; None where this kernel or node has no nf_tables for bridges."""
    if not shutil.which("nft"):
        return None
    argv = ["nft", "list", "table", "bridge", table_of(bridge)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return parse(done.stdout)
    return Guard() if "No such file" in done.stderr else None


def parse(listing: str) -> Guard:
    """Return what ``nft list table`` shows."""
    pairs, devices, chain = (pattern.search(listing) for pattern in (_SET, _DEVICES, _CHAIN))
    rules = [line for line in (chain[1] if chain else "").splitlines() if "@own drop" in line]
    looked_at = set(_NAME.findall(devices[1])) if devices else set()
    own = (Pair(*each) for each in _PAIR.findall(pairs[1] if pairs else ""))
    return Guard(frozenset(pair for pair in own if pair.device in looked_at), len(rules))


def _nft(text: str) -> bool:
    if not shutil.which("nft"):
        return False
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0
