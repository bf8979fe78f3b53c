"""The Node of a virtual node as it is first registered. Pure. Source: virtual-kubelet ``nodeutil.NewNode``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import minik8s_modules
from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

TAINT = "virtual-kubelet.io/provider"
TYPE_LABEL, TYPE = "type", "virtual-kubelet"
_CONDITIONS = (
    ("Ready", "True", "KubeletReady", "the provider answers"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("NetworkUnavailable", "False", "RouteCreated", "the provider has the network"),
)


class Wishes(NamedTuple):
    """What the command line or file says of a node.

    Attributes:
        name: of the Node.
        provider: its name, the taint's value.
        labels: beside the usual ones; an empty value takes a usual one away.
        taint: whether ordinary Pods are kept away.
        operating_system: ``linux`` or ``windows``.
        internal_ip: at which its HTTP API is served, "" where it has none.
        port: of that API, 0 where it is not served.
    """

    name: str
    provider: str
    labels: Mapping[str, str] = MappingProxyType({})
    taint: bool = True
    operating_system: str = "linux"
    internal_ip: str = ""
    port: int = 0


def new_node(wishes: Wishes, now: str) -> JsonObject:
    """Return the Node to register, before its provider completes it."""
    version = f"v{minik8s_modules.__version__}"
    usual = {
        TYPE_LABEL: TYPE,
        "kubernetes.io/role": "agent",
        "kubernetes.io/hostname": wishes.name,
        "kubernetes.io/os": wishes.operating_system,
    }
    labels = {key: value for key, value in {**usual, **wishes.labels}.items() if value or key not in usual}
    taint = {"key": TAINT, "value": wishes.provider, "effect": "NoSchedule"}
    addresses = [{"type": "InternalIP", "address": wishes.internal_ip}] if wishes.internal_ip else []
    status: JsonObject = {
        "conditions": [_condition(*each, now) for each in _CONDITIONS],
        "addresses": [*addresses, {"type": "Hostname", "address": wishes.name}],
        "nodeInfo": {
            "operatingSystem": wishes.operating_system,
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "architecture": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "",
            "osImage": "",
            "containerRuntimeVersion": f"{wishes.provider}://",
        },
    }
    if wishes.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": wishes.port}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": wishes.name, "labels": labels, "annotations": {}},
        "spec": {"taints": [taint]} if wishes.taint else {},
        "status": status,
    }


def with_heartbeat(node: JsonObject, current: JsonObject | None, now: str) -> JsonObject:
    """Return ``node`` with a heartbeat in every condition; one whose status is as before keeps its transition time."""
    made = []
    for each in objects.status(node).get("conditions") or []:
        before = objects.condition(current or {}, each["type"]) or {}
        same = before.get("status") == each.get("status")
        since = before.get("lastTransitionTime") if same else None
        made.append({**each, "lastHeartbeatTime": now, "lastTransitionTime": since or now})
    return {**node, "status": {**objects.status(node), "conditions": made}}


def _condition(kind: str, state: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
