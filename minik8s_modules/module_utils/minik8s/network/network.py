"""Section ``network``: what a node's pods are attached to. One entry, ``pod-network``; a driver realizes it.

A driver says what should be, what is, and how one difference is mended; aspects are compared by their text. ``bridge``
(``network_bridge.py``) is a node by itself, ``vxlan`` (``network_vxlan.py``) adds the ways to the other nodes' pods;
with ``cni`` and ``weave`` (``network_plugins.py``) pods are somebody else's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from ..core.digests import Entries
from ..core.documents import load_document
from ..core.faults import KeyFault
from ..core.schema import check_fields, schema_of
from ..core.section import Context, Plan, Scope, Step
from ..entries.network import NetworkEntry
from . import ipv6_switches, netfilter, network_ipv6, tunnel_guard
from . import sources as pod_sources
from .netlink import Link
from .network_bridge import FORWARDING, KEY, BridgeDriver, Driver, ObservedNetwork, alias_of
from .network_plugins import CniNetwork, WeaveNetwork, forget_all
from .network_vxlan import VxlanDriver
from .overlay_links import OverlayNetlink

ENTRY = schema_of(NetworkEntry)
NAME_LIMIT = 15  # IFNAMSIZ - 1
LEAST_MTU = 576  # RFC 791: what every IPv4 host must take


DRIVERS: dict[str, Driver] = {
    "bridge": BridgeDriver(),
    "vxlan": VxlanDriver(),
    "cni": CniNetwork(),
    "weave": WeaveNetwork(),
}


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
                "InvalidEntry", f"{key}.bridge {entry['bridge']!r} is not a device name of up to {NAME_LIMIT} letters"
            )
        if entry["mtu"] < LEAST_MTU:
            raise KeyFault("InvalidEntry", f"{key}.mtu is {entry['mtu']}; at least {LEAST_MTU} is needed")
        try:
            if entry["cluster_cidr"] or "ipv6" not in entry:
                ipaddress.IPv4Network(entry["cluster_cidr"])
        except ValueError as error:
            raise KeyFault("InvalidEntry", f"{key}: {error}") from None
        DRIVERS[entry["driver"]].check(key, entry)

    def observe(self, context: Context, entries: Entries, scope: Scope) -> ObservedNetwork:
        """Return links, addresses and rules."""
        device = entries.get(KEY, {}).get("overlay", {}).get("device", "")
        last = load_document(context.state_dir, "network").entries.get(KEY, {})
        turned = ipv6_switches.recorded(context.state_dir)
        dual = "ipv6" in entries.get(KEY, {}) or "ipv6" in last or bool(turned)
        with OverlayNetlink() as netlink:
            links, addresses = netlink.links(), netlink.addresses(ipv6=dual)
            local = entries[KEY]["overlay"]["address"] if device else ""
            overlay = netlink.overlay(links.get(device), local) if device else None
        with open(FORWARDING, encoding="ascii") as source:
            forwarding = source.read().strip()
        plugin = DRIVERS[entries[KEY]["driver"]].look(context, entries[KEY]) if KEY in entries else {}
        left = _weave_before(last) if "weave" not in entries.get(KEY, {}) else ""
        rules = netfilter.chains(), netfilter.forwards(context.node)
        ipv6 = network_ipv6.observe(context.node) if dual else None
        seen = ObservedNetwork(links, addresses, forwarding, *rules, overlay, plugin, left, ipv6, turned)
        tunneled = {device, last.get("overlay", {}).get("device", ""), *_overlays(context.node, seen)} - {""}
        return seen._replace(guards={name: tunnel_guard.found(name) for name in sorted(tunneled)})

    def plan(self, context: Context, entries: Entries, observed: ObservedNetwork, scope: Scope) -> Plan:
        """Return the steps: another bridge of this node goes, the declared one becomes right."""
        plan = Plan()
        declared = entries[KEY]["bridge"] if KEY in entries else None
        if scope.covers(KEY):
            _plan_tunnels(plan, entries.get(KEY, {}).get("overlay", {}).get("device", ""), observed, context.node)
            if observed.left:
                plan.steps.append(Step("unweave", KEY, "forget the other machines", observed.left))
            for name in _ours(context.node, observed):
                if name != declared:
                    _plan_removal(plan, context.node, name, observed)
        if declared and scope.covers(KEY):
            _plan_driver(plan, entries[KEY], observed, context.node)
        if observed.turned and "ipv6" not in entries.get(KEY, {}) and scope.covers(KEY):
            _plan_switches(plan, ipv6_switches.shown(observed.turned), declared=bool(declared))
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

    def _unoverlay(self, context: Context, step: Step) -> None:
        context.checkpoint("delete overlay")
        with OverlayNetlink() as netlink:
            links = netlink.links().values()
            ours = {link.ifindex for link in links if link.alias == alias_of(context.node)}
            sources = {each.ip for each in netlink.addresses(ipv6=True) if each.ifindex in ours}
            netlink.delete_overlay(step.data.ifindex, sources)

    def _unguard(self, context: Context, step: Step) -> None:
        context.checkpoint("nft transaction")
        tunnel_guard.remove(step.detail)

    def _unweave(self, context: Context, step: Step) -> None:
        forget_all(context, step.data)

    def _unipv6(self, context: Context, step: Step) -> None:
        context.checkpoint("remove rules of ipv6")
        network_ipv6.remove(context.node, step.data)

    def _give_back(self, context: Context, _step: Step) -> None:
        context.checkpoint("turn ipv6 switches back")
        ipv6_switches.give_back(context.state_dir)

    def _unlink(self, context: Context, step: Step) -> None:
        context.checkpoint("delete bridge")
        pod_sources.remove(context.run_dir, step.detail)  # its pods are gone
        with OverlayNetlink() as netlink:
            netlink.delete_link(step.data)

    def status(
        self, context: Context, entries: Entries, observed: ObservedNetwork, touched: frozenset[str]
    ) -> dict[str, Any]:
        """Return ``{"state": "present"}`` when the network is what was declared, else None."""
        if KEY not in entries:
            return {}
        seen = self.observe(context, entries, Scope()) if touched else observed
        driver = DRIVERS[entries[KEY]["driver"]]
        right = driver.found(context.node, entries[KEY], seen) == driver.declared(context.node, entries[KEY], seen)
        return {KEY: {"state": "present"} if right else None}


def _weave_before(last: Mapping[str, Any]) -> str:
    """Return the command of the last document's Weave, "" where it named no machines to connect to."""
    return str(last["weave"]["command"]) if (last.get("weave") or {}).get("peers") else ""


