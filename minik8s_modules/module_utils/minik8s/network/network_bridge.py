"""Drivers of the pod network, and the driver ``bridge``: what is, what should be, and how one difference is mended.

Aspects are compared by their text and mended in their order. The driver ``bridge`` makes a bridge with the pods'
gateway address, turns forwarding on, masquerades what leaves the cluster and lets pods pass Docker's FORWARD policy.
The bridge has a MAC of its own: else the kernel gives it the lowest of its ports', and when that pod leaves, the others
send to a MAC that nobody has, for half a minute. It has no forward delay, which means nothing without the spanning tree
protocol: the kernel would tell of each new port again after these 15 s, as of a change that is to be looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable, NamedTuple, Protocol

from ..core.faults import KeyFault
from ..core.section import Context, Facets
from . import netfilter, network_ipv6
from .netlink import Address, Link, Netlink
from .network_ipv6 import ObservedIpv6
from .overlay_links import Overlay
from .switches import set_switch

KEY = "pod-network"
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


class ObservedNetwork(NamedTuple):
    """The node's network as the kernel has it; ``overlay`` is looked at where the declared driver makes one.

    ``plugin`` is what a driver's ``look`` found, ``left`` the command of a Weave that is no longer declared.
    """

    links: dict[str, Link]
    addresses: list[Address]
    forwarding: str
    chains: dict[str, list[str]]
    forwards: dict[str, list[str]] | None
    overlay: Overlay | None = None
    plugin: Mapping[str, Any] = {}
    left: str = ""
    ipv6: ObservedIpv6 | None = None
    """Looked at where pods have IPv6 addresses, or had them."""
    turned: Mapping[str, str] = {}
    """What switches of IPv6 were that we have turned."""
    guards: Mapping[str, str] = {}
    """The rules for tunnels by VXLAN device, where there are or were tunnels."""


class Driver(Protocol):
    """How one kind of pod network is realized."""

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Raise KeyFault for fields of this driver's own that cannot be used."""

    def look(self, context: Context, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what there is beyond the kernel's."""

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what should be, on a machine that is as observed."""

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what is, with the same aspects."""

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""


def mac_of_gateway(gateway: str) -> str:
    """Return the bridge's MAC: of the (last) four bytes of the gateway's address, as the CNI plugin bridge has it."""
    return ":".join(["0a", "58", *(f"{byte:02x}" for byte in ipaddress.ip_address(gateway).packed[-4:])])


def alias_of(node: str) -> str:
    """Return the mark on a bridge that tells it is this node's."""
    return f"minik8s {node} {KEY}"


class BridgeDriver:
    """Bridge, gateway address, forwarding, masquerade and accepted forwarding."""

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Refuse what only other drivers have, and a gateway outside the range."""
        for field in sorted(set(entry) & {"overlay", "cni", "weave"}):
            raise KeyFault("InvalidEntry", f"{where}.{field} is not for the driver {entry['driver']}")
        check_ranges(where, entry)

    def look(self, context: Context, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what should be."""
        ipv4 = (
            {
                "ip_forward": "1",
                "masquerade": netfilter.masquerade_rule(node, entry["cidr"], entry["cluster_cidr"]),
                "forward": "; ".join(netfilter.forward_rules(node, entry["bridge"])),
            }
            if "cidr" in entry
            else {}
        )
        return {
            "bridge": f"{entry['bridge']} up mtu {entry['mtu']} mac {mac_of_gateway(gateways_of(entry)[0])}",
            "address": " ".join(f"{each.ip}/{each.prefix_length}" for each in _addresses(entry, 0)),
            **ipv4,
            **network_ipv6.declared(node, entry, observed.ipv6),
        }

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what is."""
        return self.found_of_bridge(node, entry, observed)

    def found_of_bridge(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what is of the bridge."""
        name = entry["bridge"]
        link = observed.links.get(name)
        up = f"{name} {'up' if link.up else 'down'} mtu {link.mtu}" if link and link.kind == "bridge" else ""
        if link and up and gateways_of(entry):
            up += f" mac {link.mac}"
        if link and up and link.delay:
            up += f" delay {link.delay / 100:g} s"
        on_bridge = [each for each in observed.addresses if link and each.ifindex == link.ifindex]
        here = [f"{each.ip}/{each.prefix_length}" for each in sorted(on_bridge, key=lambda one: ":" in one.ip)]
        rules = [line for line in observed.chains.get(name, []) if line != netfilter.HOOK]
        hooked = netfilter.HOOK in observed.chains.get(name, [])
        passing = netfilter.forward_rules(node, name) if observed.forwards is None else observed.forwards.get(name, [])
        ipv4 = {
            "ip_forward": observed.forwarding,
            "masquerade": "; ".join(rules) if hooked else "",
            "forward": "; ".join(passing),
        }
        return {
            "bridge": up,
            "address": " ".join(here),
            **({} if has_only_ipv6(entry) else ipv4),
            **network_ipv6.found(entry, observed.ipv6),
        }

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""
        mending: dict[str, Callable[[Context, Mapping[str, Any]], None]] = {
            "bridge": _mend_bridge,
            "address": _mend_address,
            "ip_forward": _mend_forwarding,
            "masquerade": _mend_masquerade,
            "forward": _mend_forward,
            **network_ipv6.MENDING,
        }
        mending[aspect](context, entry)


def gateways_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the bridge's addresses."""
    own = [entry["gateway"]] if "gateway" in entry else []
    return [*own, entry["ipv6"]["gateway"]] if "ipv6" in entry else own


def _addresses(entry: Mapping[str, Any], index: int) -> list[Address]:
    ranges = [*([entry["cidr"]] if "gateway" in entry else []), *([entry["ipv6"]["cidr"]] if "ipv6" in entry else [])]
    return [Address(index, ip, int(cidr.partition("/")[2])) for ip, cidr in zip(gateways_of(entry), ranges)]


def has_only_ipv6(entry: Mapping[str, Any]) -> bool:
    """Return whether pods have no addresses of IPv4."""
    return "ipv6" in entry and "cidr" not in entry


def check_ranges(where: str, entry: Mapping[str, Any]) -> None:
    """Raise KeyFault where range or gateway of the node's pods are missing or do not fit."""
    network_ipv6.check(where, entry)
    if has_only_ipv6(entry) and "gateway" not in entry and not entry["cluster_cidr"]:
        return
    for field in ("cidr", "gateway"):
        if field not in entry:
            raise KeyFault("InvalidEntry", f"{where}.{field} is missing")
    try:
        inside = ipaddress.IPv4Address(entry["gateway"]) in ipaddress.IPv4Network(entry["cidr"])
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    if not inside:
        raise KeyFault("InvalidEntry", f"{where}.gateway {entry['gateway']} is not in {entry['cidr']}")


def _bridge(netlink: Netlink, name: str) -> Link:
    link = netlink.link(name)
    if link is None or link.kind != "bridge":
        seen = f"exists and is not a bridge but {link.kind or 'physical'}" if link else "does not exist"
        raise KeyFault("NetworkNotReady", f"device {name} {seen}")
    return link


def _mend_bridge(context: Context, entry: Mapping[str, Any]) -> None:
    with Netlink() as netlink:
        if netlink.link(entry["bridge"]) is None:
            context.checkpoint("create bridge")
            netlink.add_bridge(entry["bridge"])
        link = _bridge(netlink, entry["bridge"])
        mac = mac_of_gateway(gateways_of(entry)[0]) if gateways_of(entry) else ""
        if mac and link.mac != mac:
            # pods that know another one are told
            with suppress(KeyFault):
                set_switch(f"ipv4/conf/{entry['bridge']}/arp_notify", "1")
        context.checkpoint("set bridge")
        netlink.set_link(link.ifindex, up=True, mtu=entry["mtu"], alias=alias_of(context.node), mac=mac)
        if link.delay:
            netlink.take_delay(link.ifindex)


def _mend_address(context: Context, entry: Mapping[str, Any]) -> None:
    with Netlink() as netlink:
        link = _bridge(netlink, entry["bridge"])
        wanted = _addresses(entry, link.ifindex)
        for other in netlink.addresses(ipv6=True):
            if other.ifindex == link.ifindex and other not in wanted:
                context.checkpoint("delete address")
                netlink.delete_address(other)
        if "ipv6" in entry:
            network_ipv6.open_device(entry["bridge"])
        for each in wanted:
            context.checkpoint("add address")
            netlink.add_address(each)


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
