"""Rules by which the name server's port stays its own, whatever else leads ports of the node elsewhere.

Its address is one of the machine. So a port of all of a node's addresses (``hostPort``, or one that Docker publishes)
would mean it, too: what pods ask it at port 53 would go to whoever has that port.

    table ip minik8s_names_<8 hex of the node's name> {
            chain prerouting {
                    type nat hook prerouting priority -110; policy accept;
                    ip daddr ADDRESS udp dport 53 dnat to ADDRESS     # and of TCP
            }
            chain output { … of what the node itself asks }
    }

The kernel translates the destination of a connection once: the first chain that says so has it, here that it stays as
it is. Chains of all others are looked at later (dstnat is -100). Other ports of the address are the machine's.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import NamedTuple

from ..core.faults import KeyFault
from ..network.netfilter import IPV4, IPV6, family_of, hooked_chains

PREFIX = "minik8s_names_"


class Place(NamedTuple):
    """Where the name server is asked."""

    address: str
    port: int = 0

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.address} port {self.port}" if self.port else self.address


NOWHERE = Place("none")
BROKEN = Place("incomplete")
"""Of rules that are not whole."""


def table_of(node: str) -> str:
    """Return the node's table."""
    return PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]


def _chains(place: Place) -> dict[str, list[str]]:
    """Return the rules by chain, as nft prints them."""
    address, family = place.address, family_of(place.address)
    rules = [f"{family} daddr {address} {each} dport {place.port} dnat to {address}" for each in ("udp", "tcp")]
    hook = "type nat hook {} priority -110; policy accept;"
    return {name: [hook.format(name), *rules] for name in ("prerouting", "output")}


_RULE = re.compile(r"\bdaddr (\S+) udp dport (\d+) ")


def observe(node: str) -> Place | None:
    """Return what is guarded, ``NOWHERE`` for nothing, ``BROKEN`` for rules that are not whole, None without nft."""
    try:
        found = [text for family in (IPV4, IPV6) if (text := _listing(family, node))]
    except FileNotFoundError:
        return None
    if not found:
        return NOWHERE
    rule = _RULE.search(found[0])
    place = Place(rule[1], int(rule[2])) if rule else NOWHERE
    return place if rule and len(found) == 1 and hooked_chains(found[0]) == _chains(place) else BROKEN


def _listing(family: str, node: str) -> str:
    argv = ["nft", "list", "table", family, table_of(node)]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    return listed.stdout if listed.returncode == 0 else ""


def guard(node: str, place: Place) -> None:
    """Guard exactly this place, in one transaction.

    Raises:
        KeyFault: NetworkNotReady, nft refuses.
    """
    # only what is there: a kernel may have no tables of IPv6
    lines = [f"delete table {family} {table_of(node)}" for family in (IPV4, IPV6) if _listing(family, node)]
    if place != NOWHERE:
        table = f"{family_of(place.address)} {table_of(node)}"
        lines.append(f"add table {table}")
        for chain, (hook, *rules) in _chains(place).items():
            lines.append(f"add chain {table} {chain} {{ {hook} }}")
            lines += [f"add rule {table} {chain} {rule}" for rule in rules]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KeyFault(
            "NetworkNotReady", f"nft refused to guard the name server's address: {done.stderr.strip()[:300]}"
        )
