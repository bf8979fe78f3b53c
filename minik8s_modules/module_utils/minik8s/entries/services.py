"""Entries of the section ``services``: ``dataplane``, and one for each port of a Service."""

from typing import Annotated, Any, Literal, TypedDict

from ..core.schema import Default


class _RequiredIpv6(TypedDict):
    service_cidr: str
    """Range of service addresses."""
    cluster_cidr: str
    """Range of all pods of the cluster."""
    pod_cidr: str
    """Range of this node's pods."""
    gateway: str
    """Address of the bridge."""


class DataplaneIpv6(_RequiredIpv6, total=False):
    """Services with addresses of IPv6."""

    node_ip: str
    """The node's own address; left out where it has none."""


class _RequiredDataplane(TypedDict):
    mode: str
    """V(nftables) or V(ipvs)."""
    table: str
    """Name of our table of nftables."""
    service_cidr: str
    """Range of service addresses; empty, with the other ranges and C(gateway), where services have IPv6 alone."""
    cluster_cidr: str
    """Range of all pods of the cluster."""
    pod_cidr: str
    """Range of this node's pods."""
    bridge: str
    """The node's bridge."""
    gateway: str
    """Address of the bridge."""
    node_ip: str
    """The node's own address; empty where it is not known."""


class DataplaneEntry(_RequiredDataplane, total=False):
    """How the node realizes services."""

    overlay: str
    """Device of tunnels to other nodes' pods, with V(nftables): node ports at 127.0.0.1 lead there, too."""

    ipv6: DataplaneIpv6
    """The same for addresses of IPv6; left out where services have none."""


class _RequiredService(TypedDict):
    protocol: Literal["TCP", "UDP", "SCTP"]
    """Protocol; V(SCTP) where the kernel follows connections of it (C(CONFIG_NF_CT_PROTO_SCTP))."""
    address: str
    """Address of the service, of IPv4 or of IPv6; its endpoints are of the same family. Of entries with the same
    address and port, or node port, the first by key has it."""
    port: int
    """Port at that address."""
    endpoints: list[list[Any]]
    """Where connections go, as rows of address and port. Without one they are refused at once."""


class ServiceEntry(_RequiredService, total=False):
    """One port of a Service; the key ends with the port's name or number, and C(/IPv6) where the address is of it."""

    node_port: Annotated[int, Default(0)]
    """Port of every address of the node that leads there as well; 0 for none."""
    outside: list[str]
    """Addresses beyond the cluster at which the port leads there as well, of the same family as C(address): of a load
    balancer, C(externalIPs)."""
    announced: dict[str, str]
    """Those of C(outside) that a node answers for, each with that node; empty while there is none. The node has the
    address on the device of its own, and refuses what comes there for no service."""
    at_nodes: Annotated[bool, Default(False)]
    """Whether the port leads there at the node's own address, too."""
    sources: list[str]
    """Ranges that connections to C(outside), and to the node's own address, may come from, of the family of C(address);
    left out for all, empty for none."""
    node_endpoints: list[list[Any]]
    """Where connections from outside go: to the node port, C(outside), the node's own address. Left out where they are
    C(endpoints)."""
    keep_source: Annotated[bool, Default(False)]
    """Whether the client's address stays on connections from outside (C(externalTrafficPolicy: Local)). Clients in
    the cluster and on the node then have all C(endpoints), except with ipvs, which cannot tell clients apart."""
    affinity_s: Annotated[int, Default(0)]
    """Seconds that a client stays with its endpoint, up to a day; 0 for no affinity."""
