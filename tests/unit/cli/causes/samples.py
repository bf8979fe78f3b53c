"""Objects of one namespace for tests of causes and ways."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kinds import ENDPOINT_SLICE, INGRESS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi

META = {"namespace": "default"}
SEEN = "10.244.0.7:8080 (pod a, ready)"
"""How the endpoint is shown."""


def pod(name: str, status: JsonObject, **metadata: Any) -> JsonObject:
    """Return a pod of app web."""
    named = {"name": name, "labels": {"app": "web"}, "uid": name, **META, **metadata}
    return {"metadata": named, "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}, "status": status}


def with_endpoint(api: FakeApi) -> None:
    """Put a ready endpoint behind the service."""
    endpoint = {"addresses": ["10.244.0.7"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "a"}}
    labels = {"kubernetes.io/service-name": "web"}
    body = {"metadata": {"name": "s", "labels": labels, **META}, "endpoints": [endpoint], "ports": [{"port": 8080}]}
    api.create(ENDPOINT_SLICE, body)


def an_ingress(api: FakeApi, name: str, host: str, service: str = "web", **spec: Any) -> None:
    """Make an Ingress of one path."""
    backend = {"service": {"name": service, "port": {"number": 80}}}
    rules = [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]
    metadata = {"name": name, "creationTimestamp": f"2026-11-20T00:00:0{len(name)}Z", **META}
    api.create(INGRESS, {"metadata": metadata, "spec": {"rules": rules, **spec}})
