"""What a node's section ``network`` should hold: its bridge, and with an overlay the ways to the other nodes.

Pure. ``machines`` is the same for every node, so it travels with names and paths (``values.Named``); each node's entry
leaves out the node itself. Nodes realize it in ``module_utils/minik8s/network*.py``.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.network import NetworkEntry, Peer
from minik8s_modules.reconcile.values.values import Settings

KEY = "pod-network"


def machines(nodes: Iterable[JsonObject], *, ipv6: bool = False) -> dict[str, Peer]:
    """Return range and address by node; those that lack one, have another's range, or are virtual are left out.

    ``ipv6``: tunnels end at addresses of that family.
    """
    found: dict[str, Peer] = {}
    ranges: set[str] = set()
    for node in sorted(nodes, key=objects.name):
        cidr, address = objects.spec(node).get("podCIDR"), _internal(node, ipv6=ipv6)
        if cidr and address and cidr not in ranges and not is_virtual(node):
            ranges.add(cidr)
            found[objects.name(node)] = {"cidr": cidr, "address": address}
    return found


def network_entries(node: JsonObject, settings: Settings, known: Mapping[str, Peer]) -> dict[str, NetworkEntry]:
    """Return the entries: none before the node has a podCIDR, and for an overlay an address.

    While it tells none of IPv6 for tunnels that go by these, its pods have the bridge alone.
    """
    cidr, address = objects.spec(node).get("podCIDR"), _internal(node, ipv6=settings.overlay.ipv6)
    overlay = settings.overlay
    if settings.plugin.driver:
        return _of_plugin(node, settings, known)
    if not cidr or (overlay.device and not address and not overlay.ipv6):
        return {}
    tunneled = bool(overlay.device and address)
    dual = settings.dual_stack
    network: NetworkEntry = {
        "driver": "vxlan" if tunneled else "bridge",
        "bridge": settings.bridge,
        "cluster_cidr": "" if dual.alone else settings.cluster_cidr,
        "mtu": settings.mtu,
    }
    if not dual.alone:
        network |= {"cidr": cidr, "gateway": str(ipaddress.IPv4Network(cidr).network_address + 1)}
    if ranged := dual.range_of(cidr):
        network["ipv6"] = {"cidr": ranged, "gateway": dual.gateway_of(cidr), "cluster_cidr": dual.cluster_cidr}
    if tunneled:
        # names that are all one machine, as in tests, reach each other without a tunnel
        others = {name: way for name, way in known.items() if name != objects.name(node) and way["address"] != address}
        peers = {name: _dual(way, settings) for name, way in others.items()} if ranged else others
        network["overlay"] = {
            "device": overlay.device,
            "vni": overlay.vni,
            "port": overlay.port,
            "direct": overlay.direct,
            "address": address,
            "peers": peers,
        }
    return {KEY: network}


def missing(node: JsonObject, settings: Settings) -> str:
    """Return why new pods of the node must wait for its tunnels, "" where they need not."""
    if settings.overlay.ipv6 and not _internal(node, ipv6=True):
        return f"node {objects.name(node)} tells no IPv6 address that its tunnels could leave from (network.underlay)"
    return ""


def _dual(way: Peer, settings: Settings) -> Peer:
    ranged = settings.dual_stack.range_of(way["cidr"])
    if not ranged:
        return way
    return {**way, "cidr": "" if settings.dual_stack.alone else way["cidr"], "cidr_ipv6": ranged}


def _of_plugin(node: JsonObject, settings: Settings, known: Mapping[str, Peer]) -> dict[str, NetworkEntry]:
    plugin, address = settings.plugin, _internal(node)
    network: NetworkEntry = {
        "driver": plugin.driver,
        "bridge": settings.bridge,
        "cluster_cidr": settings.cluster_cidr,
        "mtu": settings.mtu,
    }
    if plugin.driver == "cni":
        network["cni"] = {"conf_dir": plugin.conf_dir, "bin_dirs": list(plugin.bin_dirs)}
    else:
        # Weave's peers are machines: a range of ours says nothing about them
        peers = sorted({way["address"] for way in known.values()} - {address})
        network["weave"] = {"command": plugin.command, "peers": peers}
    return {KEY: network}


def _internal(node: JsonObject, *, ipv6: bool = False) -> str:
    """Return the first InternalIP of a family that a machine can be reached at, "" for none.

    What a Node says may not harm the others, whose networks are made with it.
    """
    told = (
        each.get("address") for each in objects.status(node).get("addresses") or [] if each.get("type") == "InternalIP"
    )
    family = ipaddress.IPv6Address if ipv6 else ipaddress.IPv4Address
    return next(filter(None, (_machines(str(one or ""), family) for one in told)), "")


def _machines(text: str, family: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> str:
    """Return an address as the kernel writes it; "" for one of the other family, or of no single machine."""
    try:
        found = family(text)
    except ValueError:
        return ""
    ipv6 = isinstance(found, ipaddress.IPv6Address)
    # Python's form of ::192.0.2.7 is another, so a node would look different for ever
    if str(found) != socket.inet_ntop(socket.AF_INET6 if ipv6 else socket.AF_INET, found.packed):
        return ""
    mapped = isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.is_link_local)
    return "" if mapped or found.is_multicast or found.is_unspecified or found.is_loopback else str(found)
