"""Who has which range of pod addresses: one PodCIDR object a range, named by it, so that creating it is the claim.

A range is free when no PodCIDR has it and no Node says it does. The claim outlives its Node: a machine that has left
may still run containers with the addresses, so the range is quarantined until the claim is deleted by somebody who
knows that the machine is clean. A node that comes back by its name gets its range back. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD_CIDR
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError

NODE_PREFIX, NODE_PREFIX_IPV6 = 24, 64
ASSIGNED, QUARANTINED = "Assigned", "Quarantined"


class NoCidrLeft(Minik8sError):
    """The cluster CIDR has no free block for another node."""


class Choice(NamedTuple):
    """A node's range; ``claimed`` when a PodCIDR says so already."""

    cidr: str
    claimed: bool


def choose(
    cluster_cidr: str,
    node: str,
    nodes: Iterable[JsonObject],
    claims: Iterable[JsonObject],
    refused: Iterable[str] = (),
) -> Choice:
    """Return the range of ``node``: what it has, what is claimed for it, else the lowest that is free.

    Args:
        cluster_cidr: of all pods.
        node: the name.
        nodes: all Nodes there are.
        claims: all PodCIDRs there are.
        refused: ranges that could not be claimed although they looked free.

    Raises:
        NoCidrLeft: every block is taken.
    """
    by_cidr = {str(objects.spec(each).get("cidr")): str(objects.spec(each).get("nodeName")) for each in claims}
    owned = {objects.name(each): str(objects.spec(each).get("podCIDR") or "") for each in nodes}
    if mine := owned.get(node):
        return Choice(mine, by_cidr.get(mine) == node)
    others = {cidr for name, cidr in owned.items() if cidr and name != node}
    kept = sorted(cidr for cidr, holder in by_cidr.items() if holder == node and cidr not in others)
    if kept:
        return Choice(kept[0], claimed=True)
    return Choice(free_cidr(cluster_cidr, {*others, *by_cidr, *refused}), claimed=False)


def free_cidr(cluster_cidr: str, taken: Iterable[str]) -> str:
    """Return the lowest /24 (of IPv6, /64) of ``cluster_cidr`` that overlaps none of ``taken``.

    Raises:
        NoCidrLeft: every block is taken.
    """
    cluster = ipaddress.ip_network(cluster_cidr)
    prefix = NODE_PREFIX_IPV6 if isinstance(cluster, ipaddress.IPv6Network) else NODE_PREFIX
    used = [ipaddress.ip_network(one) for one in taken]
    for block in cluster.subnets(new_prefix=max(prefix, cluster.prefixlen)):
        if not any(block.overlaps(one) for one in used):
            return str(block)
    raise NoCidrLeft(
        f"no free /{prefix} in {cluster_cidr}; enlarge minik8s_cluster_cidr, "
        "or free the ranges of machines that have left: kubectl get podcidrs"
    )


def claim_of(cidr: str, node: str) -> JsonObject:
    """Return the PodCIDR to create for the range of a node."""
    return {
        "apiVersion": POD_CIDR.api_version,
        "kind": POD_CIDR.kind,
        "metadata": {"name": claim_name(cidr)},
        "spec": {"cidr": cidr, "nodeName": node},
    }


def claim_name(cidr: str) -> str:
    """Return the name of the claim of a range."""
    return cidr.replace("/", "-")
