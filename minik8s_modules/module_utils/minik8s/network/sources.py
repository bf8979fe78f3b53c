"""Source addresses: what a pod sends has the pod's own address, whatever the pod could forge.

Table ``bridge minik8s_sources`` holds the pairs of device and address of the node's pods; what comes from such a
device into its bridge with another address, in a packet or in ARP, is dropped before anything looks at it. So a
pod with NET_RAW cannot pass as another one that NetworkPolicies allow more. Frames that carry neither IP nor ARP are
dropped, too: the kernel takes the tag of a VLAN 0 off (802.1p) and delivers what is below it, which neither these rules
nor those of policies would have seen. A kernel whose nf_tables does not know bridges has no such table, and pods of
such a node can forge. A bridge of another name has a table of its own.

What pods send of IPv6 goes to the node alone, which forwards it (network_ipv6.py): nothing passes from port to port
but what was sent to an address of the node or of a Service, and leads to a pod. Where bridged packets are shown to the
rules of IPv6 (br_netfilter), the kernel puts the pod's address in while the frame is in the bridge, and then sends it
to its new port itself; the rules for forwarding see it all the same. Such a packet has a mark, which the node alone can
set (pods/host_ports.py, services/nftables.py). Nothing of neighbour discovery is taken from a pod, neither an
advertisement of a router nor of a neighbour. A pod without an IPv6 address sends nothing of it: policies that know no
IPv6 would not see it, and its node may forward.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable
from typing import NamedTuple

from ..core.digests import canonical
from ..core.files import read_json, write_atomically
from . import nftables_wire as wire_words
from .netfilter import mark_of
from .nftables_wire import Change
from .wire import NETFILTER, Wire

TABLE, DEFAULT_BRIDGE = "minik8s_sources", "mk8s-br0"
GUARDED, GUARDED_IPV6, DEVICES = "own", "own_ipv6", "links"
NAME_BYTES = 16  # IFNAMSIZ of linux/if.h
_WRITING = threading.Lock()  # rules are written as they were found, by one pod of those that come together
_PAIR = re.compile(r'"?([\w.-]+)"? \. (\d+\.\d+\.\d+\.\d+)')
_PAIR_IPV6 = re.compile(r'"?([\w.-]+)"? \. ([0-9a-f:]*:[0-9a-f:.]*)')
_SET = re.compile(r"set own \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_SET_IPV6 = re.compile(r"set own_ipv6 \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_DEVICES = re.compile(r"set links \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r'"([\w.-]+)"')
_CHAIN = re.compile(r"chain (arriving|arriving_ipv6|passing) \{(.*?)^\t\}", re.DOTALL | re.MULTILINE)


class Pair(NamedTuple):
    """A pod's device and its addresses; "" for none."""

    device: str
    address: str
    ipv6: str = ""


class Guard(NamedTuple):
    """What the table has: the pairs, how many of the rules are there, and whether all is as it was written."""

    pairs: frozenset[Pair] = frozenset()
    rules: int = 0
    rules_ipv6: int = 0
    as_written: bool = True

    def holds(self, pair: Pair) -> bool:
        """Return whether a pod cannot send with other addresses than its own."""
        enough = self.rules >= len(RULES) and self.rules_ipv6 >= len(RULES_IPV6) + len(PASSING)
        return self.as_written and enough and [each for each in self.pairs if each.device == pair.device] == [pair]


def table_of(bridge: str) -> str:
    """Return the name of a bridge's table."""
    return TABLE if bridge == DEFAULT_BRIDGE else f"{TABLE}_{bridge}"


RULES = (
    "iifname @links ether type != { ip, ip6, arp } drop",
    "iifname @links ether type ip iifname . ip saddr != @own drop",
    # who asks whether an address is free has none
    "iifname @links ether type arp arp saddr ip != 0.0.0.0 iifname . arp saddr ip != @own drop",
)
RULES_IPV6 = (
    "iifname @links ether type ip6 iifname . ip6 saddr != @own_ipv6 drop",
    "iifname @links ether type ip6 icmpv6 type 133-137 drop",  # RFC 4861
)
REDIRECTED_BIT = 0x2000
PASSING = (
    f"iifname @links ether type ip6 meta mark & {REDIRECTED_BIT:#x} == 0 drop",
    "iifname @links ether type ip6 meta pkttype multicast drop",
)
"""Rules for what would pass from port to port."""


