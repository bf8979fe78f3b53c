"""Why a node, its Lease, its range of addresses or a namespace is not as it should be."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEASE, NODE, POD, POD_DISRUPTION_BUDGET
from minik8s_modules.api.nodes.clocks import node_ahead, renewer_ahead
from minik8s_modules.api.nodes.counted_devices import MISSING as DEVICES_MISSING
from minik8s_modules.api.nodes.leaving import DEPARTED, leaving
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import UNAVAILABLE as SLURM_UNAVAILABLE
from minik8s_modules.api.selectors import from_label_selector
from minik8s_modules.cli.causes.faults import Fault, kubectl, moment, unrecovered, why
from minik8s_modules.cli.causes.surroundings import Around

NODE_LEASES = "kube-node-lease"
SKEW = timedelta(seconds=10)
"""Leases are renewed every 10 s and judged by their age: a clock that is further off than this makes them wrong."""
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", SLURM_UNAVAILABLE, DEVICES_MISSING)


def node_faults(node: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a node is not as it should be."""
    name = objects.name(node)
    if leaving(node) == DEPARTED:
        yield Fault("it has departed: the machine is no longer managed", f"minik8s node remove {name}")
        return
    lease = around.get(LEASE, name, NODE_LEASES)
    if lease is not None:
        yield from _own_clock(node, lease)
        yield from _clock(lease, around)
    yield from _ready(node)
    for kind in _PRESSURES:
        condition = objects.condition(node, kind) or {}
        if condition.get("status") == "True":
            text = f"{kind}: {condition.get('reason', '')}: {condition.get('message', '')}"
            yield Fault(text, f"kubectl describe node {name}")
    yield from unrecovered(around.events(node), around.now)
    if objects.spec(node).get("unschedulable"):
        yield from _cordoned(node, around)


def _ready(node: JsonObject) -> Iterator[Fault]:
    name, ready = objects.name(node), objects.condition(node, "Ready")
    if ready is None:
        text = "it has not reported yet: no reconciler or no gateway attends it"
        yield Fault(text, "kubectl -n kube-system get leases")
    elif ready.get("status") != "True" and is_virtual(node):
        silent = objects.condition(node, SLURM_UNAVAILABLE) or {}
        if ready.get("status") == "False" and silent.get("status") == "True":
            return  # its process runs, and says by that condition why Slurm has never answered
        carried = "is the process that carries it running (minik8s-virtual), and does its provider answer?"
        said = str(ready.get("message", "")).rstrip(".")
        text = f"it is not ready: {ready.get('reason', '')}: {said}. It is a virtual node: {carried}"
        yield Fault(text, f"kubectl -n {NODE_LEASES} get lease {name} -o yaml")
    elif ready.get("status") != "True":
        text = f"it is not ready: {ready.get('reason', '')}: {ready.get('message', '')}"
        yield Fault(text, f"minik8s drift {name}")  # it says what ssh and the node's modules say


def off(ahead: timedelta) -> str:
    """Return how far a clock is off: ``120 s ahead of``, ``120 s behind``."""
    seconds = int(abs(ahead).total_seconds())
    return f"{seconds} s {'ahead of' if ahead > timedelta(0) else 'behind'}"


def _own_clock(node: JsonObject, lease: JsonObject) -> Iterator[Fault]:
    """Yield that a node's own clock is off, as the gateway has seen it."""
    if abs(node_ahead(lease)) > SKEW:
        told = objects.status(node).get("addresses") or []
        addresses = {one.get("type"): one.get("address") for one in reversed(told)}
        reached = str(addresses.get("InternalIP") or objects.name(node))
        text = f"its clock is {off(node_ahead(lease))} that of the machine whose gateway watches it"
        yield Fault(text, f"date -u; {shlex.join(['ssh', reached, 'date -u'])}")


