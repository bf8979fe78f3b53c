"""Section ``network``: what a node's pods are attached to. One entry, ``pod-network``; a driver realizes it.

The driver ``bridge`` makes a bridge with the pods' gateway address, turns forwarding on, masquerades what leaves the
cluster and lets pods pass Docker's FORWARD policy. Further drivers (vxlan, weave, cni) come in beside it: a driver
says what should be, what is, and how one difference is mended; aspects are compared by their text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Protocol

from . import netfilter
from .documents import Entries
from .faults import KeyFault
from .netlink import Address, Link, Netlink
from .schema import TEXT, WHOLE, Field, Schema, check_fields
from .section import Context, Facets, Plan, Scope, Step

KEY = "pod-network"
ENTRY: Schema = {
    "driver": Field((TEXT,)),
    "bridge": Field((TEXT,)),
    "cidr": Field((TEXT,)),
    "gateway": Field((TEXT,)),
    "cluster_cidr": Field((TEXT,)),
    "mtu": Field((WHOLE,)),
}
FORWARDING = "/proc/sys/net/ipv4/ip_forward"
NAME_LIMIT = 15  # IFNAMSIZ - 1
LEAST_MTU = 576  # RFC 791: what every IPv4 host must take


class Observed(NamedTuple):
    """The node's network as the kernel has it."""

    links: dict[str, Link]
    addresses: list[Address]
    forwarding: str
    chains: dict[str, list[str]]
    forwards: dict[str, list[str]] | None


class Driver(Protocol):
    """How one kind of pod network is realized."""

    def declared(self, node: str, entry: Mapping[str, Any]) -> Facets:
        """Return what should be."""

    def found(self, node: str, entry: Mapping[str, Any], observed: Observed) -> Facets:
        """Return what is, with the same aspects."""

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""


def alias_of(node: str) -> str:
    """Return the mark on a bridge that tells it is this node's."""
    return f"minik8s {node} {KEY}"


class BridgeDriver:
    """Bridge, gateway address, forwarding, masquerade and accepted forwarding."""

    def declared(self, node: str, entry: Mapping[str, Any]) -> Facets:
        """Return what should be."""
        prefix_length = entry["cidr"].partition("/")[2]
        return {
            "bridge": f"{entry['bridge']} up mtu {entry['mtu']}",
            "address": f"{entry['gateway']}/{prefix_length}",
            "ip_forward": "1",
            "masquerade": netfilter.masquerade_rule(node, entry["cidr"], entry["cluster_cidr"]),
            "forward": "; ".join(netfilter.forward_rules(node, entry["bridge"])),
        }

    def found(self, node: str, entry: Mapping[str, Any], observed: Observed) -> Facets:
        """Return what is."""
        name = entry["bridge"]
        link = observed.links.get(name)
        up = f"{name} {'up' if link.up else 'down'} mtu {link.mtu}" if link and link.kind == "bridge" else ""
        here = [
            f"{each.ip}/{each.prefix_length}" for each in observed.addresses if link and each.ifindex == link.ifindex
        ]
        rules = [line for line in observed.chains.get(name, []) if line != netfilter.HOOK]
        hooked = netfilter.HOOK in observed.chains.get(name, [])
        passing = netfilter.forward_rules(node, name) if observed.forwards is None else observed.forwards.get(name, [])
        return {
            "bridge": up,
            "address": " ".join(here),
            "ip_forward": observed.forwarding,
            "masquerade": "; ".join(rules) if hooked else "",
            "forward": "; ".join(passing),
        }

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""
        mending: dict[str, Callable[[Context, Mapping[str, Any]], None]] = {
            "bridge": _mend_bridge,
            "address": _mend_address,
            "ip_forward": _mend_forwarding,
            "masquerade": _mend_masquerade,
            "forward": _mend_forward,
        }
        mending[aspect](context, entry)


DRIVERS: dict[str, Driver] = {"bridge": BridgeDriver()}


def _bridge(netlink: Netlink, name: str) -> Link:
    link = netlink.link(name)
    if link is None or link.kind != "bridge":
        seen = f"exists and is no bridge but {link.kind or 'physical'}" if link else "does not exist"
        raise KeyFault("NetworkNotReady", f"device {name} {seen}")
    return link


def _mend_bridge(context: Context, entry: Mapping[str, Any]) -> None:
    with Netlink() as netlink:
        if netlink.link(entry["bridge"]) is None:
            context.checkpoint("create bridge")
            netlink.add_bridge(entry["bridge"], entry["mtu"])
        link = _bridge(netlink, entry["bridge"])
        context.checkpoint("set bridge")
        netlink.set_link(link.ifindex, up=True, mtu=entry["mtu"], alias=alias_of(context.node))


def _mend_address(context: Context, entry: Mapping[str, Any]) -> None:
    wanted_ip, prefix_length = entry["gateway"], int(entry["cidr"].partition("/")[2])
    with Netlink() as netlink:
        link = _bridge(netlink, entry["bridge"])
        wanted = Address(link.ifindex, wanted_ip, prefix_length)
        for other in netlink.addresses():
            if other.ifindex == link.ifindex and other != wanted:
                context.checkpoint("delete address")
                netlink.delete_address(other)
        context.checkpoint("add address")
        netlink.add_address(wanted)


def _mend_forwarding(context: Context, _entry: Mapping[str, Any]) -> None:
    context.checkpoint("ip_forward")
    with open(FORWARDING, "w", encoding="ascii") as target:
        target.write("1")


def _mend_masquerade(context: Context, entry: Mapping[str, Any]) -> None:
    context.checkpoint("nft transaction")
    rule = netfilter.masquerade_rule(context.node, entry["cidr"], entry["cluster_cidr"])
    netfilter.set_chain(entry["bridge"], rule)


