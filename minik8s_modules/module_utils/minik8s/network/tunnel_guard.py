"""Guard of the tunnels: packets of the overlay come from nodes of the overlay, and to them from this machine alone.

A VXLAN device takes what anybody sends to its port, with whatever addresses of pods are inside. Table ``inet
minik8s_tunnels`` drops what has our VNI and is from no peer. It also drops what the machine would forward to a peer: it
would leave with this machine's address (masquerade), so that a pod could pass as the node, and inside as another pod.
An overlay of somebody else at the same port has another VNI, and is left alone.

Parts of a packet are put together before the rules see it: IPv4's always, IPv6's where something asks for the state of
connections, as the first rule does. Without it, one that is cut after its UDP header would show no VNI, and pass.
A machine in the nodes' own network can forge a node's address: tunnels are neither signed nor encrypted.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any

from ..core.faults import KeyFault
from .netfilter import family_of, mark_of, parse_chains

TABLE, DEFAULT_DEVICE = "minik8s_tunnels", "mk8s-vx0"
PEERS = "peers"
_PRIORITY = -150  # where mangle is: before what others accept or drop
_HOOK = re.compile(r"type filter hook (\w+) ")
_VNI = re.compile(r"(?<=@th,96,24 )(0x[0-9a-f]+|\d+)")
_ELEMENTS = re.compile(r"set peers \{.*?elements = \{(.*?)\}", re.DOTALL)


def table_of(device: str) -> str:
    """Return the name of a device's table."""
    return TABLE if device == DEFAULT_DEVICE else f"{TABLE}_{device}"


def _rules(overlay: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the rules by hook, as nft prints them; the VNI is 12 bytes behind the beginning of the UDP header."""
    port, vni, words = overlay["port"], f"@th,96,24 {overlay['vni']:#x}", family_of(overlay["address"])
    return {
        "input": [
            f"udp dport {port} ct state invalid drop",
            f"{words} saddr != @{PEERS} udp dport {port} {vni} drop",
        ],
        "forward": [f"{words} daddr @{PEERS} udp dport {port} {vni} drop"],
    }


def _peers(overlay: Mapping[str, Any]) -> list[str]:
    return sorted({peer["address"] for peer in overlay["peers"].values()})


def _shown(peers: list[str], rules: Mapping[str, list[str]]) -> str:
    lines = [f"{hook}: {rule}" for hook, found in sorted(rules.items()) for rule in found]
    return "; ".join([f"{PEERS}: {' '.join(peers)}", *lines])


def declared(overlay: Mapping[str, Any]) -> str:
    """Return what should be."""
    return _shown(_peers(overlay), _rules(overlay))


def found(device: str) -> str:
    """Return what is, "" for no table."""
    argv = ["nft", "list", "table", "inet", table_of(device)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return parse(done.stdout) if done.returncode == 0 else ""


def parse(listing: str) -> str:
    """Return what ``nft list table`` shows; releases of nft print numbers differently."""
    rules: dict[str, list[str]] = {}
    for lines in parse_chains(listing).values():
        hook = next((match[1] for line in lines if (match := _HOOK.match(line))), "")
        kept = (line for line in lines if not _HOOK.match(line))
        rules[hook] = [_VNI.sub(lambda number: f"{int(number[0], 0):#x}", line) for line in kept]
    elements = _ELEMENTS.search(listing)
    return _shown(sorted(re.findall(r"[0-9a-f.:]+", elements[1])) if elements else [], rules)


def script(node: str, overlay: Mapping[str, Any]) -> str:
    """Return the input of ``nft -f`` that replaces the table, in one transaction."""
    table, kind = f"inet {table_of(overlay['device'])}", "ipv6_addr" if ":" in overlay["address"] else "ipv4_addr"
    lines = [f"add table {table}", f"delete table {table}", f'add table {table} {{ comment "{mark_of(node)}"; }}']
    lines.append(f"add set {table} {PEERS} {{ type {kind}; }}")
    if peers := _peers(overlay):
        lines.append(f"add element {table} {PEERS} {{ {', '.join(peers)} }}")
    for hook, rules in _rules(overlay).items():
        lines.append(f"add chain {table} {hook} {{ type filter hook {hook} priority {_PRIORITY}; }}")
        lines += [f"add rule {table} {hook} {rule}" for rule in rules]
    return "\n".join(lines) + "\n"


def make(node: str, overlay: Mapping[str, Any]) -> None:
    """Make the table.

    Raises:
        KeyFault: nft refuses it.
    """
    _nft(script(node, overlay))


def remove(device: str) -> None:
    """Remove the table of a device that goes; there is one."""
    _nft(f"delete table inet {table_of(device)}\n")


def _nft(text: str) -> None:
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KeyFault("NetworkNotReady", f"nft cannot guard the tunnels: {done.stderr.strip()[:300]}")