def _clock(lease: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that who renews a Lease has another time than the API server."""
    renewed, ahead = moment(objects.spec(lease).get("renewTime")), renewer_ahead(lease)
    if ahead is None and renewed is not None:
        ahead = max(renewed - around.now, timedelta(0))  # one that is behind looks like one that is not renewed
    if ahead is not None and abs(ahead) > SKEW:
        text = f"the clock of the machine that renews Lease {objects.key(lease)}"
        holder = objects.spec(lease).get("holderIdentity") or "nobody"
        whose = text if objects.namespace(lease) == NODE_LEASES else f"{text} ({holder})"
        yield Fault(f"{whose} is {off(ahead)} the API server's", "date -u; timedatectl status")


def _cordoned(node: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that a node takes no new pods, and whose budget holds the pods that must go."""
    name, asked = objects.name(node), leaving(node)
    pods = around.all(POD, fields=f"spec.nodeName={name}") if asked else []
    for pod in pods:
        budget = _budget_of(pod, around)
        if budget is not None:
            text = f"it is leaving, and pod {objects.key(pod)} may not be evicted by PodDisruptionBudget"
            lead = why(POD_DISRUPTION_BUDGET, objects.name(budget), objects.namespace(budget))
            yield Fault(f"{text} {objects.name(budget)}", lead)
            return
    yield Fault("it is leaving" if asked else "it is cordoned: it takes no new pods", f"kubectl uncordon {name}")


def _budget_of(pod: JsonObject, around: Around) -> JsonObject | None:
    """Return the budget that keeps a pod from being evicted now."""
    for budget in around.all(POD_DISRUPTION_BUDGET, objects.namespace(pod)):
        selector = from_label_selector(objects.spec(budget).get("selector"))
        if selector.matches(objects.labels(pod)) and not objects.status(budget).get("disruptionsAllowed"):
            return budget
    return None


def lease_faults(lease: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that nobody renews a Lease."""
    yield from _clock(lease, around)
    spec, renewed = objects.spec(lease), moment(objects.spec(lease).get("renewTime"))
    if not spec.get("holderIdentity"):
        yield Fault("it has no holder", kubectl(objects.namespace(lease), "describe", "lease", objects.name(lease)))
    elif renewed is not None:
        over = around.now - renewed - timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
        if over > timedelta(0):
            text = f"{spec['holderIdentity']} has not renewed it since {spec['renewTime']}"
            here = objects.namespace(lease) == NODE_LEASES
            lead = why(NODE, objects.name(lease)) if here else kubectl("kube-system", "get", "leases")
            yield Fault(text, lead)


def range_faults(claim: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that the range of a PodCIDR is kept for a node that is gone."""
    status, spec = objects.status(claim), objects.spec(claim)
    if status.get("phase") == "Quarantined":
        yield Fault(f"Quarantined: {status.get('message', '')}", f"kubectl describe podcidr {objects.name(claim)}")
    elif spec.get("nodeName") and around.lacks(NODE, str(spec["nodeName"])):
        yield Fault(f"node {spec['nodeName']} does not exist (any more)", "kubectl get nodes")


def address_faults(address: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that the pod of a PodAddress is gone."""
    spec = objects.spec(address)
    pod = around.get(POD, str(spec.get("podName")), str(spec.get("podNamespace")))
    there = pod is not None and objects.uid(pod) == spec.get("podUID")
    if not there and (pod is not None or around.lacks(POD, str(spec.get("podName")), str(spec.get("podNamespace")))):
        text = f"pod {spec.get('podNamespace')}/{spec.get('podName')}, which held it, is gone"
        yield Fault(text, f"minik8s drift {spec.get('nodeName')}")


def namespace_faults(namespace: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what keeps a namespace that is to be deleted."""
    name = objects.name(namespace)
    if not objects.is_deleting(namespace):
        return
    held = [one for one in objects.status(namespace).get("conditions") or [] if one.get("status") == "True"]
    text = "; ".join(f"{one['type']}: {one.get('message', '')}" for one in reversed(held))
    yield Fault(text or "it is being deleted", _rest(name))
    _ = around


def _rest(name: str) -> str:
    return f"kubectl -n {name} get all,configmaps,secrets,persistentvolumeclaims"
