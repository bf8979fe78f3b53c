"""In which order Services are given what nobody asked for: cluster addresses and node ports. Pure.

``.1`` is default/kubernetes' and is given to nobody else; ``.0`` is given last, ``.255`` never. Of IPv6 the first is no
machine's (RFC 4291: the routers of a subnet), and the next is left alone as of IPv4. Ports come from the upper part of
the range first, so that the lower one stays for people (KEP-3668: min(max(16, size / 32), 128)).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from minik8s_modules.api.network.load_balancers import NODE_PORTS
from minik8s_modules.api.objects import JsonObject

_FOR_PEOPLE = 86
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def candidates(cidr: Network) -> Iterator[str]:
    """Yield the addresses to give out, in order."""
    hosts: Iterator[Any] = iter(cidr.hosts())
    next(hosts)
    yield from map(str, hosts)
    if cidr.version == 4:  # noqa: PLR2004 - IPv4
        yield str(cidr.network_address)


def addresses_of(declared: JsonObject) -> list[str]:
    """Return the addresses in a Service's spec, the first one first; a stored Service may lack ``clusterIPs``."""
    first = str(declared.get("clusterIP") or "")
    if first in {"", "None"}:
        return []
    every = [str(each) for each in declared.get("clusterIPs") or []]
    return every if every[:1] == [first] else [first]


def port_candidates() -> Iterator[int]:
    """Yield the node ports to give out, in order."""
    yield from NODE_PORTS[_FOR_PEOPLE:]
    yield from NODE_PORTS[:_FOR_PEOPLE]
