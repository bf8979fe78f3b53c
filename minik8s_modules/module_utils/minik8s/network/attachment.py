"""A sandbox's network attach: a veth pair between the node's bridge and the pause container's network namespace.

The host end is ``mk8s-<8 hex of the uid>`` and carries ``minik8s <node> <uid>`` as its alias, which tells whose it is;
the other end is ``eth0`` with the pod's address and the default route. All of it is read from the kernel and compared;
what is right already stays. Hairpin is on, so that a pod reaches itself through a service. A pod's IPv6 address, where
it has one, is /128, and pod and node have each other's MAC for good (network_ipv6.py says why).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import socket
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..core import labels
from ..core.docker import Docker
from ..core.faults import KeyFault
from ..core.section import Context, Scope
from . import sources
from .netlink import Address, Link, Netlink, inside_of
from .sandbox_network import network_of
from .switches import read_switch, set_switch

ALIAS = "minik8s {node} {uid}"
WHOLE = 128
"""The prefix length of a pod's IPv6 address: nobody is in its network."""
# Docker turns IPv6 off in a network of its own; what is left off here would find out who is near, and ask for a router.
# A router tells who sends on to a neighbour to call that directly, which pods may not: they would reach it no more.
_SWITCHES = {
    "eth0/accept_ra": "0",
    "eth0/accept_dad": "0",
    "eth0/accept_redirects": "0",
    "eth0/disable_ipv6": "0",
    "lo/disable_ipv6": "0",
}


class Attachment(NamedTuple):
    """The network of a running sandbox as the kernel has it; None or "" for what is missing."""

    link: str = ""
    bridge: str = ""
    hairpin: bool = False
    address: str = ""
    gateway: str = ""
    mtu: str = ""
    loopback: bool = False
    neighbours: str = ""
    """Of IPv6: the pod, as the node has it, and the gateway, as the pod has it."""


def link_name(uid: str) -> str:
    """Return the host end's device name: mk8s- and the uid's first 8 hex digits (of its sha256 if it has none)."""
    head = uid[:8].lower()
    digits = head if re.fullmatch("[0-9a-f]{8}", head) else hashlib.sha256(uid.encode()).hexdigest()[:8]
    return "mk8s-" + digits


def declared_attachment(key: str, entry: Mapping[str, Any]) -> Attachment:
    """Return the network a sandbox must have."""
    if entry["host_network"]:
        return Attachment()
    if entry.get("plugin") is not None:
        text = f"{entry['ip']}/{entry['prefix_length']}" if entry["ip"] else "given by the plugin"
        return Attachment(entry["plugin"]["driver"], address=text)
    ipv6 = entry.get("ipv6")
    return Attachment(
        link=link_name(key),
        bridge=entry["bridge"],
        hairpin=True,
        address=" ".join(f"{each.ip}/{each.prefix_length}" for each in _addresses(entry, 0)),
        gateway=" ".join(_declared_gateways(entry)),
        mtu=str(entry["mtu"]),
        loopback=True,
        neighbours=_neighbours_shown(_near(entry)) if ipv6 else "",
    )


def _addresses(entry: Mapping[str, Any], index: int) -> list[Address]:
    own = [Address(index, entry["ip"], entry["prefix_length"])] if entry["ip"] else []
    return [*own, Address(index, entry["ipv6"]["ip"], WHOLE)] if entry.get("ipv6") else own


def own_address(entry: Mapping[str, Any]) -> str:
    """Return the address that a pod is known by: that of IPv4 where it has one."""
    return str(entry["ip"] or entry["ipv6"]["ip"])


def _declared_gateways(entry: Mapping[str, Any]) -> list[str]:
    found = [entry["gateway"], *([entry["ipv6"]["gateway"]] if entry.get("ipv6") else [])]
    return [each for each in found if each]


