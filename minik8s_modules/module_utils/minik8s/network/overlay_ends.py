"""What a declared end of a tunnel may be: the address of its machine, and the range of the pods behind it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any, Union

from ..core.faults import KeyFault

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def check_address(where: str, text: Any) -> None:
    """Raise KeyFault for what is no machine's address, or not as the kernel writes it."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    # the kernel writes some otherwise than Python (::192.0.2.7), and none with a zone
    written = socket.inet_ntop(socket.AF_INET6 if found.version == 6 else socket.AF_INET, found.packed)  # noqa: PLR2004
    if not (str(found) == written == text) or (
        ":" in text and (found.is_link_local or found.is_multicast or found.is_unspecified)
    ):
        raise KeyFault("InvalidEntry", f"{where}: {text!r} is not an address of one machine, in its shortest form")


def peer_range(where: str, text: str, cluster_cidr: str, taken: Mapping[str, Network]) -> Network:
    """Return the range of a peer's pods; raise KeyFault for one that is not in the cluster's, or another's."""
    if not cluster_cidr:
        raise KeyFault("InvalidEntry", f"{where} {text!r} is of a family that pods have no addresses of")
    cluster = ipaddress.ip_network(cluster_cidr)
    try:
        cidr = type(cluster)(text)
    except ValueError as error:
        raise KeyFault("InvalidEntry", f"{where}: {error}") from None
    if not cidr.subnet_of(cluster):  # type: ignore[arg-type]  # both are of the same class
        raise KeyFault("InvalidEntry", f"{where} {cidr} is not in {cluster}")
    for other, range_ in taken.items():
        if cidr.overlaps(range_):
            raise KeyFault("InvalidEntry", f"{where} {cidr} overlaps {range_} of {other}")
    return cidr
