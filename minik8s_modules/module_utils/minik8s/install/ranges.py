"""Tells whether the cluster's address ranges and a node's name can be used, before anything is changed.

Pure but for :func:`connected_networks`, which reads the kernel's routing tables. What devices of ours are connected to
(their names begin with ``mk8``) is left out: an installation is repeated on machines that carry a cluster. So are,
where somebody else's program makes the pods' network, its own devices: those that lie in the cluster's range.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .ipv6_ranges import (
    LONGEST_SERVICES_IPV6,
    NODE_PREFIX_LENGTH_IPV6,
    alone_problems,
    family_problems,
    is_special,
    network_ipv6,
    overlaps,
    passes_away,
    taken,
)
from .name_server import name_server_problem

OURS = "mk8"
NODE_PREFIX_LENGTH = 24  # a node's share of the cluster's range (reconcile gives each node a /24)
NO_IPV6 = "IPv6 is off on this machine: see its kernel's ipv6.disable and net.ipv6.conf.all.disable_ipv6"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAME_LENGTH = 63  # the label kubernetes.io/hostname holds it
_OF_DOCKER = re.compile(r"docker|br-[0-9a-f]{12}\Z")
_ROUTE_FIELDS = 8
_REJECT = 0x200  # linux/route.h: RTF_REJECT
_LAST_METRIC = 0xFFFFFFFF
_ROUTE_FIELDS_IPV6 = 10
_PASSING = 0x01 | 0x08 | 0x20 | 0x40  # linux/if_addr.h: TEMPORARY, DADFAILED, DEPRECATED, TENTATIVE
_NO_NETWORK = 0x200 | 0x00100000 | 0x80000000  # linux/ipv6_route.h: RTF_REJECT, RTF_ANYCAST, RTF_LOCAL


class Underlay(NamedTuple):
    """How nodes reach each other's pods, and whether this machine has an IPv6 address that others may know it by.

    ``underlay`` is "" where the inventory does not say it.
    """

    driver: str = "bridge"
    underlay: str = ""
    direct: bool = False
    has_address: bool = True


class Ranges(NamedTuple):
    """The cluster's ranges as they were written, how many nodes share the first, and this machine's name as a node.

    ``foreign_pods``: the first range is of a program (drivers cni and weave), which may have devices in it.
    ``has_ipv6``: the kernel of this machine does IPv6. ``address`` is what other machines are told to reach it at, and
    ``tunnels`` whether some end here, at the address of its default route: ``has_route`` says that it has one of IPv4.
    ``several``: there are other machines. ``standing`` is the range of Services of the cluster that is here already.
    """

    cluster_cidr: str
    service_cidr: str
    nodes: int
    node_name: str = ""
    foreign_pods: bool = False
    cluster_cidr_ipv6: str = ""
    service_cidr_ipv6: str = ""
    has_ipv6: bool = True
    address: str = ""
    tunnels: bool = False
    has_route: bool = True
    underlay: Underlay = Underlay()
    several: bool = False
    mesh: bool = False
    standing: str = ""
    dns_address: str = ""
    has_loopback: bool = True


def range_problems(wanted: Ranges, connected: Sequence[tuple[str, str]]) -> list[str]:
    """Return one sentence a gap; ``connected`` are (device, network) of this machine."""
    found: list[str] = []
    if wanted.node_name and (len(wanted.node_name) > _NAME_LENGTH or not _NAME.match(wanted.node_name)):
        found.append(
            f"{wanted.node_name!r} is not a valid node name: use lower-case letters, digits, '-' and '.', "
            f"at most {_NAME_LENGTH}, in the inventory"
        )
    given = {"minik8s_cluster_cidr": wanted.cluster_cidr, "minik8s_service_cidr": wanted.service_cidr}
    found += family_problems(wanted.cluster_cidr, wanted.service_cidr, wanted.standing)
    pod_ranges = (wanted.cluster_cidr, wanted.cluster_cidr_ipv6)
    if why := name_server_problem(wanted.dns_address, pod_ranges, (wanted.service_cidr, wanted.service_cidr_ipv6)):
        found.append(f"minik8s_dns_address: {wanted.dns_address} {why}")
    if any(":" in text for text in given.values()):
        return found + _alone_problems(wanted, given, connected)
    networks = {name: _network(text) for name, text in given.items() if text}
    found.extend(
        f"{name}: {given[name]} is not an IPv4 network: write its address and prefix length, such as 10.244.0.0/16"
        for name, network in networks.items()
        if network is None
    )
    usable = {name: network for name, network in networks.items() if network is not None}
    pods = usable.get("minik8s_cluster_cidr")
    if wanted.foreign_pods and pods is not None:
        connected = [each for each in connected if ":" in each[1] or not ipaddress.IPv4Network(each[1]).subnet_of(pods)]
    found.extend(overlaps(usable, connected))
    if pods is not None and pods.num_addresses < wanted.nodes * 2 ** (32 - NODE_PREFIX_LENGTH):
        found.append(
            f"minik8s_cluster_cidr: {pods} is too small: "
            f"each of {wanted.nodes} nodes gets a /{NODE_PREFIX_LENGTH} of it"
        )
    found += _address_problems(wanted, connected) + _taken_ipv6(wanted, connected)
    found += _ipv6_problems(wanted, pods) if wanted.cluster_cidr_ipv6 else []
    return [*found, *_services_ipv6_problems(wanted)] if wanted.service_cidr_ipv6 else found


def _alone_problems(wanted: Ranges, given: Mapping[str, str], connected: Sequence[tuple[str, str]]) -> list[str]:
    """Return what keeps the cluster from having IPv6 alone."""
    without = {
        "minik8s_cluster_cidr_ipv6": wanted.cluster_cidr_ipv6,
        "minik8s_service_cidr_ipv6": wanted.service_cidr_ipv6,
        "minik8s_network_driver cni or weave": wanted.foreign_pods,
        "minik8s_mesh": wanted.mesh,
    }
    found = [f"{name} is not for a cluster with IPv6 alone: leave it out" for name, asked in without.items() if asked]
    found += alone_problems(given, connected, wanted.nodes)
    if wanted.has_ipv6 and not wanted.has_loopback:
        found.append(
            "IPv6 is off on the device lo, which has the name server's address and takes what the machine sends to"
            " itself: see net.ipv6.conf.lo.disable_ipv6"
        )
    found += [NO_IPV6] if wanted.node_name and not wanted.has_ipv6 else []
    return found + _address_problems(wanted, connected)


def _address_problems(wanted: Ranges, connected: Sequence[tuple[str, str]]) -> list[str]:
    """Return why others cannot reach this machine at an address of the family that Services have.

    ``default/kubernetes`` leads to the API servers, and other Services to Pods on their node's network.
    """
    if ":" in wanted.service_cidr:
        return _ipv6_address_problems(wanted)
    services = wanted.service_cidr or "minik8s_service_cidr"
    what = f"Services of IPv4 ({services}) cannot lead to machines that are known by an IPv6 address"
    found = []
    if is_ipv6(wanted.address):
        found.append(f"minik8s_node_address: {wanted.address} is IPv6: {what}. Write the machine's IPv4 address")
    elif wanted.several and not (wanted.address or wanted.has_route or _has_ipv4(connected)):
        found.append(
            f"the machine has no IPv4 address: {what}. Give it one, and an IPv4 default route, which tells it, or,"
            " where no tunnels end, minik8s_node_address"
        )
    elif wanted.tunnels and not wanted.has_route:
        found.append(
            "the machine has no IPv4 default route, whose address nodes with tunnels (minik8s_network_driver vxlan) are"
            " known by, whatever minik8s_node_address says: give it an IPv4 address and such a route"
        )
    return found + (_underlay_problems(wanted) if wanted.underlay.underlay == "ipv6" else [])


def _has_ipv4(connected: Sequence[tuple[str, str]]) -> bool:
    """Return whether the machine has an address of IPv4 that others may know it by; Docker's bridges have none."""
    return any(":" not in network and not _OF_DOCKER.match(device) for device, network in connected)


