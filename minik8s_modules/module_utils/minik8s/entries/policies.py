"""Entries of the section ``policies``: ``filter``, one for each NetworkPolicy, and one for each Pod they tell of."""

from typing import Annotated, Any, Optional, TypedDict

from ..core.schema import Default


class _RequiredFilter(TypedDict):
    table: str
    """Name of our table of nftables."""
    bridge: str
    """The node's bridge. Packets between its Pods are shown to the rules."""
    driver: str
    """Who attaches Pods. With V(bridge) and V(vxlan) policies hold; with any other the entry has the error
    C(PolicyNotEnforced)."""


class FilterEntry(_RequiredFilter, total=False):
    """How the node realizes NetworkPolicies."""

    required: Annotated[bool, Default(True)]
    """Whether a Pod that policies isolate waits where its rules cannot be made; else it starts without them."""
    ipv6: Annotated[bool, Default(False)]
    """Whether Pods have IPv6 addresses. Those have a table of IPv6, of the same name."""


class PolicyEntry(TypedDict):
    """What one NetworkPolicy allows. A direction is a list of rules; null: the policy does not speak of it.

    A rule has C(peers) (null: everybody; else C(groups), names of groups of Pods, and C(blocks), rows of a range and
    the ranges excepted from it) and C(ports) (null: all; else rows of protocol, first and last port, 0 and 0 for all
    of the protocol, or of protocol and name of a port).
    """

    ingress: Optional[list[dict[str, Any]]]
    """Rules for what comes to the Pods it selects."""
    egress: Optional[list[dict[str, Any]]]
    """Rules for what those Pods send."""


class _RequiredPolicyPod(TypedDict):
    address: str
    """Its IPv4 address; empty where it has an IPv6 address alone."""
    groups: list[str]
    """The groups of the policies' peers that it belongs to."""
    ports: list[list[Any]]
    """Its named ports that policies name, as rows of protocol, name and number."""
    ingress: Optional[list[str]]
    """Keys of the policies that decide who reaches it; null: it is not isolated, or on another node."""
    egress: Optional[list[str]]
    """The same for what it sends."""


class PolicyPodEntry(_RequiredPolicyPod, total=False):
    """A Pod that policies tell of: one of this node that they select, or a peer anywhere in the cluster."""

    address_ipv6: Annotated[str, Default("")]
    """Its IPv6 address; empty for none."""
