"""``trace`` with an address of a Gateway: the route for the path, as its Envoys choose it, and not the Envoys alone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, NODE, POD, SERVICE
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GATEWAY_NAME, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.trace import trace
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.interface import ObjectList
from tests.unit.cli.causes.logged_api import LoggedApi
from tests.unit.mesh.gateways.declared import gateway, listener, obj, route, service, slice_of

AT_NODES = [{"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": port} for port in (8080, 9090)]}]
OF_POOL = [{"ip": "203.0.113.7", "ipMode": "VIP"}]


class WithoutGateways(LoggedApi):
    """Shows Gateways to nobody."""

    def list(self, kind: Kind, namespace: str = "", *arguments: Any, **options: Any) -> ObjectList:
        """Return objects that may be seen."""
        if kind == GATEWAY_KINDS.gateways:
            raise Forbidden(kind, "", "you may not")
        return super().list(kind, namespace, *arguments, **options)


def with_gateways(api: LoggedApi) -> LoggedApi:
    """Make two Gateways: ``edge`` with two ports and a route at one of them, and ``away`` with the same port."""
    addresses = [{"type": "InternalIP", "address": "192.0.2.1"}]
    api.create(NODE, {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})
    api.create(GATEWAY_KINDS.classes, obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, ""))
    api.create(GATEWAY_KINDS.gateways, gateway(listener(port=8080), listener("closed", 9090)))
    away = gateway(listener(port=8080))
    api.create(GATEWAY_KINDS.gateways, {**away, "metadata": {**away["metadata"], "name": "away"}})
    rules = [{"matches": [{"path": {"value": "/cart"}}], "backendRefs": [{"name": "web", "port": 80}]}]
    api.create(GATEWAY_KINDS.routes, route(rules=rules, parent={"sectionName": "http"}))
    api.create(SERVICE, service())
    api.create(ENDPOINT_SLICE, slice_of())
    for name, ports, address in (("edge", (8080, 9090), "100.0.0.9"), ("away", (8080,), "100.0.0.8")):
        made = service(name_of_parts(name), type="LoadBalancer", clusterIP=address)
        made["metadata"]["labels"] = {GATEWAY_NAME: name}
        more = 22000 if name == "edge" else 23000
        made["spec"]["ports"] = [{"name": f"port-{port}", "port": port, "nodePort": port + more} for port in ports]
        api.create(SERVICE, {**made, "status": {"loadBalancer": {"ingress": AT_NODES if name == "edge" else []}}})
        api.create(ENDPOINT_SLICE, slice_of(name_of_parts(name), "shop", "10.0.0.9"))
    pod = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {}, "status": {"podIP": "10.0.0.1"}}
    api.create(POD, pod)
    return api


def run(api: LoggedApi, capsys: pytest.CaptureFixture[str], place: str) -> tuple[int, list[str]]:
    return trace(cast("ApiClient", api), parse(["trace", "-n", "shop", place])), capsys.readouterr().out.splitlines()


LED = ["route      path /cart and below (HTTPRoute shop/web)", "pod        10.0.0.1:8080 (shop/a): 100% of them"]


@pytest.mark.parametrize(
    ("place", "points", "listener_port", "told"),
    [
        ("http://192.0.2.1:8080/cart", AT_NODES, 8080, LED),
        ("http://192.0.2.1:8080/other", AT_NODES, 8080, ["route      none is for /other: 404"]),
        ("http://192.0.2.1:30080/cart", AT_NODES, 8080, LED),
        ("http://192.0.2.1:9090/cart", AT_NODES, 9090, ["route      none is for /cart: 404"]),
        ("http://203.0.113.7:8080/cart", OF_POOL, 8080, LED),
        ("http://203.0.113.7:port-9090/cart", OF_POOL, 9090, ["route      none is for /cart: 404"]),
    ],
)
def test_an_address_of_a_gateway_leads_by_its_route(
    capsys: pytest.CaptureFixture[str],
    place: str,
    points: list[JsonObject],
    listener_port: int,
    told: list[str],
) -> None:
    api = with_gateways(LoggedApi())
    status = {"status": {"loadBalancer": {"ingress": points}}}
    api.patch(SERVICE, name_of_parts("edge"), "shop", status, subresource="status")
    code, (name, entered, *rest) = run(api, capsys, place)
    assert name.startswith("name       "), name
    assert f"Service shop/{name_of_parts('edge')}" in name
    assert entered.startswith("gateway    shop/edge at "), entered
    assert f", port {listener_port} (" in entered
    assert (code, rest) == (int(told is not LED), told)


def test_the_service_of_a_gateway_leads_to_its_envoys(capsys: pytest.CaptureFixture[str]) -> None:
    code, (_, *rest) = run(with_gateways(LoggedApi()), capsys, f"svc/{name_of_parts('edge')}:8080")
    assert (code, rest[-1]) == (0, "endpoints  10.0.0.9:8080 (ready)")


def test_where_gateways_may_not_be_read_their_envoys_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, (_, *rest) = run(with_gateways(WithoutGateways()), capsys, "http://192.0.2.1:8080/other")
    assert (code, rest) == (0, ["endpoints  10.0.0.9:8080 (ready)"])


def test_a_port_of_a_node_that_no_gateway_has_leads_to_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(with_gateways(LoggedApi()), capsys, "http://192.0.2.1:8083/cart")
    assert (code, [line for line in printed if "gateway" in line]) == (1, [])
    assert printed[-1] == "ingress    no Ingress or DNS object declares 192.0.2.1: nginx answers 404"