def script(node: str, bridge: str, pair: Pair, chains: Iterable[str] = (), others: Iterable[str] = ()) -> str:
    """Return the input of ``nft -f`` that makes the table, with this pair among those it has.

    ``chains``, which it may have, go: nobody can change the priority of one. ``others``, sets and maps that it has, go
    between rules and chains: verdict maps hold chains. Who is in our own sets stays.
    """
    table = f"bridge {table_of(bridge)}"
    lines = [_head(node, bridge)]
    lines += [f"{verb} chain {table} {name}" for verb in ("add", "flush") for name in chains]
    lines += [f"delete set {table} {name}" for name in others]
    lines += [f"delete chain {table} {name}" for name in chains]
    lines.append(f"add set {table} {GUARDED} {{ type ifname . ipv4_addr; }}")
    lines.append(f"add set {table} {DEVICES} {{ type ifname; }}")
    lines.append(f"add chain {table} arriving {{ type filter hook prerouting priority -300; }}")
    lines.append(f"flush chain {table} arriving")
    lines += [f"add rule {table} arriving {rule}" for rule in RULES]
    lines += _lines_of_ipv6(table, pair)
    if pair.address:
        lines.append(f'add element {table} {GUARDED} {{ "{pair.device}" . {pair.address} }}')
    lines.append(f'add element {table} {DEVICES} {{ "{pair.device}" }}')
    return "\n".join(lines) + "\n"


def _head(node: str, bridge: str) -> str:
    return f'add table bridge {table_of(bridge)} {{ comment "{mark_of(node)}"; }}'


def _lines_of_ipv6(table: str, pair: Pair) -> list[str]:
    return [
        f"add set {table} {GUARDED_IPV6} {{ type ifname . ipv6_addr; }}",
        f"add chain {table} arriving_ipv6 {{ type filter hook prerouting priority -300; }}",
        f"add chain {table} passing {{ type filter hook forward priority -300; }}",
        *(f"flush chain {table} {name}" for name in ("arriving_ipv6", "passing")),
        *(f"add rule {table} arriving_ipv6 {rule}" for rule in RULES_IPV6),
        *(f"add rule {table} passing {rule}" for rule in PASSING),
        *([f'add element {table} {GUARDED_IPV6} {{ "{pair.device}" . {pair.ipv6} }}'] if pair.ipv6 else []),
    ]


def admit(run_dir: str, node: str, bridge: str, pair: Pair) -> bool:
    """Let a device send with an address; return whether this kernel can hold back what has another.

    Rules are written by nft, which takes 7 ms of CPU; while they are as it left them, all that is missing is the pair.
    """
    with _WRITING:
        known, seen = _known(run_dir), _seen(bridge)
        recorded = known.pop(bridge, None)
        new = [Change(name, [], {key: b""}) for name, key in _elements(pair).items()]
        if seen and recorded == _digest(node, bridge, seen) and _change(bridge, new):
            return True
        clean = _rewritten(node, bridge, pair, seen)
        if not clean:
            if not (seen and _written(node, bridge, seen, script(node, bridge, pair))):
                return False
            clean = _rewritten(node, bridge, pair, _seen(bridge))  # without chains that former rules alone had
        # what cannot be deleted keeps none of our rules out, and is told as drift: no digest is ""
        if (seen := _seen(bridge)) is not None:
            known[bridge] = _digest(node, bridge, seen) if clean else ""
        _note(run_dir, known)
    return True


def _rewritten(node: str, bridge: str, pair: Pair, seen: dict[str, str] | None) -> bool:
    """Have the table hold our rules alone; return whether that could be done."""
    return _written(node, bridge, seen, script(node, bridge, pair, seen or (), _others(bridge)))


def _written(node: str, bridge: str, seen: dict[str, str] | None, rules: str) -> bool:
    # a table that is switched off takes no chain in the transaction that switches it on
    return _nft(rules) or (bool(seen) and _nft(_head(node, bridge)) and _nft(rules))


def _note(run_dir: str, known: dict[str, str]) -> None:
    """Keep the digests; on a full disk none, as a former one would tell of drift: the next pod writes again."""
    try:
        write_atomically(_record(run_dir), canonical(known))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(_record(run_dir))


def _record(run_dir: str) -> str:
    return os.path.join(run_dir, "sources.json")


def _known(run_dir: str) -> dict[str, str]:
    kept = read_json(_record(run_dir))
    return kept if isinstance(kept, dict) else {}


def _seen(bridge: str) -> dict[str, str] | None:
    """Return digests of the table's chains, {} where there is no such table, None where the kernel does not tell."""
    try:
        with Wire(NETFILTER) as wire:
            return wire_words.fingerprints(wire, f"bridge {table_of(bridge)}")
    except OSError:
        return None


