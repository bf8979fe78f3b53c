"""A plan tells what a Service would change on a node."""

from __future__ import annotations

from typing import Any

from minik8s_modules.reconcile.services_hypothesis import with_services

JsonObject = dict[str, Any]
PLANE = {"mode": "nftables"}
OLD = {"protocol": "TCP", "address": "100.0.0.2", "port": 80, "endpoints": [["192.0.2.7", 80]]}
ENTRIES: dict[str, JsonObject] = {"dataplane": PLANE, "default/old:80": OLD}


def service(name: str, selector: dict[str, str] | None) -> JsonObject:
    """Return a Service at 100.0.0.2, port 81 to 8080."""
    port = {"port": 81, "targetPort": 8080, "protocol": "TCP"}
    spec = {"type": "ClusterIP", "clusterIP": "100.0.0.2", "ports": [port], "selector": selector}
    return {"metadata": {"name": name, "namespace": "default", "uid": "u"}, "spec": spec}


def pod(namespace: str, ip: str) -> JsonObject:
    """Return a ready pod of the app web."""
    metadata = {"name": "a", "namespace": namespace, "uid": ip, "labels": {"app": "web"}}
    status = {"podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": status}


def test_a_new_service_has_the_pods_of_its_namespace() -> None:
    pods = [pod("default", "10.0.0.1"), pod("other", "10.0.0.2")]
    found = with_services(ENTRIES, {"default/web": service("web", {"app": "web"})}, pods, "n1")
    assert found["default/web:81"]["endpoints"] == [["10.0.0.1", 8080]]
    assert found["default/old:80"] is OLD


def test_a_deleted_one_leaves_and_an_empty_question_changes_nothing() -> None:
    assert with_services(ENTRIES, {"default/old": None}, [], "n1") == {"dataplane": PLANE}
    assert with_services(ENTRIES, {}, [], "n1") is ENTRIES
    assert with_services({}, {"default/web": service("web", {"app": "web"})}, [], "n1") == {}


def test_endpoints_of_a_user_stay() -> None:
    changed = service("old", None)
    changed["spec"]["ports"][0]["port"] = 80
    found = with_services(ENTRIES, {"default/old": changed}, [], "n1")
    assert found["default/old:80"]["endpoints"] == OLD["endpoints"]