def _overlays(node: str, observed: ObservedNetwork) -> dict[str, Link]:
    """Return the overlay devices this node has, by name."""
    ours = (link for link in observed.links.values() if link.alias == alias_of(node) and link.kind == "vxlan")
    return {link.name: link for link in ours}


def _ours(node: str, observed: ObservedNetwork) -> list[str]:
    """Return the bridges this node has, or of which only rules are left."""
    links = [name for name, link in observed.links.items() if link.alias == alias_of(node) and link.kind == "bridge"]
    ipv6 = observed.ipv6.bridges(node) if observed.ipv6 is not None else set[str]()
    return sorted({*links, *netfilter.chains_of(node, observed.chains), *(observed.forwards or {}), *ipv6})


def _plan_tunnels(plan: Plan, keep: str, observed: ObservedNetwork, node: str) -> None:
    """Have other overlays than that to ``keep`` go, each before its guard."""
    before: dict[str, str] = {}
    for name, link in _overlays(node, observed).items():
        if name != keep:
            plan.steps.append(Step("unoverlay", KEY, name, link))
            before["vxlan"] = name
    for name, rules in observed.guards.items():
        if rules and name != keep:
            plan.steps.append(Step("unguard", KEY, name))
            before["guard"] = rules
    if before:
        plan.differs(KEY, before, None)


def _plan_removal(plan: Plan, node: str, bridge: str, observed: ObservedNetwork) -> None:
    before = {"bridge": bridge}
    if observed.ipv6 is not None and bridge in observed.ipv6.bridges(node):
        before["ipv6"] = "rules"
        plan.steps.append(Step("unipv6", KEY, bridge, bridge))
    if observed.forwards and bridge in observed.forwards:
        before["forward"] = "; ".join(observed.forwards[bridge])
        plan.steps.append(Step("unforward", KEY, bridge, bridge))
    if bridge in observed.chains:
        before["masquerade"] = "; ".join(observed.chains[bridge][1:])
        plan.steps.append(Step("unmasquerade", KEY, bridge, bridge))
    if bridge in observed.links:
        plan.steps.append(Step("unlink", KEY, bridge, observed.links[bridge].ifindex))
    plan.differs(KEY, before, None)


def _plan_switches(plan: Plan, before_us: str, *, declared: bool) -> None:
    plan.steps.append(Step("give_back", KEY, before_us))
    before, after = plan.before.get(KEY) or {}, plan.after.get(KEY) or {}
    wanted = {**after, "ipv6 switches": before_us} if declared else None
    plan.differs(KEY, {**before, "ipv6 switches": "turned for pods"}, wanted)


def _plan_driver(plan: Plan, entry: Mapping[str, Any], observed: ObservedNetwork, node: str) -> None:
    driver = DRIVERS[entry["driver"]]
    found, declared = driver.found(node, entry, observed), driver.declared(node, entry, observed)
    link = observed.links.get(entry["bridge"])
    if link is not None and link.kind == "bridge" and link.alias != alias_of(node):
        found["bridge"] += " without the mark of minik8s"
    wrong = [aspect for aspect in declared if found[aspect] != declared[aspect]]
    for aspect in wrong:
        plan.steps.append(Step("mend", KEY, f"{aspect}: {declared[aspect]}", (aspect, entry)))
    if wrong:
        before = {aspect: text for aspect, text in found.items() if text}
        plan.differs(KEY, before if link else None, declared)
