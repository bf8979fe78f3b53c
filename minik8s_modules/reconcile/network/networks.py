"""What a node's section ``network`` should hold: its bridge, and with an overlay the ways to the other nodes.

Pure. ``machines`` is the same for every node, so it travels with names and paths (``values.Named``); each node's entry
leaves out the node itself. Nodes realize it in ``module_utils/minik8s/network*.py``.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.network import NetworkEntry, Peer
from minik8s_modules.reconcile.values.values import Settings

KEY = "pod-network"


def machines(nodes: Iterable[JsonObject], *, ipv6: bool = False, cluster: str = "") -> dict[str, Peer]:
    """Return range and address by node; those that lack one, have another's range, or are virtual are left out.

    What one Node says may not end the network of the others, who refuse a peer's range that is not of ``cluster`` or
    overlaps: such a node is left out, and of two that overlap the one that came later.

    Args:
        nodes: all there are.
        ipv6: tunnels end at addresses of that family.
        cluster: the range of all pods; "" where nodes' ranges say nothing, as with a plugin.
    """
    found: dict[str, Peer] = {}
    ranges = _Ranges(_parsed(cluster) if cluster else None)
    for node in sorted(nodes, key=_came):
        cidr, address = str(objects.spec(node).get("podCIDR") or ""), _internal(node, ipv6=ipv6)
        if cidr and address and not is_virtual(node) and (taken := ranges.take(cidr)):
            found[objects.name(node)] = {"cidr": taken, "address": address}
    return dict(sorted(found.items()))


def _came(node: JsonObject) -> tuple[str, str]:
    return str(objects.metadata(node).get("creationTimestamp") or ""), objects.name(node)


class _Range(NamedTuple):
    """A range of addresses, as numbers: this is done for each node with all nodes."""

    text: str
    version: int
    length: int
    first: int
    last: int

    def is_in(self, other: _Range) -> bool:
        return self.version == other.version and other.first <= self.first and self.last <= other.last

    def overlaps(self, other: _Range) -> bool:
        return self.version == other.version and self.first <= other.last and other.first <= self.last


@functools.lru_cache(maxsize=1 << 14)
def _parsed(cidr: str) -> _Range | None:
    try:
        found = ipaddress.ip_network(cidr)
    except ValueError:
        return None
    first, last = int(found.network_address), int(found.broadcast_address)
    return _Range(str(found), found.version, found.prefixlen, first, last)


class _Ranges:
    """Ranges that do not overlap; of a cluster's, where that is told."""

    def __init__(self, cluster: _Range | None) -> None:
        self._cluster = cluster
        self._taken: dict[tuple[int, int], dict[int, _Range]] = {}
        """By the lengths of their prefixes: of one length, only equal ones overlap, and almost all are of one."""

    def take(self, cidr: str) -> str:
        """Return the range as everybody writes it; "" if it may not be taken."""
        found = _parsed(cidr)
        if found is None or (self._cluster is not None and not found.is_in(self._cluster)) or self._overlaps(found):
            return ""
        self._taken.setdefault((found.version, found.length), {})[found.first] = found
        return found.text

    def _overlaps(self, one: _Range) -> bool:
        alike = (one.version, one.length)
        return any(
            one.first in known if length == alike else any(one.overlaps(each) for each in known.values())
            for length, known in self._taken.items()
        )


def network_entries(node: JsonObject, settings: Settings, known: Mapping[str, Peer]) -> dict[str, NetworkEntry]:
    """Return the entries: none before the node has a podCIDR that pods can have, and for an overlay an address.

    While it tells none of IPv6 for tunnels that go by these, its pods have the bridge alone.
    """
    cidr, address = str(objects.spec(node).get("podCIDR") or ""), _internal(node, ipv6=settings.overlay.ipv6)
    overlay = settings.overlay
    if settings.plugin.driver:
        return _of_plugin(node, settings, known)
    dual = settings.dual_stack
    if not cidr or not dual.takes(cidr) or (overlay.device and not address and not overlay.ipv6):
        return {}
    tunneled = bool(overlay.device and address)
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
