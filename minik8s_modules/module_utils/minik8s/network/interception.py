"""The rules that lead a pod's TCP connections to its sidecar, as iptables and as nftables have them. Pure.

The four chains ``MISTIO_…`` are those of the original (spec 1.14), and one rule more, the first of ``MISTIO_OUTPUT``:
what the sidecar hands to the application comes from 127.0.0.6 and goes there. What is left out of the mesh stands in
two chains of ours, which are asked before them; so the four are always the same, and whoever writes them once more, as
the original's init container does, changes nothing. Connections that were there before the rules pass as they are: the
kernel takes the next packet of one that it has not tracked for the first of a new one, and would cut it. Not so what
comes in to a pod with mutual TLS: a stranger's packet that begins no connection would have the one that follows pass.

Rules of iptables are compared with what ``iptables-save`` prints. What nft prints differs from version to version:
there each rule has a digest of its words as its comment, and digests are compared.

Connections by IPv6 go past a sidecar, except those to a pod that can take mutual TLS: what it refuses at its IPv4
address it must refuse at the other one, too. Its rules of IPv6 are told apart by ``IPV6`` before the chain's name.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault
from ..core.schema import check_address, check_fields, schema_of, with_defaults
from ..entries.sidecars import SidecarEntry
from .netfilter import parse_chains

SCHEMA = schema_of(SidecarEntry)
TABLE = "minik8s_sidecar"
"""nftables' table in the pod's network; with iptables the chains are in ``nat``."""
IPTABLES, NFTABLES = "iptables", "nftables"
INBOUND, OUTBOUND = "MINIK8S_INBOUND", "MINIK8S_OUTPUT"
IPV6 = "ipv6 "
"""What the names of chains of IPv6 begin with, here and in what a user sees."""
ANY_PORT = range(1, 65536)
Chains = Mapping[str, "list[str]"]
"""Rules by chain."""


class Rule(NamedTuple):
    """One rule in the words of both programs."""

    iptables: str
    nftables: str


_TCP = "meta l4proto tcp"
_TRACKED_LATE = Rule(
    "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT", "tcp flags & (fin|syn|rst|ack) != syn accept"
)
MUTUAL_TLS_PORT = 15008
"""Where a sidecar takes TLS, once a pilot has told it how; nothing listens there before, and nothing gets in."""
_MUTUAL_TLS = Rule(f"-p tcp -j REDIRECT --to-ports {MUTUAL_TLS_PORT}", f"{_TCP} redirect to :{MUTUAL_TLS_PORT}")
STATISTICS_PORT = 15090
"""Where a sidecar itself serves its statistics, on the pod's address (roles/envoy/files/bootstrap.yaml)."""
_MISTIO: Mapping[str, tuple[Rule, ...]] = {
    "MISTIO_INBOUND": (Rule("-p tcp -j MISTIO_IN_REDIRECT", f"{_TCP} jump MISTIO_IN_REDIRECT"),),
    "MISTIO_IN_REDIRECT": (Rule("-p tcp -j REDIRECT --to-ports 15006", f"{_TCP} redirect to :15006"),),
    "MISTIO_OUTPUT": (
        Rule("-s 127.0.0.6/32 -o lo -j RETURN", 'ip saddr 127.0.0.6 oifname "lo" return'),
        Rule(
            "! -d 127.0.0.1/32 -o lo -m owner --uid-owner 1337 -j MISTIO_IN_REDIRECT",
            'ip daddr != 127.0.0.1 oifname "lo" meta skuid 1337 jump MISTIO_IN_REDIRECT',
        ),
        Rule("-o lo -m owner ! --uid-owner 1337 -j RETURN", 'oifname "lo" meta skuid != 1337 return'),
        Rule("-m owner --uid-owner 1337 -j RETURN", "meta skuid 1337 return"),
        Rule(
            "! -d 127.0.0.1/32 -o lo -m owner --gid-owner 1337 -j MISTIO_IN_REDIRECT",
            'ip daddr != 127.0.0.1 oifname "lo" meta skgid 1337 jump MISTIO_IN_REDIRECT',
        ),
        Rule("-o lo -m owner ! --gid-owner 1337 -j RETURN", 'oifname "lo" meta skgid != 1337 return'),
        Rule("-m owner --gid-owner 1337 -j RETURN", "meta skgid 1337 return"),
        Rule("-d 127.0.0.1/32 -j RETURN", "ip daddr 127.0.0.1 return"),
        Rule("-j MISTIO_REDIRECT", "jump MISTIO_REDIRECT"),
    ),
    "MISTIO_REDIRECT": (Rule("-p tcp -j REDIRECT --to-ports 15001", f"{_TCP} redirect to :15001"),),
}
_JUMPS: Mapping[str, tuple[Rule, ...]] = {
    hook: tuple(Rule(f"-p tcp -j {chain}", f"{_TCP} jump {chain}") for chain in chains)
    for hook, chains in {"PREROUTING": (INBOUND, "MISTIO_INBOUND"), "OUTPUT": (OUTBOUND, "MISTIO_OUTPUT")}.items()
}
_JUMPS_IPV6 = {"PREROUTING": (Rule(f"-p tcp -j {INBOUND}", f"{_TCP} jump {INBOUND}"),)}
_LOOPBACK = Rule("-i lo -j ACCEPT", 'iifname "lo" accept')
_HOOKS = {
    "PREROUTING": "type nat hook prerouting priority -100; policy accept;",
    "OUTPUT": "type nat hook output priority -100; policy accept;",
}


