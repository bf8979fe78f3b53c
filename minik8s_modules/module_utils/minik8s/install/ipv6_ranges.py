"""Tells whether ranges of IPv6 can be used, and whether all are of one family. Pure but for what stands in a file."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

NODE_PREFIX_LENGTH_IPV6 = 64
LONGEST_SERVICES_IPV6 = 126


def family_problems(pods: str, services: str, standing: str) -> list[str]:
    """Return whether Pods and Services, those that are and those that are to be, have addresses of different families.

    An address is never changed: not of a Pod that runs, nor of a Service.
    """
    found = []
    if pods and services and (":" in pods) != (":" in services):
        found.append(
            f"minik8s_cluster_cidr {pods} and minik8s_service_cidr {services} are of two families: give both of IPv4,"
            " or both of IPv6; to have both families, add minik8s_cluster_cidr_ipv6 and minik8s_service_cidr_ipv6 to"
            " two ranges of IPv4"
        )
    if standing and services and (":" in standing) != (":" in services):
        found.append(
            f"minik8s_service_cidr: {services} is of another family than {standing}, which the cluster on this machine"
            " has: Pods and Services keep their addresses. Leave it, or remove the cluster first (playbooks/reset.yml)"
        )
    return found


def alone_problems(given: Mapping[str, str], connected: Sequence[tuple[str, str]], nodes: int) -> list[str]:
    """Return what keeps Pods and Services from having IPv6 addresses alone."""
    networks = {name: network_ipv6(text) for name, text in given.items() if ":" in text}
    found = [
        f"{name}: {given[name]} is not an IPv6 network: write its address and prefix length, such as fd00:10:244::/48"
        for name, network in networks.items()
        if network is None
    ]
    usable = {name: network for name, network in networks.items() if network is not None}
    special = (name for name, network in usable.items() if is_special(network))
    found += [
        f"{name}: {given[name]} is not for Pods or Services: take one of your own, or of fd00::/8" for name in special
    ]
    return [*found, *_alone_sizes(usable, nodes), *overlaps(usable, connected)]


def _alone_sizes(usable: Mapping[str, ipaddress.IPv6Network], nodes: int) -> list[str]:
    found, pods = [], usable.get("minik8s_cluster_cidr")
    if pods is not None and pods.num_addresses < max(1, nodes) * 2 ** (128 - NODE_PREFIX_LENGTH_IPV6):
        text = f"each of {nodes} nodes gets a /{NODE_PREFIX_LENGTH_IPV6} of it"
        found.append(f"minik8s_cluster_cidr: {pods} is too small: {text}")
    services = usable.get("minik8s_service_cidr")
    if services is not None and services.prefixlen > LONGEST_SERVICES_IPV6:
        found.append(f"minik8s_service_cidr: {services} is too small: give at least a /{LONGEST_SERVICES_IPV6}")
    return found


_SERVICES = re.compile(r"""^service_cidr: ["']?([0-9a-fA-F:./]+)""", re.MULTILINE)


def standing_services(configuration: Path) -> str:
    """Return the range of Services that the API server of this machine was configured with, "" where there is none."""
    try:
        found = _SERVICES.search(configuration.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[1] if found else ""


def network_ipv6(text: str) -> ipaddress.IPv6Network | None:
    """Return the range that a text is, None where it is none of IPv6."""
    try:
        return ipaddress.IPv6Network(text) if "/" in text else None
    except ValueError:
        return None


def is_special(network: ipaddress.IPv6Network) -> bool:
    """Return whether a range has another meaning than addresses of Pods and Services."""
    return network.is_link_local or network.is_multicast or network.is_loopback or network.is_unspecified


def passes_away(address: ipaddress.IPv6Address) -> bool:
    """Return whether an address is none that others, on other machines or in Pods, reach a machine at."""
    return bool(address.ipv4_mapped or address.scope_id) or is_special(ipaddress.IPv6Network(address))


def overlaps(
    usable: Mapping[str, ipaddress.IPv4Network | ipaddress.IPv6Network],
    connected: Sequence[tuple[str, str]],
) -> list[str]:
    """Return which ranges hide a network of the machine, and whether they hide each other."""
    found = taken(usable, connected)
    networks = list(usable.values())
    if len(networks) > 1 and networks[0].overlaps(networks[1]):
        found.append(f"minik8s_cluster_cidr {networks[0]} overlaps minik8s_service_cidr {networks[1]}: separate them")
    return found


def taken(
    usable: Mapping[str, ipaddress.IPv4Network | ipaddress.IPv6Network], connected: Sequence[tuple[str, str]]
) -> list[str]:
    """Return which ranges hide a network of the machine; one of the other family is never hidden."""
    return [
        f"{name}: {network} overlaps {address} of device {device}: choose another range"
        for name, network in usable.items()
        for device, address in connected
        if network.overlaps(ipaddress.ip_network(address))
    ]
