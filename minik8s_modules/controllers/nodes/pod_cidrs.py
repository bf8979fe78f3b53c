"""Keeps the claims of pod ranges: given to nodes that lack one, quarantined when a node is gone.

A PodCIDR is deleted by whoever knows that the machine runs nothing with addresses of the range any more
(``playbooks/node_remove.yml``, or an administrator). Until then nobody else gets it, whatever process dies: the claim
is the memory. Once it is deleted, what else was kept of the node goes: the PodAddresses of its pods and its Lease.
A virtual node has no machine that could still use its range: its claim says what the Node is, and goes with it.
Keys are names of nodes. The allocator itself is ``api/nodes/pod_cidrs.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import LEASE, NODE, POD_ADDRESS, POD_CIDR
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.nodes.pod_cidrs import ASSIGNED, QUARANTINED, claim_name, claim_of
from minik8s_modules.api.nodes.virtual_nodes import TYPE, is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.controllers.core.steps import Again, Create, Delete, RecordEvent, Step, WriteStatus
from minik8s_modules.controllers.core.taking import take_all
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_NODE
from minik8s_modules.runtime.pod_cidrs import claim_cidr

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
FRESH_S = 60.0  # a claim comes before its Node; registering takes one more request


class NodeRanges(NamedTuple):
    """What there is of one node.

    Attributes:
        node: None when it is gone.
        claims: the PodCIDRs that name it.
        holder: the PodCIDR of the range its Node has, whoever that names.
        addresses: the PodAddresses that name it.
        lease: its Lease.
        ipv6: the range of IPv6 that belongs to the one its Node has, "" for none.
    """

    node: JsonObject | None
    claims: Sequence[JsonObject] = ()
    holder: JsonObject | None = None
    addresses: Sequence[JsonObject] = ()
    lease: JsonObject | None = None
    ipv6: str = ""


def decide_pod_cidrs(name: str, found: NodeRanges, now: datetime) -> list[Step]:
    """Return what becomes of the claims of the node ``name``, and of what else was kept of it."""
    if found.node is not None:
        return _of_a_node(found.node, found)
    if found.claims:
        return [step for claim in found.claims for step in _without_node(claim, name, now)]
    rest: list[Step] = [Delete(POD_ADDRESS, each) for each in found.addresses]
    return [*rest, *([Delete(LEASE, found.lease)] if found.lease is not None else [])]


def _of_a_node(node: JsonObject, found: NodeRanges) -> list[Step]:
    name, cidr = objects.name(node), str(objects.spec(node).get("podCIDR") or "")
    if not cidr:
        return []
    steps: list[Step] = []
    if found.holder is None:
        steps.append(Create(POD_CIDR, _claim_for(node, cidr)))
    elif objects.spec(found.holder).get("nodeName") != name:
        other = objects.spec(found.holder).get("nodeName")
        text = f"its range {cidr} is claimed for node {other}: remove and add one of the two nodes"
        steps.append(RecordEvent(node, "Warning", "CIDRNotAvailable", text))
    for claim in found.claims:
        steps += _claimed(claim, cidr, name)
    return [*steps, *_of_ipv6(node, found.ipv6)]


def _of_ipv6(node: JsonObject, wanted: str) -> list[Step]:
    """Tell of a range of IPv6 that somebody gave the node, and that its pods have no addresses of."""
    given = objects.spec(node).get("podCIDRs") or []
    other = next((str(each) for each in given[1:] if each != wanted), "")
    if not other or is_virtual(node):
        return []
    why = f"those of its Pods are of {wanted}, which goes by its podCIDR" if wanted else "Pods have none of IPv6"
    return [RecordEvent(node, "Warning", "CIDRNotAvailable", f"nobody gets addresses of its range {other}: {why}")]


def _claim_for(node: JsonObject, cidr: str) -> JsonObject:
    claim = claim_of(cidr, objects.name(node))
    if is_virtual(node):
        claim["metadata"]["labels"] = {TYPE: objects.labels(node)[TYPE]}
    return claim


def _claimed(claim: JsonObject, cidr: str, node: str) -> list[Step]:
    if objects.spec(claim).get("cidr") == cidr:
        return _in_phase(claim, ASSIGNED, "")
    if not objects.status(claim).get("phase"):
        return [Delete(POD_CIDR, claim)]  # of two that were claimed at a time, the Node has the other one
    text = f"node {node} has another range now; containers with addresses from this range may still run on its machine"
    return _in_phase(claim, QUARANTINED, text)


def _without_node(claim: JsonObject, node: str, now: datetime) -> list[Step]:
    if is_virtual(claim):
        return [Delete(POD_CIDR, claim)]
    made = str((claim.get("metadata") or {}).get("creationTimestamp") or "")
    age_s = (now - parse_rfc3339(made)).total_seconds() if made else FRESH_S
    if not objects.status(claim).get("phase") and age_s < FRESH_S:
        return [Again(FRESH_S - age_s)]
    text = (
        f"node {node} is gone, and its machine may still run containers with these addresses. "
        f"Clean it (playbooks/node_remove.yml), or, if it is clean: kubectl delete podcidr {objects.name(claim)}"
    )
    return _in_phase(claim, QUARANTINED, text)


def _in_phase(claim: JsonObject, phase: str, message: str) -> list[Step]:
    status = {"phase": phase, **({"message": message} if message else {})}
    return [] if objects.status(claim) == status else [WriteStatus(POD_CIDR, claim, status)]


class PodCidrController(Looping):
    """Keeps the claims; gives ranges of ``cluster_cidr`` to Nodes that lack one, where it is not empty."""

    def __init__(self, context: Context, cluster_cidr: str = "", dual_stack: DualStack = SINGLE_STACK) -> None:
        self._dual_stack = dual_stack
        self._context = context
        self._cluster_cidr = cluster_cidr
        self._loop = Loop(context, "pod-cidrs", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, _node_key)
        self._claims = self._loop.watch(POD_CIDR, _claim_key, BY_NODE)
        self._addresses = self._loop.watch(POD_ADDRESS, self._address_key, BY_NODE)

    def sync(self, key: Key) -> None:
        """Look at one node.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
            NoCidrLeft: there is no range left for it.
        """
        node = self._nodes.get("", key.name)
        if node is None and self._exists(key.name):
            return  # its event is on the way
        if node is not None and self._cluster_cidr and not objects.spec(node).get("podCIDR"):
            if not is_virtual(node):  # one that wants a range says which
                self._give(node)
            return
        steps = decide_pod_cidrs(key.name, self._found(key.name, node), self._context.clock.now())
        for step in steps:
            if isinstance(step, Again):
                self._loop.add_after(key, step.after_s)
        take_all(self._context, [step for step in steps if not isinstance(step, Again)])

    def _found(self, name: str, node: JsonObject | None) -> NodeRanges:
        cidr = str(objects.spec(node).get("podCIDR") or "") if node is not None else ""
        return NodeRanges(
            node,
            self._claims.by_index(BY_NODE, name),
            self._claims.get("", claim_name(cidr)) if cidr else None,
            self._addresses.by_index(BY_NODE, name) if node is None else (),
            self._lease(name) if node is None else None,
            self._dual_stack.range_of(cidr),
        )

    def _give(self, node: JsonObject) -> None:
        name = objects.name(node)
        cidr = claim_cidr(self._context.client, self._cluster_cidr, name)
        ranges = {"podCIDR": cidr, "podCIDRs": self._dual_stack.ranges_of(cidr)}
        body = {"metadata": {"uid": objects.uid(node)}, "spec": ranges}
        try:
            self._context.client.patch(NODE, name, "", body)
        except NotFound:
            return
        log.info("node %s has the pod CIDR %s", name, cidr)

    def _exists(self, name: str) -> bool:
        try:
            self._context.client.get(NODE, name)
        except NotFound:
            return False
        return True

    def _lease(self, name: str) -> JsonObject | None:
        try:
            return self._context.client.get(LEASE, name, LEASE_NAMESPACE)
        except NotFound:
            return None

    def _address_key(self, _old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        name = str(objects.spec(new).get("nodeName") or "") if new is not None else ""
        return [Key("", name)] if name and self._nodes.get("", name) is None else []


def _node_key(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the node's key when it came, went, or has another range: heartbeats are nothing to look at."""
    before, after = (objects.spec(each).get("podCIDR") if each is not None else "gone" for each in (old, new))
    about = new if new is not None else old
    return [objects.key(about)] if about is not None and (before != after or old is None) else []


def _claim_key(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    about = new if new is not None else old
    return [Key("", str(objects.spec(about or {}).get("nodeName") or ""))]
