"""Entries of the section ``ingress``: ``_server``, one for each host, and one for each health check of a Service."""

from typing import Annotated, TypedDict

from ..core.schema import Default


class _RequiredIngressServer(TypedDict):
    http_port: int
    """Port of plain HTTP."""
    https_port: int
    """Port of HTTPS."""


class IngressServerEntry(_RequiredIngressServer, total=False):
    """Where the node's nginx listens."""

    ipv6: bool
    """Whether it listens at the node's IPv6 addresses, too."""


class IngressEntry(TypedDict):
    """A host; the key C(_) is for all requests that name no other one."""

    config: str
    """Server blocks of nginx, as C(templates/ingress_host.conf.j2) makes them."""
    secrets: dict[str, str]
    """HMACs of the Secrets with the host's certificates, by C(<namespace>/<name>), so that a new certificate is a
    changed entry."""


class _RequiredHealth(TypedDict):
    port: int
    """Port of every IPv4 address of the node that answers: 200 with endpoints, 503 without; always with their number,
    in the body and in the header C(X-Load-Balancing-Endpoint-Weight)."""
    endpoints: int
    """Ready endpoints of the Service on this node."""


class IngressHealthEntry(_RequiredHealth, total=False):
    """What load balancers outside ask a node: whether it has ready Pods of a Service (C(healthCheckNodePort))."""

    ipv6: Annotated[bool, Default(False)]
    """Whether the port answers at every IPv6 address of the node, too, if its kernel has IPv6."""
