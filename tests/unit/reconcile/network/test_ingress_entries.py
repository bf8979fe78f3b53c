"""Entries of the section ingress: each file of tests/cases/render_host is one host, its routes, and nginx' lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.network.ingress_routes import Route, Routes
from minik8s_modules.module_utils.minik8s.names.ingress_entries import check_entry
from minik8s_modules.reconcile.network.ingress import Backend, Renderer, backend, ingress_entries, quoted
from minik8s_modules.reconcile.values.values import IngressSettings

ROOT = Path(__file__).parents[4]
CASES = sorted((ROOT / "tests" / "cases" / "render_host").glob("*.yml"))
RENDERER = Renderer(IngressSettings(80, 443, str(ROOT / "templates")))
EACH = ("10.244.0.7:8080", "10.244.0.8:8080")
WEB = Route("Ingress default/shop", "Prefix", "/", "default/web", 80)


def service(**spec: Any) -> dict[str, Any]:
    """Return a Service named web."""
    declared = {"clusterIP": "100.0.0.7", "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": declared}


def behind(*addresses: str, ready: bool = True) -> list[dict[str, Any]]:
    """Return the slices of a Service with these endpoints."""
    endpoints = [{"addresses": [one], "conditions": {"ready": ready}} for one in addresses]
    return [{"ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints}]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.replace("-", " "))
def test_render_host(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    routes = {
        Route(**{"owner": "Ingress default/shop", "service": "default/web", "port": 80, **one["route"]}): Backend(
            tuple(one.get("addresses", ())), one.get("problem", "")
        )
        for one in case["routes"]
    }
    text = RENDERER.host(case["host"], routes, routes, case.get("secret", ""))
    lines = [line.strip() for line in text.splitlines()]
    shown = [line for line in lines if line.startswith(tuple(case["shows"]))]
    assert shown == case["lines"]
    check_entry(case["host"], {"config": text, "secrets": {}})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/a", '"/a"'),
        ('/a"; } location / {', '"/a\\"; } location / {"'),
        ("/a\\", '"/a\\\\"'),
        ("/${host}{", '"/${host}{"'),
        ("told\n", '"told\\n"'),
    ],
)
def test_what_a_user_wrote_is_one_string_of_nginx(text: str, wanted: str) -> None:
    assert quoted(text) == wanted


@pytest.mark.parametrize("text", ["/a\nb", "/a\0", "/a\rb", "\n\n"])
def test_control_characters_come_into_no_file(text: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        quoted(text)


@pytest.mark.parametrize(
    ("found", "slices", "wanted"),
    [
        (service(), behind("10.244.0.7", "10.244.0.8"), Backend(("100.0.0.7:80",))),
        (service(), behind("10.244.0.7", ready=False), Backend(problem="service default/web has no endpoints")),
        (service(), [], Backend(problem="service default/web has no endpoints")),
        (service(clusterIP="None"), behind("10.244.0.7", "10.244.0.8"), Backend(EACH)),
        (service(ports=[{"port": 81}]), behind("10.244.0.7"), Backend(problem="service default/web has no such port")),
        (None, [], Backend(problem="service default/web does not exist")),
        (
            service(type="ExternalName", clusterIP=""),
            [],
            Backend(problem="service default/web is an ExternalName, which paths cannot lead to"),
        ),
    ],
)
def test_where_a_route_leads(found: dict[str, Any] | None, slices: list[dict[str, Any]], wanted: Backend) -> None:
    assert backend(WEB, found, slices) == wanted


def test_a_port_is_found_by_its_name_too() -> None:
    assert backend(WEB._replace(port="http"), service(), behind("10.244.0.7")) == Backend(("100.0.0.7:80",))


def test_a_certificate_that_is_not_at_hand_is_not_named() -> None:
    hosts = {"shop.test": (WEB,), "_": (WEB,)}
    routes = Routes(hosts, {"shop.test": "default/tls"}, {}, {}, frozenset(), {})
    leads = {WEB: Backend(("100.0.0.7:80",))}
    without = ingress_entries(routes, leads, {}, RENDERER)
    assert set(without) == {"_server", "shop.test", "_"}
    assert without["shop.test"]["secrets"] == {}
    assert "ssl" not in without["shop.test"]["config"]
    entries = ingress_entries(routes, leads, {"default/tls": "a1", "default/other": "b2"}, RENDERER)
    assert entries["shop.test"]["secrets"] == {"default/tls": "a1"}
    assert 'ssl_certificate "secrets/default/tls/tls.crt";' in entries["shop.test"]["config"]
    assert entries["_"] == without["_"]
    for key, entry in entries.items():
        check_entry(key, entry)
