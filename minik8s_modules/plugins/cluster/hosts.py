"""Nodes and pods of a cluster as hosts of an Ansible inventory: pure, from API objects to names, groups and variables.

A node is called what it is called; a pod ``<pod>.<namespace>.pod``, since pods of two namespaces may share a name.
Group names are made safe by the plugin (``inventory/minik8s.py``), which alone knows Ansible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject

NODES, PODS = "minik8s_nodes", "minik8s_pods"
# kubectl's choice of the container where none is named
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class Host(NamedTuple):
    """One host: its name, the groups it is in, and its variables (plain JSON)."""

    name: str
    groups: tuple[str, ...]
    variables: dict[str, Any]


def node_hosts(nodes: Iterable[JsonObject]) -> Iterator[Host]:
    """Yield a host for each Node that is a machine; it is reached under its internal address."""
    for node in nodes:
        if is_virtual(node):
            continue
        name, status = objects.name(node), objects.status(node)
        addresses = {each["type"]: each["address"] for each in reversed(status.get("addresses") or [])}
        variables = {
            "minik8s_kind": "Node",
            "minik8s_node": name,
            "minik8s_addresses": addresses,
            "minik8s_ready": is_ready(node),
            "minik8s_unschedulable": bool(objects.spec(node).get("unschedulable")),
            "minik8s_taints": objects.spec(node).get("taints") or [],
            "minik8s_allocatable": status.get("allocatable") or {},
            **_metadata(node),
        }
        if address := addresses.get("InternalIP"):
            variables["ansible_host"] = address
        yield Host(name, (NODES, f"node_{name}", *_label_groups(node)), variables)


def pod_hosts(pods: Iterable[JsonObject]) -> Iterator[Host]:
    """Yield a host for each Pod; tasks run in its default container."""
    for pod in pods:
        name, namespace, node = objects.name(pod), objects.namespace(pod), objects.spec(pod).get("nodeName") or ""
        containers = [each["name"] for each in objects.containers(pod)]
        chosen = objects.annotations(pod).get(DEFAULT_CONTAINER)
        variables = {
            "ansible_connection": "minik8s_pod",
            "minik8s_kind": "Pod",
            "minik8s_pod": name,
            "minik8s_namespace": namespace,
            "minik8s_container": chosen if chosen in containers else containers[0],
            "minik8s_containers": containers,
            "minik8s_node": node,
            "minik8s_ip": objects.status(pod).get("podIP") or "",
            "minik8s_phase": objects.status(pod).get("phase") or "",
            "minik8s_ready": is_ready(pod),
            "minik8s_owner": _owner(pod),
            **_metadata(pod),
        }
        groups = (PODS, f"namespace_{namespace}", *([f"node_{node}"] if node else []), *_label_groups(pod))
        yield Host(f"{name}.{namespace}.pod", groups, variables)


def is_ready(obj: JsonObject) -> bool:
    """Return whether the object's condition Ready is True."""
    return (objects.condition(obj, "Ready") or {}).get("status") == "True"


def _metadata(obj: JsonObject) -> dict[str, Any]:
    return {
        "minik8s_uid": objects.uid(obj),
        "minik8s_labels": dict(objects.labels(obj)),
        "minik8s_annotations": dict(objects.annotations(obj)),
    }


def _owner(pod: JsonObject) -> Mapping[str, str]:
    owner = objects.controller_of(pod)
    return {"kind": owner["kind"], "name": owner["name"]} if owner else {}


def _label_groups(obj: JsonObject) -> Iterator[str]:
    for key, value in sorted(objects.labels(obj).items()):
        yield f"label_{key}_{value}" if value else f"label_{key}"
