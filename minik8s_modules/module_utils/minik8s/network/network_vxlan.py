"""Driver ``vxlan``: the bridge of a node, and ways to the pods of the other nodes that nothing has to learn.

One VXLAN device. A peer's pods are routed to the first address of the peer's range, which is nobody's; a permanent
neighbour gives it a MAC that is computed from the peer's name, and the FDB entry of that MAC is the peer's machine. So
each side knows all it needs from the declaration alone. With ``direct``, a peer in the same network as this machine is
routed to without a tunnel. Routes leave from the gateway's address: it is one that the peer can route back to. The
device has it as well, for masquerading takes an address of the device that a packet leaves by: of a device without one
it takes any of the machine's, and the answer to that would not come back through the tunnel. An address of the
cluster's range that is no peer's (a node that has left, or is not known yet) is unreachable: it would leave by the
default route, for whoever answers there. Machines may reach each other by IPv6: then tunnels are of that family, and
carry pods' packets of both. Nobody but peers puts anything into them (tunnel_guard.py).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

from ..core.faults import KeyFault
from ..core.schema import check_fields, schema_of
from ..core.section import Context, Facets
from ..entries.network import Overlay, Peer
from . import tunnel_guard
from .netfilter import family_of
from .netlink import Address, Link
from .network_bridge import BridgeDriver, ObservedNetwork, alias_of, check_ranges, gateways_of, has_only_ipv6
from .network_ipv6 import open_device
from .overlay_ends import Network, check_address, peer_range
from .overlay_links import PROTOCOL, UNREACHABLE, OverlayNetlink, OverlayRoute, Tunnel

HEADERS = 50  # outer Ethernet 14, IPv4 20, UDP 8, VXLAN 8 (RFC 7348)
HEADERS_IPV6 = 70  # IPv6 has 40
MOST_VNI, MOST_PORT = 2**24 - 1, 2**16 - 1
NAME_LIMIT = 15  # IFNAMSIZ - 1
OVERLAY = schema_of(Overlay)
PEER = schema_of(Peer)


class Way(NamedTuple):
    """How a peer's pods are reached, and from where: the next hop, and its MAC and machine when it is in the tunnel."""

    cidr: str
    hop: str
    source: str
    mac: str = ""
    machine: str = ""


class Underlay(NamedTuple):
    """The device that carries the tunnels: index 0 where no device has the machine's address."""

    ifindex: int = 0
    name: str = ""
    mtu: int = 0
    network: Network | None = None


def mac_of(node: str) -> str:
    """Return the MAC of a node's end of the overlay: locally administered, of 40 bits of its name's sha256."""
    digest = hashlib.sha256(node.encode()).hexdigest()
    return ":".join(["02", *(digest[at : at + 2] for at in range(0, 10, 2))])


