"""Which nodes have a reconciler of their own (reconcile/standalone): those whose shard has a held Lease.

A node's own reconciler that was killed still holds its Lease, and gets the node back when it is started again; only a
clean leave, or somebody who deletes the Lease ``kube-system/minik8s-reconciler-node.NAME``, gives the node to others.
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

NAMESPACE, PREFIX = "kube-system", "minik8s-reconciler-node."


def served_alone(leases: Iterable[JsonObject]) -> frozenset[str]:
    """Return the nodes that reconcile themselves, by the Leases of kube-system."""
    return frozenset(
        objects.name(lease).removeprefix(PREFIX)
        for lease in leases
        if objects.name(lease).startswith(PREFIX) and objects.spec(lease).get("holderIdentity")
    )
