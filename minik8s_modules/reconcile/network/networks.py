"""What a node's section ``network`` should hold: its bridge, and with an overlay the ways to the other nodes.

Pure. ``machines`` is the same for every node, so it travels with names and paths (``values.Named``); each node's entry
leaves out the node itself. Nodes realize it in ``module_utils/minik8s/network*.py``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.network import NetworkEntry, Peer
from minik8s_modules.reconcile.values.values import Settings

KEY = "pod-network"


def machines(nodes: Iterable[JsonObject]) -> dict[str, Peer]:
    """Return range and address by node; those that lack one, have another's range, or are virtual are left out."""
    found: dict[str, Peer] = {}
    ranges: set[str] = set()
    for node in sorted(nodes, key=objects.name):
        cidr, address = objects.spec(node).get("podCIDR"), _internal(node)
        if cidr and address and cidr not in ranges and not is_virtual(node):
            ranges.add(cidr)
            found[objects.name(node)] = {"cidr": cidr, "address": address}
    return found


def network_entries(node: JsonObject, settings: Settings, known: Mapping[str, Peer]) -> dict[str, NetworkEntry]:
    """Return the entries: none before the node has a podCIDR, and for an overlay an address."""
    cidr, address = objects.spec(node).get("podCIDR"), _internal(node)
    overlay = settings.overlay
    if settings.plugin.driver:
        return _of_plugin(node, settings, known)
    if not cidr or (overlay.device and not address):
        return {}
    network: NetworkEntry = {
        "driver": "vxlan" if overlay.device else "bridge",
        "bridge": settings.bridge,
        "cidr": cidr,
        "gateway": str(ipaddress.IPv4Network(cidr).network_address + 1),
        "cluster_cidr": settings.cluster_cidr,
        "mtu": settings.mtu,
    }
    dual = settings.dual_stack
    if ranged := dual.range_of(cidr):
        network["ipv6"] = {"cidr": ranged, "gateway": dual.gateway_of(cidr), "cluster_cidr": dual.cluster_cidr}
    if overlay.device:
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


def _dual(way: Peer, settings: Settings) -> Peer:
    ranged = settings.dual_stack.range_of(way["cidr"])
    return {**way, "cidr_ipv6": ranged} if ranged else way


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


def _internal(node: JsonObject) -> str:
    addresses = objects.status(node).get("addresses") or []
    return next((str(each["address"]) for each in addresses if each.get("type") == "InternalIP"), "")