def _near(entry: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return who is to be known for good: the pod and its gateway, each with its MAC."""
    ipv6 = entry["ipv6"]
    return {(ipv6["ip"], mac_of(own_address(entry))), (ipv6["gateway"], mac_of(_declared_gateways(entry)[0]))}


def _neighbours_shown(found: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{address} is {mac}" for address, mac in sorted(found))


def observe_attachment(
    docker: Docker,
    inspect: Mapping[str, Any],
    links: Mapping[str, Link],
    known: Mapping[int, set[tuple[str, str]]] = MappingProxyType({}),
) -> Attachment:
    """Return a running sandbox's network as the kernel has it; ``known`` are the node's neighbours by their device."""
    if inspect["HostConfig"]["NetworkMode"] == "host":
        return Attachment()
    name = link_name(inspect["Config"]["Labels"].get(labels.POD_UID, ""))
    host = links.get(name)
    bridge = next((link.name for link in links.values() if host and link.ifindex == host.master), "")
    try:
        with network_of(docker, inspect) as network, Netlink(network) as inside:
            return _attachment_inside(inside, host, bridge, known.get(host.master, set()) if host else set())
    except KeyFault:  # it ended meanwhile
        return Attachment()


def observe_address(docker: Docker, inspect: Mapping[str, Any], interface: str = "eth0") -> str:
    """Return the addresses (CIDR) of a running sandbox's device, "" for none or where it is not up."""
    if inspect["HostConfig"]["NetworkMode"] == "host":
        return ""
    try:
        with network_of(docker, inspect) as network, Netlink(network) as inside:
            device = inside.link(interface)
            return _shown(inside.addresses(), device) if device is not None and device.up else ""
    except KeyFault:  # it ended meanwhile
        return ""


def _shown(addresses: Iterable[Address], link: Link) -> str:
    """Return the addresses of a device, those of IPv4 first."""
    found = (f"{each.ip}/{each.prefix_length}" for each in addresses if each.ifindex == link.ifindex)
    return " ".join(sorted(found, key=lambda text: (":" in text, text)))


def _attachment_inside(
    inside: Netlink, host: Link | None, bridge: str, near_bridge: set[tuple[str, str]]
) -> Attachment:
    links = inside.links()
    eth0, loopback = links.get("eth0"), links["lo"].up
    if eth0 is None or not eth0.up:
        return Attachment(host.name if host else "", bridge, loopback=loopback)
    address = _shown(inside.addresses(ipv6=True), eth0)
    dual = ":" in address
    gateways = _gateways(inside, ipv6=dual)
    seen = Attachment(address=address, gateway=" ".join(gateways), mtu=str(eth0.mtu), loopback=loopback)
    if dual:
        own = {each for each in near_bridge if f"{each[0]}/{WHOLE}" in address.split()}
        # whom else the pod knows is its own affair
        own |= {each for each in inside.neighbours(eth0.ifindex, socket.AF_INET6) if each[0] in gateways}
        seen = seen._replace(neighbours=_neighbours_shown(own))
    if host is None or not host.up:
        return seen
    mtu = seen.mtu if host.mtu == eth0.mtu else f"{eth0.mtu} (outside {host.mtu})"
    return seen._replace(link=host.name, bridge=bridge, hairpin=_hairpin(host.name), mtu=mtu)


def _gateways(inside: Netlink, *, ipv6: bool) -> list[str]:
    found = [each.gateway for each in inside.routes(ipv6=ipv6) if each.destination == "default"]
    return sorted(found, key=lambda gateway: ":" in gateway)


def _hairpin_path(link: str) -> str:
    return f"/sys/class/net/{link}/brport/hairpin_mode"


def send_back(link: str) -> None:
    """Have a bridge send frames back to the port they came from: a pod that reaches itself through a Service."""
    with open(_hairpin_path(link), "w", encoding="ascii") as target:
        target.write("1")


def _hairpin(link: str) -> bool:
    try:
        with open(_hairpin_path(link), encoding="ascii") as source:
            return source.read().strip() == "1"
    except OSError:
        return False


def attach(context: Context, inspect: Mapping[str, Any], key: str, entry: Mapping[str, Any]) -> None:
    """Give a running sandbox its link, address and default route; what is right already stays.

    Raises:
        KeyFault: SandboxGone when it ended meanwhile, NetworkNotReady when the bridge is missing or nothing holds back
            what pods forge of IPv6, InvalidEntry when the network is its node's.
    """
    with network_of(context.docker, inspect) as network, Netlink() as outside, Netlink(network) as inside:
        bridge = outside.link(entry["bridge"])
        if bridge is None:
            raise KeyFault("NetworkNotReady", f"bridge {entry['bridge']} does not exist; section network makes it")
        context.checkpoint("admit source")  # before the pod has a way to send
        admitted = sources.admit(context.run_dir, context.node, entry["bridge"], pair_of(key, entry))
        if entry.get("ipv6") and not admitted:
            text = "nf_tables of this machine knows no bridges: pods with IPv6 addresses could pass as others there"
            raise KeyFault("NetworkNotReady", text)
        _make_link(context, outside, inside, (bridge, network), key, entry)
        _configure(context, inside, entry)
        if entry.get("ipv6"):
            _configure_ipv6(context, outside, inside, (bridge, network), entry)


def give_up_ipv6(context: Context, inspect: Mapping[str, Any], key: str, entry: Mapping[str, Any]) -> None:
    """Take from a running pod what it had of IPv6, where it has no such address any more.

    The node forgets it first: a pod that gives itself the address again is nobody's neighbour, and what it sends is
    dropped. What tells that this is to be done (the pod's address, or its pair of the table of sources) goes last.
    Its loopback keeps ::1, which Docker gives pods that never had another: their /etc/hosts calls it localhost.
    """
    context.checkpoint("give up ipv6")
    with network_of(context.docker, inspect) as network, Netlink() as outside:
        bridge = outside.link(entry["bridge"])
        known = outside.neighbours(bridge.ifindex, socket.AF_INET6) if bridge else set()
        for address, mac in sorted(known):
            if mac == mac_of(entry["ip"]):
                forget(outside, entry["bridge"], sources.Pair("", "", address))
        sources.dismiss_ipv6(entry["bridge"], link_name(key))
        with inside_of(network):
            if read_switch("ipv6/conf/eth0/disable_ipv6") == "0":  # it takes addresses, routes and neighbours
                set_switch("ipv6/conf/eth0/disable_ipv6", "1")


def pair_of(key: str, entry: Mapping[str, Any]) -> sources.Pair:
    """Return what a pod's device may send with."""
    ipv6 = entry.get("ipv6")
    return sources.Pair(link_name(key), entry["ip"], ipv6["ip"] if ipv6 else "")


def has_ipv6(attachment: Attachment, entry: Mapping[str, Any]) -> bool:
    """Return whether a pod was given its IPv6 address, if it is to have one.

    The node knows the pod by it then: a pod may have given it to itself.
    """
    if not entry.get("ipv6"):
        return True
    known = [(entry["ipv6"]["ip"], mac_of(own_address(entry)))]
    return _neighbours_shown(known) in attachment.neighbours.split("; ")


def pair_seen(netlink: Netlink, attachment: Attachment, ip: str) -> sources.Pair:
    """Return what the device of a pod that was given ``ip`` could send with.

    Its IPv6 address is that which the node knows by the pod's MAC: a pod may have given itself another's.
    """
    if ":" in ip:
        return sources.Pair(attachment.link, "", ip)
    bridge = netlink.link(attachment.bridge) if ip and ":" in attachment.address else None
    known = netlink.neighbours(bridge.ifindex, socket.AF_INET6) if bridge else set()
    return sources.Pair(attachment.link, ip, next((each for each, mac in known if mac == mac_of(ip)), ""))


def forget(netlink: Netlink, bridge: str, pair: sources.Pair) -> None:
    """Have the node forget who was near it."""
    link = netlink.link(bridge)
    if link is not None and pair.ipv6:
        with contextlib.suppress(FileNotFoundError):
            netlink.delete_neighbour(link.ifindex, pair.ipv6)


def links_of(netlink: Netlink, keys: Iterable[str]) -> dict[str, Link]:
    """Return the host ends of some pods and the bridges these are in: with many pods on the node, all would be slow."""
    ends = [end for key in keys if (end := netlink.link(link_name(key)))]
    bridges = [bridge for index in {end.master for end in ends} - {0} if (bridge := netlink.link_at(index))]
    return {link.name: link for link in (*ends, *bridges)}


def strays(node: str, links: Mapping[str, Link], containers: Mapping[str, Any], scope: Scope) -> dict[str, list[Link]]:
    """Return this node's host ends by pod uid, where no pause container of that pod is left."""
    found: dict[str, list[Link]] = {}
    for link in links.values():
        words = link.alias.split(" ")
        ours = link.kind == "veth" and words[:2] == ["minik8s", node] and len(words) == len(ALIAS.split(" "))
        if ours and words[2] not in containers and scope.covers(words[2]):
            found.setdefault(words[2], []).append(link)
    return found


def delete_link(netlink: Netlink, link: Link) -> None:
    """Delete a device that may be going away by itself, with the namespace of its other end."""
    try:
        netlink.delete_link(link.ifindex)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def mac_of(address: str) -> str:
    """Return the hardware address of the pod that has ``address``: ``0a:58`` and its (last) four bytes, as with CNI.

    So who knew a former pod of that address knows the new one. A kernel keeps up to 128 neighbours however old they
    are, and sends to where it last heard them for 8 s before it asks again.
    """
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return ":".join(["0a", "58", *(f"{byte:02x}" for byte in packed[-4:])])


def _make_link(
    context: Context,
    outside: Netlink,
    inside: Netlink,
    place: tuple[Link, str],
    key: str,
    entry: Mapping[str, Any],
) -> None:
    bridge, netns = place
    name, alias = link_name(key), ALIAS.format(node=context.node, uid=key)
    host, eth0 = outside.link(name), inside.link("eth0")
    if host is not None and eth0 is None:  # left by an earlier attempt
        context.checkpoint("delete link")
        delete_link(outside, host)
        host = None
    if eth0 is not None and host is None:
        context.checkpoint("delete link inside")
        inside.delete_link(eth0.ifindex)
    if host is None:
        context.checkpoint("create link")
        outside.add_veth(name, bridge.ifindex, entry["mtu"], "eth0", netns, mac=mac_of(own_address(entry)))
        host = outside.link(name)
        if host is None:
            raise KeyFault("SandboxGone", f"the pause container of {key} ended while its network was being set up")
    if (host.master, host.up, host.mtu, host.alias) != (bridge.ifindex, True, entry["mtu"], alias):
        context.checkpoint("set link")
        outside.set_link(host.ifindex, up=True, mtu=entry["mtu"], master=bridge.ifindex, alias=alias)
    if not _hairpin(name):
        context.checkpoint("hairpin")
        send_back(name)


def _configure(context: Context, inside: Netlink, entry: Mapping[str, Any]) -> None:
    links = inside.links()  # both at once: a namespace of ours has no others
    lo, eth0 = links["lo"], links["eth0"]
    if not lo.up:
        context.checkpoint("lo up")
        inside.set_link(lo.ifindex, up=True)
    if not eth0.up or eth0.mtu != entry["mtu"]:
        context.checkpoint("eth0 up")
        inside.set_link(eth0.ifindex, up=True, mtu=entry["mtu"])
    wanted = _addresses(entry, eth0.ifindex)
    present = [each for each in inside.addresses(ipv6=True) if each.ifindex == eth0.ifindex]
    for other in present:
        if other not in wanted:
            context.checkpoint("delete address")
            inside.delete_address(other)
    if not entry["ip"]:
        return
    if wanted[0] not in present:
        context.checkpoint("add address")
        inside.add_address(wanted[0])
    if [each.gateway for each in inside.routes() if each.destination == "default"] != [entry["gateway"]]:
        context.checkpoint("default route")
        inside.set_default_route(entry["gateway"], eth0.ifindex)


def _configure_ipv6(
    context: Context, outside: Netlink, inside: Netlink, place: tuple[Link, str], entry: Mapping[str, Any]
) -> None:
    """Give ``eth0`` the pod's IPv6 address, and pod and node each other's MAC."""
    (bridge, network), ipv6, eth0 = place, entry["ipv6"], inside.links()["eth0"]
    context.checkpoint("eth0 ipv6")
    with inside_of(network):
        for name, value in _SWITCHES.items():
            set_switch(f"ipv6/conf/{name}", value)
    inside.add_address(Address(eth0.ifindex, ipv6["ip"], WHOLE))
    gateways = _declared_gateways(entry)
    inside.add_neighbour(eth0.ifindex, ipv6["gateway"], mac_of(gateways[0]))
    if _gateways(inside, ipv6=True) != gateways:
        inside.set_default_route(ipv6["gateway"], eth0.ifindex)
    outside.add_neighbour(bridge.ifindex, ipv6["ip"], mac_of(own_address(entry)))