def _others(bridge: str) -> list[str]:
    """Return the table's sets and maps that are not ours."""
    try:
        with Wire(NETFILTER) as wire:
            own = {GUARDED, GUARDED_IPV6, DEVICES}
            return sorted(wire_words.sets_of(wire, f"bridge {table_of(bridge)}").keys() - own)
    except OSError:
        return []


def _digest(node: str, bridge: str, seen: dict[str, str]) -> str:
    """Return what tells that these chains are those of today's rules."""
    return wire_words.digest_of(repr(sorted(seen.items())) + script(node, bridge, Pair("", "")))


def _elements(pair: Pair) -> dict[str, bytes]:
    """Return what a pair is in the sets, as the kernel has it; its device comes last."""
    device = pair.device.encode().ljust(NAME_BYTES, b"\0")
    found = {GUARDED: device + socket.inet_pton(socket.AF_INET, pair.address)} if pair.address else {}
    found |= {GUARDED_IPV6: device + socket.inet_pton(socket.AF_INET6, pair.ipv6)} if pair.ipv6 else {}
    return {**found, DEVICES: device}


def _change(bridge: str, changes: list[Change]) -> bool:
    """Change the sets, in one transaction; return whether that could be done."""
    try:
        with Wire(NETFILTER) as wire:
            wire_words.commit(wire, wire_words.element_messages(f"bridge {table_of(bridge)}", changes))
    except OSError:
        return False
    return True


def dismiss_others(bridge: str, pair: Pair) -> None:
    """Forget the addresses that somebody gave a device beside its own; ``dismiss_ipv6`` is for one that has no IPv6."""
    own = _elements(pair)
    with Wire(NETFILTER) as wire:
        for name in (GUARDED, GUARDED_IPV6) if pair.ipv6 else (GUARDED,):
            held = wire_words.listed(wire, f"bridge {table_of(bridge)}", name)
            other = [key for key in held if key.startswith(own[DEVICES]) and key != own.get(name)]
            _change(bridge, [Change(name, other, {})])


def dismiss(bridge: str, pair: Pair) -> None:
    """Forget a pair; where there is none, nothing happens."""
    _change(bridge, [Change(name, [key], {}) for name, key in _elements(pair._replace(ipv6="")).items()])
    if pair.ipv6:
        _dismiss_ipv6(bridge, pair)


def _dismiss_ipv6(bridge: str, pair: Pair) -> None:
    _change(bridge, [Change(GUARDED_IPV6, [_elements(pair)[GUARDED_IPV6]], {})])


def dismiss_ipv6(bridge: str, device: str) -> None:
    """Forget the IPv6 address of a device that keeps that of IPv4."""
    for each in ipv6_of(bridge, device):
        _dismiss_ipv6(bridge, Pair(device, "", each))


def ipv6_of(bridge: str, device: str) -> list[str]:
    """Return the IPv6 addresses that a device may send with."""
    return sorted({each.ipv6 for each in (found(bridge) or Guard()).pairs if each.device == device} - {""})


def remove(run_dir: str, bridge: str) -> None:
    """Remove the table of a bridge that goes; where there is none, nothing happens."""
    with _WRITING:
        _nft(f"delete table bridge {table_of(bridge)}\n")
        known = _known(run_dir)
        if known.pop(bridge, None) is not None:
            _note(run_dir, known)


def guard_of(run_dir: str, node: str, bridge: str) -> Guard | None:
    """Return what the table has, and whether its rules are as ``admit`` wrote them, where it could note that."""
    guard, recorded = found(bridge), _known(run_dir).get(bridge)
    if guard is None or recorded is None or (seen := _seen(bridge)) is None:
        return guard
    return guard._replace(as_written=recorded == _digest(node, bridge, seen))


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
    pairs, ipv6, devices = (pattern.search(listing) for pattern in (_SET, _SET_IPV6, _DEVICES))
    rules = [name for name, chain in _CHAIN.findall(listing) for line in chain.splitlines() if line.endswith(" drop")]
    of_both = rules.count("arriving")
    looked_at = set(_NAME.findall(devices[1])) if devices else set()
    first = _by_device(_PAIR.findall(pairs[1] if pairs else ""))
    second = _by_device(_PAIR_IPV6.findall(ipv6[1] if ipv6 else ""))
    own = frozenset(
        Pair(device, address, other)
        for device in (first.keys() | second.keys()) & looked_at
        for address in first.get(device, [""])
        for other in second.get(device, [""])
    )
    return Guard(own, of_both, len(rules) - of_both)


def _by_device(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    by_device = dict[str, list[str]]()
    for device, address in found:
        by_device.setdefault(device, []).append(address)
    return by_device


def _nft(text: str) -> bool:
    if not shutil.which("nft"):
        return False
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    return done.returncode == 0
