"""Gateways, routes and what they lead to, as tests declare them, and what is decided for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from minik8s_modules.api.network.gateway_api import CONTROLLER, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.deciding import Decision, Declared, decide_gateways

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EDGE = Key("shop", "edge")


def obj(kind: str, name: str, spec: JsonObject, namespace: str = "shop", **meta: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "generation": 3, **meta},
        "spec": spec,
    }


def listener(name: str = "http", port: int = 80, protocol: str = "HTTP", **more: Any) -> JsonObject:
    return {"name": name, "port": port, "protocol": protocol, **more}


def gateway(*listeners: JsonObject, **spec: Any) -> JsonObject:
    return obj("Gateway", "edge", {"gatewayClassName": "ours", "listeners": [*listeners] or [listener()], **spec})


def route(name: str = "web", *, namespace: str = "shop", parent: JsonObject | None = None, **spec: Any) -> JsonObject:
    told = {"name": "edge", **({"namespace": "shop"} if namespace != "shop" else {}), **(parent or {})}
    rules = spec.pop("rules", [{"backendRefs": [{"name": "web", "port": 80}]}])
    created = spec.pop("created", "2026-01-01T00:00:00Z")
    return obj("HTTPRoute", name, {"parentRefs": [told], "rules": rules, **spec}, namespace, creationTimestamp=created)


def service(name: str = "web", namespace: str = "shop", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": "100.0.0.1", "ports": [{"port": 80}], **spec},
    }


def slice_of(name: str = "web", namespace: str = "shop", *ips: str) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in ips or ("10.0.0.1",)],
    }


def decide(gateways: Sequence[JsonObject], routes: Sequence[JsonObject], **more: Any) -> Decision:
    parts = name_of_parts("edge")
    services = [service(), service("other", "elsewhere"), service(parts, clusterIP="100.0.0.9")]
    slices = [slice_of(), slice_of("other", "elsewhere"), slice_of(parts)]
    classes = [obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")]
    return decide_gateways(Declared(classes, gateways, routes, services=services, slices=slices, **more))


def conditions(found: Sequence[JsonObject]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found}
