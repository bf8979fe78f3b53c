"""Entries of the section ``sidecars``, key ``<pod uid>``."""

from typing import Annotated, TypedDict

from ..core.schema import Default


class _RequiredSidecar(TypedDict):
    attempt: int
    """Attempt of the sandbox in whose network the rules are. Where it does not run, the key has the error
    C(SandboxMissing)."""


class SidecarEntry(_RequiredSidecar, total=False):
    """The rules that lead a pod's TCP connections to its sidecar."""

    node_addresses: Annotated[list[str], Default(())]
    """Addresses of the node: what comes from them is not led to the sidecar. Those of IPv6 need C(mutual_tls), without
    which no rule is about IPv6."""
    exclude_inbound_ports: Annotated[list[int], Default(())]
    """The pod's ports whose connections from outside are not led to the sidecar."""
    exclude_outbound_ports: Annotated[list[int], Default(())]
    """Ports to which the pod's connections are not led to the sidecar."""
    exclude_outbound_ranges: Annotated[list[str], Default(())]
    """Ranges of addresses (CIDR) to which the pod's connections are not led to the sidecar."""
    mutual_tls: Annotated[bool, Default(False)]
    """Whether what comes in is led to the port that the sidecar opens when a pilot has told it how to take TLS; also by
    IPv6, which otherwise goes past the sidecar."""
