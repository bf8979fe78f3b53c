"""Rules by which the name server's address stays its own, whatever else leads ports of the node elsewhere.

It is an address of the machine. So a port of all of a node's addresses (``hostPort``, or one that Docker publishes)
would mean it, too: what pods ask it at port 53 would go to whoever has that port.

    table ip minik8s_names_<8 hex of the node's name> {
            chain prerouting { type nat hook prerouting priority -110; ip daddr ADDRESS dnat to ADDRESS }
            chain output     { … of what the node itself asks }
    }

The kernel translates the destination of a connection once: the first chain that says so has it, here that it stays as
it is. Chains of all others are looked at later (dstnat is -100).
"""

from __future__ import annotations

import hashlib
import subprocess

from ..core.faults import KeyFault
from ..network.netfilter import IPV4, IPV6, family_of, parse_chains

PREFIX = "minik8s_names_"
BROKEN = "incomplete"
_CHAINS = ("prerouting", "output")


def table_of(node: str) -> str:
    """Return the node's table."""
    return PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]


def _rule(address: str) -> str:
    """Return the rule of an address, as nft prints it."""
    return f"{family_of(address)} daddr {address} dnat to {address}"


def observe(node: str) -> str | None:
    """Return the address that is guarded, "" for none, ``BROKEN`` for rules that are not whole, None without nft."""
    try:
        found = {family: parse_chains(text) for family in (IPV4, IPV6) if (text := _listing(family, node))}
    except FileNotFoundError:
        return None
    if not found:
        return ""
    rules = [
        [rule for rule in chains.get(name, ()) if " hook " not in rule] for chains in found.values() for name in _CHAINS
    ]
    address = rules[0][0].rpartition(" ")[2] if rules[0] else ""
    whole = len(found) == 1 and address and all(each == [_rule(address)] for each in rules)
    return address if whole else BROKEN


def _listing(family: str, node: str) -> str:
    argv = ["nft", "list", "table", family, table_of(node)]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    return listed.stdout if listed.returncode == 0 else ""


def guard(node: str, address: str) -> None:
    """Guard exactly this address, "" for none, in one transaction.

    Raises:
        KeyFault: NetworkNotReady, nft refuses.
    """
    # only what is there: a kernel may have no tables of IPv6
    lines = [f"delete table {family} {table_of(node)}" for family in (IPV4, IPV6) if _listing(family, node)]
    if address:
        table = f"{family_of(address)} {table_of(node)}"
        lines.append(f"add table {table}")
        for chain in _CHAINS:
            lines.append(f"add chain {table} {chain} {{ type nat hook {chain} priority -110; policy accept; }}")
            lines.append(f"add rule {table} {chain} {_rule(address)}")
    text = "\n".join(lines) + "\n"
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KeyFault(
            "NetworkNotReady", f"nft refused to guard the name server's address: {done.stderr.strip()[:300]}"
        )
