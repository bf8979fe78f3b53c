"""Nodes, namespaces, Services, volumes, claims and quotas as figures."""

from __future__ import annotations

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.kinds import (
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    RESOURCE_QUOTA,
    SERVICE,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.monitoring.families.family import (
    Rows,
    RowsOf,
    Table,
    amounts,
    conditions,
    gauge,
    moment,
    named,
    number,
    phases,
)

_ROLE = "node-role.kubernetes.io/"


def _node_info(node: JsonObject) -> Rows:
    info = objects.status(node).get("nodeInfo") or {}
    fields = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "systemUUID")
    told = objects.status(node).get("addresses") or []
    addresses = {each.get("type"): each.get("address") for each in reversed(told)}
    texts = [*(info.get(field) for field in fields), objects.spec(node).get("podCIDR"), addresses.get("InternalIP")]
    return [(tuple(str(each or "") for each in texts), 1.0)]


def _taints(node: JsonObject) -> Rows:
    found = objects.spec(node).get("taints") or []
    return [
        ((str(each.get("key") or ""), str(each.get("value") or ""), str(each.get("effect") or "")), 1.0)
        for each in found
    ]


def _roles(node: JsonObject) -> Rows:
    return [((name.removeprefix(_ROLE),), 1.0) for name in objects.labels(node) if name.startswith(_ROLE)]


def _listed(which: str) -> RowsOf:
    return lambda node: (
        ((resource, unit), amount) for resource, unit, amount in amounts(objects.status(node).get(which) or {})
    )


def _quota(quota: JsonObject) -> Rows:
    for kind in ("hard", "used"):
        for resource, quantity in (objects.status(quota).get(kind) or {}).items():
            yield (resource, kind), quantities.to_milli(str(quantity)) / 1000


def _bytes(*path: str) -> RowsOf:
    def rows(obj: JsonObject) -> Rows:
        quantity = objects.dig(obj, *path)
        return [((), quantities.to_milli(str(quantity)) / 1000)] if quantity else []

    return rows


def _claim_info(claim: JsonObject) -> Rows:
    spec = objects.spec(claim)
    return [((str(spec.get("storageClassName") or ""), str(spec.get("volumeName") or "")), 1.0)]


def _volume_info(volume: JsonObject) -> Rows:
    spec = objects.spec(volume)
    claim = spec.get("claimRef") or {}
    return [
        (
            (str(spec.get("storageClassName") or ""), str(claim.get("namespace") or ""), str(claim.get("name") or "")),
            1.0,
        )
    ]


NODES = Table(
    NODE,
    lambda node: {"node": objects.name(node)},
    (
        gauge(
            "kube_node_info",
            "What a node is.",
            (
                "kernel_version",
                "os_image",
                "container_runtime_version",
                "kubelet_version",
                "system_uuid",
                "pod_cidr",
                "internal_ip",
            ),
            _node_info,
        ),
        gauge("kube_node_created", "When it joined, in Unix seconds.", (), moment("metadata", "creationTimestamp")),
        gauge("kube_node_role", "Roles of a node.", ("role",), _roles),
        gauge(
            "kube_node_spec_unschedulable",
            "1 for a node that takes no new pods.",
            (),
            number("spec", "unschedulable", default=0.0),
        ),
        gauge("kube_node_spec_taint", "Taints of a node.", ("key", "value", "effect"), _taints),
        gauge("kube_node_status_condition", "Conditions of a node.", ("condition", "status"), conditions),
        gauge("kube_node_status_capacity", "What a node has.", ("resource", "unit"), _listed("capacity")),
        gauge("kube_node_status_allocatable", "What of it pods can use.", ("resource", "unit"), _listed("allocatable")),
    ),
)
NAMESPACES = Table(
    NAMESPACE,
    lambda obj: {"namespace": objects.name(obj)},
    (
        gauge(
            "kube_namespace_created",
            "When it was created, in Unix seconds.",
            (),
            moment("metadata", "creationTimestamp"),
        ),
        gauge(
            "kube_namespace_status_phase", "1 for the phase it is in.", ("phase",), phases(("Active", "Terminating"))
        ),
    ),
)
SERVICES = Table(
    SERVICE,
    named("service"),
    (
        gauge(
            "kube_service_info",
            "A Service's address.",
            ("cluster_ip",),
            lambda obj: [((str(objects.spec(obj).get("clusterIP") or ""),), 1.0)],
        ),
        gauge(
            "kube_service_spec_type",
            "A Service's type.",
            ("type",),
            lambda obj: [((str(objects.spec(obj).get("type") or "ClusterIP"),), 1.0)],
        ),
    ),
)
VOLUMES = Table(
    PERSISTENT_VOLUME,
    lambda obj: {"persistentvolume": objects.name(obj)},
    (
        gauge(
            "kube_persistentvolume_info", "Its class.", ("storageclass", "claim_namespace", "claim_name"), _volume_info
        ),
        gauge("kube_persistentvolume_capacity_bytes", "How much it holds.", (), _bytes("spec", "capacity", "storage")),
        gauge(
            "kube_persistentvolume_status_phase",
            "1 for the phase it is in.",
            ("phase",),
            phases(("Pending", "Available", "Bound", "Released", "Failed")),
        ),
    ),
)
CLAIMS = Table(
    PERSISTENT_VOLUME_CLAIM,
    named("persistentvolumeclaim"),
    (
        gauge("kube_persistentvolumeclaim_info", "Its class and volume.", ("storageclass", "volumename"), _claim_info),
        gauge(
            "kube_persistentvolumeclaim_resource_requests_storage_bytes",
            "How much it requests.",
            (),
            _bytes("spec", "resources", "requests", "storage"),
        ),
        gauge(
            "kube_persistentvolumeclaim_status_phase",
            "1 for the phase it is in.",
            ("phase",),
            phases(("Lost", "Bound", "Pending")),
        ),
    ),
)
QUOTAS = Table(
    RESOURCE_QUOTA,
    named("resourcequota"),
    (gauge("kube_resourcequota", "What a quota allows and what of it is used.", ("resource", "type"), _quota),),
)
CLUSTER = (NODES, NAMESPACES, SERVICES, VOLUMES, CLAIMS, QUOTAS)
