"""Tells whether Pods can reach the cluster's name server at an address. Pure.

The playbook asks before anything is changed, the reconciler when it begins.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from .ipv6_ranges import passes_away

_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")


def name_server_problem(text: str, pods: Iterable[str], services: Iterable[str]) -> str:
    """Return what keeps an address from being the name server's, "" for nothing, as where there is no name server.

    Args:
        text: the address, "" for none.
        pods: the ranges of Pods, of each family that they have; without any, Pods are of the Services' families.
        services: the ranges of Services. What is no range is somebody else's to tell.
    """
    if not text:
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "is not an IP address"
    of_pods, of_services = _networks(pods), _networks(services)
    families = {network.version for network in of_pods or of_services}
    if families and address.version not in families:
        return f"is IPv{address.version}, and Pods have no such address: they do not reach it"
    if not _is_reached(address):
        return "is not one that Pods reach: take one of 169.254.0.0/16, or of fd00::/8 where Pods have IPv6 alone"
    inside = [str(network) for network in (*of_pods, *of_services) if address in network]
    return f"is in {inside[0]}, a range of Pods or Services: take one outside" if inside else ""


def _is_reached(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is one of a machine. One of IPv4 may be link-local, as on each node it is on lo."""
    if isinstance(address, ipaddress.IPv6Address):
        return not passes_away(address)
    return not (address.is_multicast or address.is_unspecified or address == _EVERYBODY)


def _networks(ranges: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for text in ranges:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            continue
    return found
