"""Node objects of the inventory's hosts: registration from facts, the Ready condition. Pure.

``registration.py`` carries it out. A node keeps its name and podCIDR for life: both stand in its object,
which outlives every process of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.network.surroundings import SILENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.quantities import format_bytes
from minik8s_modules.reconcile.values.node_file import Declared

MAX_PODS = 110
"""kubelet's default of maxPods."""
_MOST_SAID = 300
"""Of what ssh or Docker said, in a condition."""
_LABELS = {
    "kubernetes.io/hostname": "name",
    "kubernetes.io/os": "operating_system",
    "kubernetes.io/arch": "architecture",
}
_INFO = {
    "machineID": "machine_id",
    "systemUUID": "machine_id",
    "bootID": "boot_id",
    "kernelVersion": "kernel_version",
    "osImage": "os_image",
    "containerRuntimeVersion": "container_runtime_version",
    "operatingSystem": "operating_system",
    "architecture": "architecture",
}


def node_object(name: str, facts: Mapping[str, Any], ranges: Sequence[str]) -> JsonObject:
    """Return the Node to create for a host; without a range where the controllers give it one."""
    spec: JsonObject = {"podCIDR": ranges[0], "podCIDRs": [*ranges]} if ranges else {}
    meta = {"name": name, "labels": labels(name, facts)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def declared(node: JsonObject, said: Declared) -> JsonObject:
    """Return the Node to create with what is declared of it: its file's labels win over its machine's."""
    meta, spec = dict(node["metadata"]), dict(node["spec"])
    meta["labels"] = {**meta["labels"], **said.labels}
    if said.annotations:
        meta["annotations"] = dict(said.annotations)
    if said.taints:
        spec["taints"] = [dict(taint) for taint in said.taints]
    if said.unschedulable:
        spec["unschedulable"] = True
    return {**node, "metadata": meta, "spec": spec}


def addresses(known: Iterable[JsonObject], said: Iterable[JsonObject], *, ipv6_first: bool = False) -> list[JsonObject]:
    """Return the addresses of a node: those declared, and of other types and families what its machine tells.

    Of a type, those of IPv4 come first, unless pods have none: the first is what a node is known by.
    """
    said = [dict(one) for one in said]
    types = {(one["type"], _is_ipv6(one)) for one in said}
    found = [*said, *(one for one in known if (one["type"], _is_ipv6(one)) not in types)]
    order = list(dict.fromkeys(one["type"] for one in found))
    return sorted(found, key=lambda one: (order.index(one["type"]), _is_ipv6(one) != ipv6_first))


def _is_ipv6(address: JsonObject) -> bool:
    return ":" in str(address["address"])


def endpoints(status: JsonObject, kubelet_port: int) -> JsonObject:
    """Return what a node's status is to say of its kubelet's port, None for it where it says what is no more."""
    if kubelet_port:
        return {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}
    return {"daemonEndpoints": None} if status.get("daemonEndpoints") else {}


def labels(name: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels kubelet gives a node."""
    known = {**facts, "name": name}
    return {label: str(known.get(fact) or "") for label, fact in _LABELS.items()}


def status_from_facts(
    name: str,
    facts: Mapping[str, Any],
    version: str,
    before: Iterable[JsonObject] = (),
    *,
    ipv6: bool = False,
    ipv6_first: bool = False,
) -> JsonObject:
    """Return the part of ``status`` that comes from facts: addresses, capacity, allocatable, nodeInfo.

    ``ipv6``: whether the cluster goes by the nodes' IPv6 addresses, too; as kubelet has it, that of IPv4 is the first,
    unless pods have none of IPv4 (``ipv6_first``).
    It is kept from ``before`` where the machine has none now, as while a router is silent: without it, the node would
    have no tunnels.
    """
    capacity = {
        "cpu": str(facts.get("cpus") or 1),
        "memory": f"{int(facts.get('memory_bytes') or 0) // 1024}Ki",
        "pods": str(MAX_PODS),
        # where containers and volumes write
        **({"ephemeral-storage": f"{int(disk) // 1024}Ki"} if (disk := facts.get("disk_bytes")) else {}),
        **{
            f"{huge_pages.PREFIX}{format_bytes(int(page))}": format_bytes(int(size))
            for page, size in (facts.get("huge_pages") or {}).items()
        },
    }
    info = {field: str(facts.get(fact) or "") for field, fact in _INFO.items()}
    info |= {"kubeletVersion": version, "kubeProxyVersion": version}
    known = (str(one["address"]) for one in before if one.get("type") == "InternalIP" and _is_ipv6(one))
    own = [facts.get("internal_ip"), (facts.get("internal_ipv6") or next(known, "")) if ipv6 else ""]
    addresses = [{"type": "InternalIP", "address": str(one)} for one in (own[::-1] if ipv6_first else own) if one]
    addresses.append({"type": "Hostname", "address": name})
    return {"addresses": addresses, "capacity": capacity, "allocatable": capacity, "nodeInfo": info}


def extended_resources(
    node: JsonObject, wanted: JsonObject, devices: Mapping[str, str] = MappingProxyType({}), counted: Iterable[str] = ()
) -> JsonObject:
    """Return capacity and allocatable with what people have put into the capacity: ``example.com/dongle: "2"``.

    ``devices`` are the node's own amounts, and ``counted`` all resources that are, or were, its own to say.

    Source: https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/; kubelet makes it allocatable.
    """
    before = objects.status(node)
    own = frozenset(counted)
    theirs = {name: amount for name, amount in (before.get("capacity") or {}).items() if "/" in name}
    extended = {name: amount for name, amount in theirs.items() if name not in own} | dict(devices)
    if not extended and not any("/" in name for name in before.get("allocatable") or {}):
        return {}
    known = {side: wanted.get(side) or before.get(side) or {} for side in ("capacity", "allocatable")}
    bare = {side: {key: value for key, value in found.items() if "/" not in key} for side, found in known.items()}
    return {side: {**found, **extended} for side, found in bare.items()}


def _unanswered(why: str) -> str:
    error = " ".join(why.split())[-_MOST_SAID:]  # ssh says last what counts
    return f"Docker on this node does not answer{f' ({error})' if error else ''}; the node is left as it is"


def with_silence(conditions: list[JsonObject], *, silent: bool, now: str) -> list[JsonObject]:
    """Return a node's conditions with whether it has missed its last heartbeats; one that never has says nothing."""
    before = next((one for one in conditions if one.get("type") == SILENT), None)
    status = "True" if silent else "False"
    if (before is None and not silent) or (before is not None and before.get("status") == status):
        return conditions
    reason, message = ("NoHeartbeat", "other nodes announce its addresses") if silent else ("Heartbeat", "it answers")
    condition = {"type": SILENT, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
    return [*(one for one in conditions if one is not before), condition]


def conditions(node: JsonObject, *, alive: bool, now: str, silence: str = "") -> list[JsonObject]:
    """Return the node's conditions with Ready as ``alive`` says, and why in ``silence``; others stay as they are."""
    before = objects.condition(node, "Ready")
    state = "True" if alive else "Unknown"
    kept = before is not None and before.get("status") == state
    ready = {
        "type": "Ready",
        "status": state,
        "reason": "NodeReady" if alive else "NodeStatusUnknown",
        "message": "Docker answers" if alive else _unanswered(silence),
        "lastHeartbeatTime": (before or {}).get("lastHeartbeatTime") or now if kept else now,
        "lastTransitionTime": (before or {}).get("lastTransitionTime") or now if kept else now,
    }
    others = [one for one in objects.status(node).get("conditions") or [] if one.get("type") != "Ready"]
    return [*others, ready]
