"""A request through a Gateway, walked as its Envoys would."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.mesh.entering import by_gateways
from tests.unit.mesh.gateways.declared import gateway, listener, obj, route, service, slice_of


class Lists:
    """What there is of each kind."""

    def __init__(self, found: dict[Kind, list[JsonObject]], *, defined: bool = True) -> None:
        self._found, self._defined = found, defined

    def list(self, kind: Kind, *_more: Any) -> Any:
        """Return those of a kind, if it is defined."""
        if kind in GATEWAY_KINDS and not self._defined:
            raise NotFound(kind, "none")
        items = self._found.get(kind, [])
        return type("Answer", (), {"items": items})


def told(host: str, path: str, *routes: JsonObject, **more: Any) -> list[tuple[str, str, bool]]:
    parts = name_of_parts("edge")
    found = {
        GATEWAY_KINDS.classes: [obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")],
        GATEWAY_KINDS.gateways: [gateway(listener(hostname="*.example"))],
        GATEWAY_KINDS.routes: [*routes],
        SERVICE: [service(), service(parts, clusterIP="100.0.0.9")],
        ENDPOINT_SLICE: [slice_of(), slice_of(parts)],
        POD: [{"metadata": {"name": "a", "namespace": "shop"}, "status": {"podIP": "10.0.0.1"}}],
    }
    lists: Any = Lists(found, **more)
    return [(line.station, line.text, line.broken) for line in by_gateways(lists, host, path)]


def test_a_host_of_a_gateway_leads_by_its_route_to_pods():
    exact = [{"path": {"type": "Exact", "value": "/cart"}}]
    one = route(rules=[{"matches": exact, "backendRefs": [{"name": "web", "port": 80}]}])
    station, first, last = told("shop.example", "/cart", one)
    assert station[:2] == ("gateway", "shop/edge at 100.0.0.9, port 80 (minik8s why -n shop gateway/edge)")
    assert first == ("route", "path /cart (HTTPRoute shop/web)", False)
    assert last == ("pod", "10.0.0.1:8080 (shop/a): 100% of them", False)
    assert told("shop.example", "/other", one)[-1] == ("route", "none is for /other: 404", True)


def test_a_host_that_no_gateway_answers_for_is_not_told_of():
    assert told("example", "/", route()) == []
    assert told("shop.example", "/", route(), defined=False) == []