def _ipv6_address_problems(wanted: Ranges) -> list[str]:
    """Return the same of a cluster whose Services have IPv6 addresses alone: there, tunnels go by IPv6, too."""
    what = f"Services of IPv6 ({wanted.service_cidr}) lead to machines at IPv6 addresses"
    found = []
    if wanted.address and not is_ipv6(wanted.address):
        found.append(
            f"minik8s_node_address: {wanted.address} is not IPv6: {what}. Write the machine's IPv6 address, or none"
        )
    elif wanted.address and passes_away(ipaddress.IPv6Address(wanted.address)):
        found.append(f"minik8s_node_address: {wanted.address} is not one that other machines reach: write another")
    if (wanted.tunnels or not wanted.address) and not wanted.underlay.has_address:
        found.append(
            f"the device with the machine's default route has no IPv6 address that others can know it by, and {what}:"
            " give it one (a link-local, temporary or deprecated one will not do)"
        )
    if wanted.underlay.underlay == "ipv4":
        found.append(f"minik8s_network_underlay ipv4: {what}, and so do tunnels: take ipv6, or leave it out")
    if wanted.underlay.direct:
        found.append("minik8s_network_direct is for tunnels over IPv4: set it to false")
    return found


def _underlay_problems(wanted: Ranges) -> list[str]:
    name, given = "minik8s_network_underlay ipv6", wanted.underlay
    found = []
    if given.driver != "vxlan":
        found.append(f"{name}: the network driver {given.driver} makes no tunnels of ours: take vxlan, or leave it out")
    if given.direct:
        found.append(f"{name}: minik8s_network_direct has no next hop of IPv6 for Pods' IPv4: set it to false")
    if wanted.tunnels and not given.has_address:
        found.append(
            f"{name}: the device with the machine's default route has no IPv6 address that others can know it by (a"
            " link-local, temporary or deprecated one is none): give it one, or take ipv4"
        )
    return found


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address."""
    try:
        return ipaddress.ip_address(text).version == 6  # noqa: PLR2004 - its version
    except ValueError:
        return False


def has_default_route(table: Path = Path("/proc/net/route")) -> bool:
    """Return whether the machine has a default route of IPv4."""
    rows = (line.split() for line in table.read_text(encoding="ascii").splitlines()[1:])
    return any(
        len(row) >= _ROUTE_FIELDS and not int(row[1], 16) and not int(row[7], 16) and not int(row[3], 16) & _REJECT
        for row in rows
    )


def has_machine_address(
    table: Path = Path("/proc/net/route"),
    table_ipv6: Path = Path("/proc/net/ipv6_route"),
    addresses: Path = Path("/proc/net/if_inet6"),
) -> bool:
    """Return whether a device with a default route has an IPv6 address for others (install/facts.py takes that)."""
    rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    devices = {row[0] for row in rows if len(row) >= _ROUTE_FIELDS and not int(row[1], 16) and not int(row[7], 16)}
    try:
        rows = [line.split() for line in table_ipv6.read_text(encoding="ascii").splitlines()]
        devices |= {row[9] for row in rows if not int(row[0] + row[1], 16) and not int(row[8], 16) & _NO_NETWORK}
        rows = [line.split() for line in addresses.read_text(encoding="ascii").splitlines()]
    except FileNotFoundError:  # a kernel without IPv6
        return False
    return any(row[5] in devices and not int(row[3], 16) and not int(row[4], 16) & _PASSING for row in rows)


def _ipv6_problems(wanted: Ranges, pods: ipaddress.IPv4Network | None) -> list[str]:
    name, text = "minik8s_cluster_cidr_ipv6", wanted.cluster_cidr_ipv6
    found = []
    network = network_ipv6(text)
    if network is None:
        return [f"{name}: {text} is not an IPv6 network: write its address and prefix length, such as fd00:10:244::/48"]
    if is_special(network):
        found.append(f"{name}: {text} is not for Pods: take one of your own, or of fd00::/8")
    if wanted.foreign_pods:
        found.append(f"{name}: with the network drivers cni and weave, their own program gives Pods their addresses")
    if wanted.node_name and not wanted.has_ipv6:
        found.append(f"{name}: {NO_IPV6}")
    longest = NODE_PREFIX_LENGTH_IPV6 - max(0, NODE_PREFIX_LENGTH - pods.prefixlen) if pods is not None else 0
    if pods is not None and network.prefixlen > longest:
        found.append(f"{name}: {text} is too small: a /{longest} has a /64 for each /{NODE_PREFIX_LENGTH} of {pods}")
    return found


def _services_ipv6_problems(wanted: Ranges) -> list[str]:
    name, text = "minik8s_service_cidr_ipv6", wanted.service_cidr_ipv6
    network = network_ipv6(text)
    if network is None:
        return [f"{name}: {text} is not an IPv6 network: write its address and prefix length, such as fd00:10:96::/112"]
    found = []
    if is_special(network):
        found.append(f"{name}: {text} is not for Services: take one of your own, or of fd00::/8")
    if network.prefixlen > LONGEST_SERVICES_IPV6:
        found.append(f"{name}: {text} is too small: give at least a /{LONGEST_SERVICES_IPV6}")
    if not wanted.cluster_cidr_ipv6:
        found.append(f"{name}: Services lead to Pods, which have no IPv6 addresses: set minik8s_cluster_cidr_ipv6, too")
    elif (pods := network_ipv6(wanted.cluster_cidr_ipv6)) is not None and pods.overlaps(network):
        found.append(f"minik8s_cluster_cidr_ipv6 {pods} overlaps {name} {network}: separate them")
    return found


def has_ipv6(switches: Path = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")) -> bool:
    """Return whether the kernel of this machine does IPv6, and nobody has turned it off."""
    try:
        return switches.read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text) if "/" in text else None
    except ValueError:
        return None


def _taken_ipv6(wanted: Ranges, connected: Sequence[tuple[str, str]]) -> list[str]:
    given = {
        "minik8s_cluster_cidr_ipv6": network_ipv6(wanted.cluster_cidr_ipv6),
        "minik8s_service_cidr_ipv6": network_ipv6(wanted.service_cidr_ipv6),
    }
    return taken({name: network for name, network in given.items() if network is not None}, connected)


def connected_networks(
    table: Path = Path("/proc/net/route"), table_ipv6: Path = Path("/proc/net/ipv6_route")
) -> list[tuple[str, str]]:
    """Return (device, network) for each route without a gateway, but for default routes and devices of ours.

    Nor is a route of the last metric that leads nowhere: a node of ours has one for addresses of pods that nobody has.
    """
    found = []
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if len(fields) < _ROUTE_FIELDS or int(fields[2], 16) or fields[0].startswith(OURS):
            continue
        if int(fields[3], 16) & _REJECT and int(fields[6]) == _LAST_METRIC:
            continue
        address, mask = (ipaddress.IPv4Address(int(fields[at], 16).to_bytes(4, "little")) for at in (1, 7))
        if int(mask):
            found.append((fields[0], str(ipaddress.IPv4Network(f"{address}/{mask}"))))
    return found + _connected_ipv6(table_ipv6)


def _connected_ipv6(table: Path) -> list[tuple[str, str]]:
    """Return the same of IPv6.

    The table has the machine's own addresses, too, and what leads nowhere: routers keep all of fc00::/7 from leaving by
    their default route, which is no network of theirs. Of link-local addresses each device has the same.
    """
    try:
        lines = table.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:  # a kernel without IPv6
        return []
    found = []
    for fields in map(str.split, lines):
        if len(fields) < _ROUTE_FIELDS_IPV6 or fields[9].startswith(OURS):
            continue
        length, gateway, flags = (int(fields[at], 16) for at in (1, 4, 8))
        if not length or gateway or flags & _NO_NETWORK:
            continue
        network = ipaddress.IPv6Network((int(fields[0], 16), length))
        if not network.is_link_local and not network.is_multicast:
            found.append((fields[9], str(network)))
    return found
