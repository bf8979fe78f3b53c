"""Who has which host and path: every file of tests/cases/decide_routes is one cluster and what comes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.network.ingress_routes import Cluster, decide_routes
from minik8s_modules.controllers.network.ingresses import decide_dns_status, decide_ingress_status, node_addresses

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_routes").glob("*.yml"))
NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_decide_routes(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    services = {str(objects.key(each)): each for each in case.get("services", [])}
    dns, ingresses, classes, grants = (case.get(part, []) for part in ("dns", "ingresses", "classes", "grants"))
    found = decide_routes(Cluster(dns, ingresses, classes, services, grants))
    fields = {
        host: sorted(f"{one.kind} {one.path} {one.service}:{one.port} {one.owner}" for one in places)
        for host, places in found.hosts.items()
    }
    assert fields == case["hosts"]
    refused = {owner: [f"{one.reason}: {one.message}" for one in why] for owner, why in found.refused.items()}
    assert refused == case.get("refused", {})
    assert dict(found.tls) == case.get("tls", {})
    assert found.resolved == case.get("resolved", {})


@pytest.mark.parametrize("part", ["dns", "ingresses", "classes", "grants"])
@pytest.mark.parametrize("spec", ["text", ["x"], {"rules": "text"}, {"rules": [5]}, {"tls": ["x"]}, {"namespaces": 5}])
def test_what_cannot_be_read_takes_nobodys_place(part: str, spec: object) -> None:
    rules = [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": _backend()}]}}]
    cluster = {
        "dns": [],
        "ingresses": [{"metadata": {"name": "i", "namespace": "default"}, "spec": {"rules": rules}}],
        "classes": [],
        "grants": [],
    }
    sound = decide_routes(Cluster(**cluster, services={}))
    cluster[part].append({"metadata": {"name": "bad", "namespace": "default"}, "spec": spec})
    found = decide_routes(Cluster(**cluster, services={}))
    assert found.hosts["a.example"] == sound.hosts["a.example"]


def test_an_ingress_tells_where_it_answers_and_a_dns_object_why_not() -> None:
    ready = {"type": "Ready", "status": "True"}
    node = {"status": {"conditions": [ready], "addresses": [{"type": "InternalIP", "address": "192.0.2.4"}]}}
    rules = [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": _backend()}]}}]
    ingress = {"metadata": {"name": "i", "namespace": "default"}, "spec": {"rules": rules}}
    dns = {"metadata": {"name": "d", "namespace": "default"}, "spec": {"rules": [{"host": "A.example", "paths": []}]}}
    routes = decide_routes(Cluster([], [ingress], [], {}, []))
    addresses = node_addresses([node, {"status": {}}])
    assert decide_ingress_status(ingress, routes, addresses) == {"loadBalancer": {"ingress": [{"ip": "192.0.2.4"}]}}
    younger, older = _since(dns, "2026-11-20T00:00:00Z"), _since(ingress, "2026-11-19T00:00:00Z")
    status = decide_dns_status(younger, decide_routes(Cluster([younger], [older], [], {}, [])), NOW)
    accepted = status["conditions"][0]
    assert (accepted["type"], accepted["status"], accepted["reason"]) == ("Accepted", "False", "HostConflict")
    assert "Ingress default/i" in accepted["message"]
    again = decide_dns_status(
        {**younger, "status": status}, decide_routes(Cluster([younger], [older], [], {}, [])), NOW
    )
    assert again == status


def test_an_ingress_tells_an_address_of_each_family_that_nginx_listens_at() -> None:
    def node(*addresses: str) -> dict[str, Any]:
        told = [{"type": "InternalIP", "address": each} for each in addresses]
        return {"status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": told}}

    nodes = [node("192.0.2.4", "2001:db8::4", "192.0.2.5"), node("2001:db8::3"), node("192.0.2.3")]
    assert node_addresses(nodes) == ["192.0.2.3", "192.0.2.4", "2001:db8::3"]
    assert node_addresses(nodes, both=True) == ["192.0.2.3", "192.0.2.4", "2001:db8::3", "2001:db8::4"]


def _since(obj: dict[str, Any], moment: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": moment}}


def _backend() -> dict[str, Any]:
    return {"service": {"name": "web", "port": {"number": 80}}}