class VxlanDriver(BridgeDriver):
    """What ``bridge`` makes, a VXLAN device, FDB, next hops and routes."""

    def check(self, where: str, entry: Mapping[str, Any]) -> None:
        """Refuse an overlay that cannot be."""
        for field in sorted(set(entry) & {"cni", "weave"}):
            raise KeyFault("InvalidEntry", f"{where}.{field} is not for the driver vxlan")
        check_ranges(where, entry)
        overlay, where = entry.get("overlay"), f"{where}.overlay"
        check_fields(where, overlay, OVERLAY)
        if overlay is None:
            raise AssertionError("check_fields refuses it")
        device = overlay["device"]
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", device) or len(device) > NAME_LIMIT or device == entry["bridge"]:
            raise KeyFault("InvalidEntry", f"{where}.device {device!r} is not a device name, or the bridge's")
        for name, most in (("vni", MOST_VNI), ("port", MOST_PORT)):
            if not 0 < overlay[name] <= most:
                raise KeyFault("InvalidEntry", f"{where}.{name} is {overlay[name]}; it is between 1 and {most}")
        check_address(f"{where}.address", overlay["address"])
        if overlay["direct"] and ":" in overlay["address"]:
            raise KeyFault("InvalidEntry", f"{where}.direct is for tunnels over IPv4: pods' IPv4 has no hop of IPv6")
        if overlay["direct"] and has_only_ipv6(entry):
            raise KeyFault("InvalidEntry", f"{where}.direct is for pods with addresses of IPv4: these have IPv6 alone")
        self._check_peers(f"{where}.peers", entry)

    def _check_peers(self, where: str, entry: Mapping[str, Any]) -> None:
        peers, ipv6 = entry["overlay"]["peers"], entry.get("ipv6")
        taken = {"the node itself": ipaddress.ip_network(entry["cidr"])} if "cidr" in entry else {}
        taken_ipv6 = {"the node itself": ipaddress.ip_network(ipv6["cidr"])} if ipv6 else {}
        for name, peer in peers.items():
            check_fields(f"{where}.{name}", peer, PEER)
            check_address(f"{where}.{name}.address", peer["address"])
            if family_of(peer["address"]) != family_of(entry["overlay"]["address"]):
                raise KeyFault("InvalidEntry", f"{where}.{name}.address is not of the family of overlay.address")
            if "cidr" in entry or peer["cidr"] or "cidr_ipv6" not in peer:
                taken[name] = peer_range(f"{where}.{name}.cidr", peer["cidr"], entry["cluster_cidr"], taken)
            if "cidr_ipv6" not in peer:
                continue
            at = f"{where}.{name}.cidr_ipv6"
            if ipv6 is None:
                raise KeyFault("InvalidEntry", f"{at} is for a node that has ipv6, and this one has none")
            taken_ipv6[name] = peer_range(at, peer["cidr_ipv6"], ipv6["cluster_cidr"], taken_ipv6)

    def declared(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what should be."""
        overlay, found = entry["overlay"], ways(entry, _under(observed))
        hops = [way for way in found if way.mac]
        return {
            **super().declared(node, entry, observed),
            "underlay": _needed(entry),
            "guard": tunnel_guard.declared(overlay),
            "vxlan": _shown(overlay["device"], entry["mtu"], _tunnel(node, overlay), alias_of(node)),
            "end": _lines(f"{each.ip}/{each.prefix_length}" for each in _ends(entry, 0)),
            "forwarding": _lines({f"{way.mac} at {way.machine}" for way in hops}),
            "neighbours": _lines(f"{way.hop} is {way.mac}" for way in hops),
            "routes": _lines(
                [
                    *(f"{cidr} else unreachable" for cidr in _clusters(entry)),
                    *(f"{way.cidr} via {way.hop} from {way.source}" for way in found),
                ]
            ),
        }

    def found(self, node: str, entry: Mapping[str, Any], observed: ObservedNetwork) -> Facets:
        """Return what is."""
        overlay, underlay = observed.overlay, _under(observed)
        if overlay is None:
            raise AssertionError("it is observed where an overlay is declared")
        link = observed.links.get(entry["overlay"]["device"])
        shown = _shown(link.name, link.mtu, overlay.tunnel, link.alias) if link and link.up and overlay.tunnel else ""
        fits = underlay.mtu >= _carried(entry)
        seen = f"{underlay.name} has mtu {underlay.mtu}" if underlay.ifindex else "no device has that address"
        on_device = {
            "end": _lines(
                f"{each.ip}/{each.prefix_length}"
                for each in observed.addresses
                if link and each.ifindex == link.ifindex
            ),
            "forwarding": _lines(f"{mac} at {machine}" for mac, machine in overlay.forwarding),
            "neighbours": _lines(f"{hop} is {mac}" for hop, mac in overlay.neighbours),
            "routes": _routes_shown(entry, overlay.routes, {underlay.ifindex}, link.ifindex if link else 0),
        }
        remade = overlay.tunnel not in {None, _tunnel(node, entry["overlay"])}
        return {
            **super().found(node, entry, observed),
            "underlay": _needed(entry) if fits else seen,
            "guard": observed.guards.get(entry["overlay"]["device"], ""),
            "vxlan": shown,
            **({name: f"{text}, gone with the device" for name, text in on_device.items()} if remade else on_device),
        }

    def mend(self, context: Context, entry: Mapping[str, Any], aspect: str) -> None:
        """Make one aspect right."""
        mending: dict[str, Callable[[Context, Mapping[str, Any], OverlayNetlink], None]] = {
            "underlay": _refuse_underlay,
            "guard": _mend_guard,
            "vxlan": _mend_vxlan,
            "end": _mend_end,
            "forwarding": _mend_forwarding,
            "neighbours": _mend_neighbours,
            "routes": _mend_routes,
        }
        if aspect not in mending:
            super().mend(context, entry, aspect)
            return
        with OverlayNetlink() as netlink:
            mending[aspect](context, entry, netlink)


def ways(entry: Mapping[str, Any], underlay: Underlay) -> list[Way]:
    """Return how each peer's pods are reached from a machine whose tunnels ``underlay`` carries.

    What is IPv6 is always reached through a tunnel: a machine's address of IPv4 is no next hop for it.
    """
    found, source = list[Way](), entry.get("gateway", "")
    for name, peer in sorted(entry["overlay"]["peers"].items()):
        near = underlay.network is not None and ipaddress.ip_address(peer["address"]) in underlay.network
        if not source:
            pass
        elif entry["overlay"]["direct"] and near:
            found.append(Way(peer["cidr"], peer["address"], source))
        else:
            found.append(Way(peer["cidr"], _hop(peer["cidr"]), source, mac_of(name), peer["address"]))
        if (cidr := peer.get("cidr_ipv6")) and "ipv6" in entry:
            found.append(Way(cidr, _hop(cidr), entry["ipv6"]["gateway"], mac_of(name), peer["address"]))
    return found


def _hop(cidr: str) -> str:
    return str(ipaddress.ip_network(cidr).network_address)


def _clusters(entry: Mapping[str, Any]) -> list[str]:
    return [each for each in (entry["cluster_cidr"], entry.get("ipv6", {}).get("cluster_cidr")) if each]


def _ends(entry: Mapping[str, Any], index: int) -> list[Address]:
    """Return the addresses that the overlay's device has."""
    return [Address(index, each, ipaddress.ip_address(each).max_prefixlen) for each in gateways_of(entry)]


def _underlay(address: Address | None, links: Mapping[str, Link]) -> Underlay:
    """Return the device that has an address."""
    link = next((link for link in links.values() if address and link.ifindex == address.ifindex), None)
    if address is None or link is None:
        return Underlay()
    network = ipaddress.ip_network(f"{address.ip}/{address.prefix_length}", strict=False)
    return Underlay(link.ifindex, link.name, link.mtu, network)


def _under(observed: ObservedNetwork) -> Underlay:
    return _underlay(observed.overlay.under, observed.links) if observed.overlay else Underlay()


def _tunnel(node: str, overlay: Mapping[str, Any]) -> Tunnel:
    return Tunnel(overlay["vni"], overlay["address"], overlay["port"], mac_of(node), learning=False)


def _shown(device: str, mtu: int, tunnel: Tunnel, alias: str) -> str:
    learning = " learning" if tunnel.learning else ""
    place = f"vni {tunnel.vni} at {tunnel.local}:{tunnel.port} mac {tunnel.mac}{learning}"
    return f"{device} up mtu {mtu} {place} alias {alias}"


def _needed(entry: Mapping[str, Any]) -> str:
    return f"{entry['overlay']['address']} on a device of mtu {_carried(entry)}"


def _headers(entry: Mapping[str, Any]) -> int:
    return HEADERS_IPV6 if ":" in entry["overlay"]["address"] else HEADERS


def _carried(entry: Mapping[str, Any]) -> int:
    """Return the size of a pod's largest packet in a tunnel."""
    return int(entry["mtu"]) + _headers(entry)


def _lines(words: Any) -> str:
    return "; ".join(sorted(words))


def _is_ours(route: OverlayRoute, entry: Mapping[str, Any], index: int) -> bool:
    """Return whether a route is ours; one of IPv6 loses its source with the address that it was."""
    led = ":" in route.destination and route.ifindex == index
    return route.protocol == PROTOCOL and (led or route.source in gateways_of(entry))


def _last_routes(entry: Mapping[str, Any], index: int) -> set[OverlayRoute]:
    """Return where the way to addresses ends that are no peer's; another route to the same range goes before it.

    In IPv6 it leads to the overlay's device, which knows no such neighbour: an unreachable route would outlive it.
    """
    found = set[OverlayRoute]()
    if "gateway" in entry:
        found.add(OverlayRoute(entry["cluster_cidr"], "", 0, entry["gateway"], PROTOCOL, UNREACHABLE))
    if ipv6 := entry.get("ipv6"):
        found.add(OverlayRoute(ipv6["cluster_cidr"], "", index, ipv6["gateway"], PROTOCOL))
    return found


def _routes_shown(entry: Mapping[str, Any], routes: Iterable[OverlayRoute], under: set[int], index: int) -> str:
    last = _last_routes(entry, index)
    return _lines(
        f"{route.destination} else unreachable"
        if route in last
        else f"{route.destination} via {route.gateway} from {route.source}"
        for route in routes
        if _is_ours(route, entry, index) and (route in last or route.ifindex in under | {index})
    )


def _refuse_underlay(_context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    address, mtu, headers = entry["overlay"]["address"], entry["mtu"], _headers(entry)
    at = _underlay(netlink.holder(address), netlink.links())
    if not at.ifindex:
        raise KeyFault(
            "NetworkNotReady", f"no device of this machine has the address {address}, which tunnels leave from"
        )
    message = f"pods' packets of {mtu} bytes and {headers} of VXLAN do not fit {at.name}, whose mtu is {at.mtu}"
    raise KeyFault("NetworkNotReady", f"{message}: declare an mtu of {at.mtu - headers} or less")


def _mend_guard(context: Context, entry: Mapping[str, Any], _netlink: OverlayNetlink) -> None:
    context.checkpoint("nft transaction")
    tunnel_guard.make(context.node, entry["overlay"])


def _mend_vxlan(context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    """Change the device, or make it again: most settings of a VXLAN device are for its life."""
    overlay, mark = entry["overlay"], alias_of(context.node)
    name, wanted = overlay["device"], _tunnel(context.node, overlay)
    link = netlink.link(name)
    if link is not None and netlink.tunnel(link.ifindex) != wanted:
        if link.alias != mark:
            raise KeyFault("NetworkNotReady", f"device {name} exists and is not this node's overlay")
        context.checkpoint("delete overlay")
        netlink.delete_link(link.ifindex)
        link = None
    if link is None:
        context.checkpoint("create overlay")
        netlink.add_tunnel(name, wanted, entry["mtu"])
        link = netlink.link(name)
    context.checkpoint("set overlay")
    netlink.set_link(link.ifindex if link else 0, up=True, mtu=entry["mtu"], alias=mark)


def _mend_end(context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    index, _ways, _underlay_seen = _seen(entry, netlink)
    wanted = _ends(entry, index)
    if "ipv6" in entry:
        open_device(entry["overlay"]["device"])
    for other in netlink.addresses(ipv6=True):
        if other.ifindex == index and other not in wanted:
            context.checkpoint("delete end")
            netlink.delete_address(other)
    for each in wanted:
        context.checkpoint("add end")
        netlink.add_address(each)


def _seen(entry: Mapping[str, Any], netlink: OverlayNetlink) -> tuple[int, list[Way], Underlay]:
    link = netlink.link(entry["overlay"]["device"])
    if link is None or link.kind != "vxlan":
        raise KeyFault("NetworkNotReady", f"device {entry['overlay']['device']} is not an overlay (yet)")
    underlay = _underlay(netlink.holder(entry["overlay"]["address"]), netlink.links())
    return link.ifindex, ways(entry, underlay), underlay


def _mend_forwarding(context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    index, found, _underlay_seen = _seen(entry, netlink)
    wanted = {(way.mac, way.machine) for way in found if way.mac}
    there = netlink.forwarding(index)
    for mac, machine in sorted(there - wanted):
        context.checkpoint("forget forwarding")
        netlink.delete_forwarding(index, mac, machine)
    for mac, machine in sorted(wanted - there):
        context.checkpoint("add forwarding")
        netlink.add_forwarding(index, mac, machine)


def _mend_neighbours(context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    index, found, _underlay_seen = _seen(entry, netlink)
    wanted = {way.hop: way.mac for way in found if way.mac}
    for hop, mac in sorted(netlink.neighbours(index) | netlink.neighbours(index, socket.AF_INET6)):
        if wanted.get(hop) == mac:
            del wanted[hop]
        elif hop not in wanted:
            context.checkpoint("forget neighbour")
            netlink.delete_neighbour(index, hop)
    for hop, mac in sorted(wanted.items()):
        context.checkpoint("add neighbour")
        netlink.add_neighbour(index, hop, mac)


def _mend_routes(context: Context, entry: Mapping[str, Any], netlink: OverlayNetlink) -> None:
    index, found, underlay = _seen(entry, netlink)
    wanted = {
        way.cidr: OverlayRoute(way.cidr, way.hop, index if way.mac else underlay.ifindex, way.source, PROTOCOL)
        for way in found
    }
    missing_end = _last_routes(entry, index)
    for route in netlink.overlay_routes():
        if route == wanted.get(route.destination):
            del wanted[route.destination]
        elif route in missing_end:
            missing_end.remove(route)
        elif _is_ours(route, entry, index):
            context.checkpoint("delete route")
            netlink.delete_overlay_route(route)
        elif route.destination in wanted:
            raise KeyFault(
                "NetworkNotReady", f"a route to {route.destination} exists that minik8s did not make; remove it"
            )
    for route in [*wanted.values(), *missing_end]:
        context.checkpoint("add route")
        netlink.set_overlay_route(route)