def _mend_forward(context: Context, entry: Mapping[str, Any]) -> None:
    present = (netfilter.forwards(context.node) or {}).get(entry["bridge"], [])
    context.checkpoint("iptables transaction")
    netfilter.set_forwards(present, netfilter.forward_rules(context.node, entry["bridge"]))


class Network:
    """The section's observe, plan and apply."""

    name = "network"

    def check_entry(self, key: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for an entry that cannot be used."""
        check_fields(key, entry, ENTRY)
        if key != KEY:
            raise KeyFault("InvalidEntry", f"section network knows the key {KEY!r} only, not {key!r}")
        if entry["driver"] not in DRIVERS:
            raise KeyFault("InvalidEntry", f"{key}.driver is {entry['driver']!r}; known are {sorted(DRIVERS)}")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", entry["bridge"]) or len(entry["bridge"]) > NAME_LIMIT:
            raise KeyFault(
                "InvalidEntry", f"{key}.bridge {entry['bridge']!r} is no device name of up to {NAME_LIMIT} letters"
            )
        if entry["mtu"] < LEAST_MTU:
            raise KeyFault("InvalidEntry", f"{key}.mtu is {entry['mtu']}; at least {LEAST_MTU} is needed")
        try:
            inside = ipaddress.IPv4Address(entry["gateway"]) in ipaddress.IPv4Network(entry["cidr"])
            ipaddress.IPv4Network(entry["cluster_cidr"])
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{key}: {error}") from None
        if not inside:
            raise KeyFault("InvalidEntry", f"{key}.gateway {entry['gateway']} is not in {entry['cidr']}")

    def observe(self, context: Context, entries: Entries, scope: Scope) -> Observed:
        """Return links, addresses and rules."""
        with Netlink() as netlink:
            links, addresses = netlink.links(), netlink.addresses()
        with open(FORWARDING, encoding="ascii") as source:
            forwarding = source.read().strip()
        return Observed(links, addresses, forwarding, netfilter.chains(), netfilter.forwards(context.node))

    def plan(self, context: Context, entries: Entries, observed: Observed, scope: Scope) -> Plan:
        """Return the steps: another bridge of this node goes, the declared one becomes right."""
        plan = Plan()
        declared = entries[KEY]["bridge"] if KEY in entries else None
        if scope.covers(KEY):
            for name in _ours(context.node, observed):
                if name != declared:
                    _plan_removal(plan, name, observed)
        if declared and scope.covers(KEY):
            _plan_driver(plan, entries[KEY], observed, context.node)
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Carry out one step."""
        if step.action == "mend":
            aspect, entry = step.data
            DRIVERS[entry["driver"]].mend(context, entry, aspect)
        else:
            getattr(self, "_" + step.action)(context, step)

    def _unmasquerade(self, context: Context, step: Step) -> None:
        context.checkpoint("nft transaction")
        netfilter.delete_chain(step.data, last=set(netfilter.chains()) <= {step.data})

    def _unforward(self, context: Context, step: Step) -> None:
        context.checkpoint("iptables transaction")
        netfilter.set_forwards((netfilter.forwards(context.node) or {}).get(step.data, []), [])

    def _unlink(self, context: Context, step: Step) -> None:
        context.checkpoint("delete bridge")
        with Netlink() as netlink:
            netlink.delete_link(step.data)

    def status(self, context: Context, entries: Entries, observed: Observed, touched: frozenset[str]) -> dict[str, Any]:
        """Return ``{"state": "present"}`` when the network is what was declared, else None."""
        if KEY not in entries:
            return {}
        seen = self.observe(context, entries, Scope()) if touched else observed
        driver = DRIVERS[entries[KEY]["driver"]]
        right = driver.found(context.node, entries[KEY], seen) == driver.declared(context.node, entries[KEY])
        return {KEY: {"state": "present"} if right else None}


def _ours(node: str, observed: Observed) -> list[str]:
    """Return the bridges this node has, or of which only rules are left."""
    links = [name for name, link in observed.links.items() if link.alias == alias_of(node) and link.kind == "bridge"]
    return sorted({*links, *netfilter.chains_of(node, observed.chains), *(observed.forwards or {})})


def _plan_removal(plan: Plan, bridge: str, observed: Observed) -> None:
    before = {"bridge": bridge}
    if observed.forwards and bridge in observed.forwards:
        before["forward"] = "; ".join(observed.forwards[bridge])
        plan.steps.append(Step("unforward", KEY, bridge, bridge))
    if bridge in observed.chains:
        before["masquerade"] = "; ".join(observed.chains[bridge][1:])
        plan.steps.append(Step("unmasquerade", KEY, bridge, bridge))
    if bridge in observed.links:
        plan.steps.append(Step("unlink", KEY, bridge, observed.links[bridge].ifindex))
    plan.differs(KEY, before, None)


def _plan_driver(plan: Plan, entry: Mapping[str, Any], observed: Observed, node: str) -> None:
    driver = DRIVERS[entry["driver"]]
    found, declared = driver.found(node, entry, observed), driver.declared(node, entry)
    link = observed.links.get(entry["bridge"])
    if link is not None and link.kind == "bridge" and link.alias != alias_of(node):
        found["bridge"] += " without our mark"
    wrong = [aspect for aspect in declared if found[aspect] != declared[aspect]]
    for aspect in wrong:
        plan.steps.append(Step("mend", KEY, f"{aspect}: {declared[aspect]}", (aspect, entry)))
    if wrong:
        before = {aspect: text for aspect, text in found.items() if text}
        plan.differs(KEY, before if link else None, declared)
