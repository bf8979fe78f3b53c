"""Entries of the section ``dns``: ``server``, and names of services and hosts."""

from typing import Annotated, Any, TypedDict

from ..core.schema import Default


class _RequiredDnsServer(TypedDict):
    listen: str
    """Address that the server answers at; the device C(lo) gets it."""
    port: int
    """Port."""
    domain: str
    """The cluster's domain, such as V(cluster.local)."""
    forward: list[str]
    """Servers asked for all other names; without one, those that the node's own resolv.conf asks."""


class DnsServerEntry(_RequiredDnsServer, total=False):
    """How names are served."""

    host_resolver: Annotated[bool, Default(False)]
    """Whether the node's own resolv.conf asks this server."""


class DnsEntry(TypedDict, total=False):
    """Names of a service or a host."""

    records: list[list[Any]]
    """Records below the domain, as rows of name, V(A), V(AAAA) or V(CNAME), and value, or of name, V(SRV), port and
    target."""
    pointers: list[list[str]]
    """Names of addresses, as rows of address and name below the domain."""
    names: list[list[str]]
    """Absolute names, as rows of address and name."""