def check(key: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault (InvalidEntry) for an entry that cannot be used."""
    check_fields(key, entry, SCHEMA)
    whole = with_defaults(entry, SCHEMA)
    for address in whole["node_addresses"]:
        _check_own(f"{key}.node_addresses", address, ipv6=whole["mutual_tls"])
    for name in ("exclude_inbound_ports", "exclude_outbound_ports"):
        if any(type(port) is not int or port not in ANY_PORT for port in whole[name]):
            raise KeyFault("InvalidEntry", f"{key}.{name} must hold ports from 1 to 65535, not {whole[name]!r:.80}")
    for text in whole["exclude_outbound_ranges"]:
        try:
            good = str(ipaddress.IPv4Network(text)) == text
        except (TypeError, ValueError):
            good = False
        if not good:
            raise KeyFault(
                "InvalidEntry", f"{key}.exclude_outbound_ranges {text!r:.80} is not a range of IPv4 addresses"
            )


def _check_own(where: str, address: Any, *, ipv6: bool) -> None:
    if not ipv6 or ":" not in str(address):
        check_address(where, address)
        return
    try:
        good = ipaddress.IPv6Address(address).ipv4_mapped is None and str(ipaddress.IPv6Address(address)) == address
    except ValueError:
        good = False
    if not good or "%" in address:  # rules are compared as they are printed
        raise KeyFault("InvalidEntry", f"{where} {address!r:.80} is not an IPv6 address in its shortest spelling")


def rules_of(entry: Mapping[str, Any]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of IPv4 by chain that an entry asks for, the jumps to them included."""
    whole = with_defaults(entry, SCHEMA)
    own = (one for one in whole["node_addresses"] if ":" not in one)
    here = (Rule(f"-s {one}/32 -j ACCEPT", f"ip saddr {one} accept") for one in own)
    there = (Rule(f"-d {one} -j ACCEPT", f"ip daddr {one} accept") for one in whole["exclude_outbound_ranges"])
    left_out = _ports([STATISTICS_PORT, *whole["exclude_inbound_ports"]])
    return {
        **_JUMPS,
        INBOUND: (*here, *left_out, _MUTUAL_TLS) if whole["mutual_tls"] else (_TRACKED_LATE, *here, *left_out),
        OUTBOUND: (_TRACKED_LATE, *there, *_ports(whole["exclude_outbound_ports"])),
        **_MISTIO,
    }


def rules_of_ipv6(entry: Mapping[str, Any]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of IPv6 by chain, without ``IPV6`` in their names: {} for a pod that takes no mutual TLS."""
    whole = with_defaults(entry, SCHEMA)
    if not whole["mutual_tls"]:
        return {}
    own = (one for one in whole["node_addresses"] if ":" in one)
    here = (Rule(f"-s {one}/128 -j ACCEPT", f"ip6 saddr {one} accept") for one in own)
    left_out = _ports([STATISTICS_PORT, *whole["exclude_inbound_ports"]])
    return {**_JUMPS_IPV6, INBOUND: (_LOOPBACK, *here, *left_out, _MUTUAL_TLS)}


def of_family(chains: Mapping[str, Any], *, ipv6: bool) -> dict[str, Any]:
    """Return what is of IPv4, or of IPv6, without ``IPV6`` in the names."""
    return {name.removeprefix(IPV6): each for name, each in chains.items() if name.startswith(IPV6) is ipv6}


def both(ipv4: Mapping[str, Any], ipv6: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chains of both families by name, told apart."""
    return {**ipv4, **{f"{IPV6}{name}": each for name, each in ipv6.items()}}


def _ports(ports: list[int]) -> tuple[Rule, ...]:
    return tuple(Rule(f"-p tcp -m tcp --dport {port} -j ACCEPT", f"tcp dport {port} accept") for port in ports)


def shown(rules: Mapping[str, tuple[Rule, ...]], program: str) -> dict[str, list[str]]:
    """Return the rules by chain as ``found_by_iptables`` and ``found_by_nftables`` return them."""
    return {chain: [getattr(rule, program) for rule in each] for chain, each in rules.items()}


def _digest(rule: Rule) -> str:
    return hashlib.sha256(rule.nftables.encode()).hexdigest()[:12]


# iptables


def found_by_iptables(text: str) -> dict[str, list[str]]:
    """Return what of ours stands in the output of ``iptables-save -t nat``: our chains, and all jumps to them."""
    ours = {INBOUND, OUTBOUND, *_MISTIO}
    found: dict[str, list[str]] = {name: [] for name in re.findall(r"^:(\S+)", text, re.MULTILINE) if name in ours}
    for chain, rule in re.findall(r"^-A (\S+) (.*?) *$", text, re.MULTILINE):
        if chain in ours or (chain in _JUMPS and set(rule.split()) & ours):
            found.setdefault(chain, []).append(rule)
    return found


def script_of_iptables(found: Chains, wanted: Mapping[str, tuple[Rule, ...]]) -> str:
    """Return what ``iptables-restore --noflush`` is told to come from ``found`` to ``wanted`` ({}: to nothing).

    One transaction: a chain that is declared is emptied. Jumps come first of all, before what others have there.
    """
    lines = ["*nat", *(f":{chain} - [0:0]" for chain in {**wanted, **found} if chain not in _JUMPS)]
    for hook in _JUMPS:
        lines += [f"-D {hook} {rule}" for rule in found.get(hook, [])]
        lines += [f"-I {hook} {at} {rule.iptables}" for at, rule in enumerate(wanted.get(hook, ()), 1)]
    for chain, rules in wanted.items():
        if chain not in _JUMPS:
            lines += [f"-A {chain} {rule.iptables}" for rule in rules]
    lines += [f"-X {chain}" for chain in found if chain not in wanted and chain not in _JUMPS]
    return "\n".join([*lines, "COMMIT", ""])


# nftables


def found_by_nftables(text: str, wanted: Mapping[str, tuple[Rule, ...]]) -> dict[str, list[str]]:
    """Return the rules by chain of the output of ``nft list table`` with ours, "" for no table.

    A wanted rule that is there is returned in the words of ``wanted``, another as nft prints it.
    """
    known = {_digest(rule): rule.nftables for each in wanted.values() for rule in each}
    return {
        chain: [known.get(_comment(line), line) for line in lines if not line.startswith("type ")]
        for chain, lines in parse_chains(text).items()
    }


def _comment(line: str) -> str:
    return line.rpartition(' comment "')[2].rstrip('"')


def script_of_nftables(wanted: Mapping[str, tuple[Rule, ...]], family: str = "ip") -> str:
    """Return what ``nft -f`` is told to have the table hold ``wanted`` and nothing else ({}: to have no table)."""
    table = f"{family} {TABLE}"
    lines = [f"add table {table}", f"delete table {table}"]
    if wanted:
        lines.append(f"add table {table}")
    for chain in wanted:
        hook = f" {{ {_HOOKS[chain]} }}" if chain in _HOOKS else ""
        lines.append(f"add chain {table} {chain}{hook}")
    for chain, rules in wanted.items():
        lines += [f'add rule {table} {chain} {rule.nftables} comment "{_digest(rule)}"' for rule in rules]
    return "\n".join([*lines, ""])
