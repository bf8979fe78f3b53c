"""In which order Services are given what nobody asked for: cluster addresses and node ports. Pure.

``.1`` is default/kubernetes' and is given to nobody else; ``.0`` is given last, ``.255`` never. Ports come from the
upper part of the range first, so that the lower one stays for people (KEP-3668: min(max(16, size / 32), 128)).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from minik8s_modules.api.network.load_balancers import NODE_PORTS

_FOR_PEOPLE = 86


def candidates(cidr: ipaddress.IPv4Network) -> Iterator[str]:
    """Yield the addresses to give out, in order."""
    hosts = cidr.hosts()
    next(hosts)
    yield from map(str, hosts)
    yield str(cidr.network_address)


def port_candidates() -> Iterator[int]:
    """Yield the node ports to give out, in order."""
    yield from NODE_PORTS[_FOR_PEOPLE:]
    yield from NODE_PORTS[:_FOR_PEOPLE]
