"""Namespaces written short, as the cases of the mesh have them: Services with their Pods, Subsets, VirtualServices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.mapping import Declared

IPS = {"a": "10.244.0.1", "b": "10.244.0.2", "c": "10.244.0.3"}


def declared(case: dict[str, Any]) -> Declared:
    """Return the objects of a case; the number of a Service in it is the last of its address."""
    ending = case.get("ending", {})
    return Declared(
        [service(number, **each) for number, each in enumerate(case["services"], 1)],
        [
            endpoint_slice(name, pods, ready=ready)
            for group, ready in ((case.get("pods", {}), True), (ending, False))
            for name, pods in group.items()
        ],
        [virtual_service(**each) for each in case.get("virtual", [])],
        [subset(name, pods) for name, pods in case.get("subsets", {}).items()],
        [rolling_update(**each) for each in case.get("updates", [])],
    )


def service(number: int, name: str, ports: Iterable[int], protocol: str = "TCP", **spec: Any) -> JsonObject:
    listed = [{"port": port, "protocol": protocol} for port in ports]
    return {"metadata": _meta(name), "spec": {"clusterIP": f"100.0.0.{number}", "ports": listed, **spec}}


def endpoint_slice(name: str, pods: Iterable[str], *, ready: bool = True) -> JsonObject:
    meta = _meta(f"{name}-{ready}".lower()) | {"labels": {"kubernetes.io/service-name": name}}
    conditions = {"ready": ready, "serving": True, "terminating": not ready}
    points = [
        {"addresses": [IPS[pod]], "conditions": conditions, "targetRef": {"kind": "Pod", "name": pod}} for pod in pods
    ]
    ports = [{"port": 8080, "protocol": "TCP"}]
    return {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": points}


def virtual_service(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> JsonObject:
    return {"metadata": _meta(name) | {"creationTimestamp": created}, "spec": spec}


def subset(name: str, pods: Iterable[str]) -> JsonObject:
    return {"metadata": _meta(name), "spec": {"pods": list(pods)}}


def rolling_update(withheld: Iterable[str], batch: int = 1, *, deleting: bool = False, **spec: Any) -> JsonObject:
    meta = _meta("update") | {"uid": "uid-update"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})
    return {"metadata": meta, "spec": spec, "status": {"withheld": list(withheld), "batch": batch}}


def _meta(name: str) -> JsonObject:
    return {"name": name, "namespace": "shop"}
