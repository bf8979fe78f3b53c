"""HTTPRoutes whose parent is a Service: whose requests they lead, where, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.meshing import Routes, decide_led, routes_of
from minik8s_modules.mesh.gateways.statuses import route_status
from minik8s_modules.mesh.mapping import Declared, decide_mapping
from minik8s_modules.mesh.messages import Packer, message_of
from minik8s_modules.mesh.policies import is_for_get
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.unit.mesh.gateways.declared import NOW, conditions, decide, gateway, obj, route, service, slice_of

WEB: JsonObject = {"group": "", "kind": "Service", "name": "web"}
TO_WEB = [{"backendRefs": [{"name": "web", "port": 80}]}]
ADDRESSES = {"web": "100.0.0.1", "next": "100.0.0.2"}
PORTS = [{"name": "http", "port": 80}, {"name": "alt", "port": 81}, {"name": "dns", "port": 53, "protocol": "UDP"}]


def objects_of(namespace: str, **more: Any) -> Declared:
    """Return a namespace with the Services web, of two Pods, and next."""
    services = [service(name, namespace, clusterIP=ip, ports=PORTS) for name, ip in ADDRESSES.items()]
    slices = [slice_of("web", namespace, "10.0.0.1", "10.0.0.2"), slice_of("next", namespace, "10.0.0.3")]
    named = [{**each, "ports": [{"name": one["name"], "port": 8080} for one in PORTS[:2]]} for each in slices]
    return Declared(services, named, **more)


def within(name: str = "web", namespace: str = "shop", *, parent: JsonObject = WEB, **spec: Any) -> JsonObject:
    made = route(name, namespace="shop", rules=spec.pop("rules", TO_WEB), **spec)
    made["metadata"]["namespace"] = namespace
    made["spec"]["parentRefs"] = [parent]
    return made


def led(routes: Sequence[JsonObject], client: str = "shop", **more: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what sidecars of a namespace are told of led ports: bodies by name of port, type and name."""
    found = Routes([*routes], more.get("grants", ()))
    declared = [objects_of(each) for each in sorted(found.namespaces(client))]
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for port in decide_led(found, client, declared):
        kinds = told.setdefault(port.name, {})
        for each in port.resources():
            message_of(each)  # that Envoy's types have all of it
            kinds.setdefault(each.type_url, {})[each.name] = each.body
    return told


def routes_in(told: dict[str, dict[str, Any]], name: str) -> list[JsonObject]:
    found: list[JsonObject] = told[ROUTES][name]["virtual_hosts"][0]["routes"]
    return [each for each in found if not is_for_get(each)]


def said(one: JsonObject, **more: Any) -> list[JsonObject]:
    """Return the parents in a route's status, decided by a cluster with a Gateway and Service shop/web."""
    found = route_status(one, decide([gateway()], [one], **more).routes.get(objects.key(one)), NOW)["parents"]
    return [{"ref": each["parentRef"], **conditions(each["conditions"])} for each in found]


def test_a_route_of_the_services_namespace_leads_the_requests_of_all_namespaces():
    one = within(rules=[{"backendRefs": [{"name": "web", "port": 80, "weight": 3}, {"name": "next", "port": 80}]}])
    for client in ("shop", "elsewhere"):
        told = led([one], client)
        assert set(told) == {"web.shop:80", "web.shop:81"}
        (found,) = routes_in(told["web.shop:80"], "web.shop:80")
        weights = [{"name": "web.shop:80/*", "weight": 3}, {"name": "next.shop:80/*", "weight": 1}]
        assert found["route"]["weighted_clusters"] == {"clusters": weights}
        assert found["name"] == "web.shop:80"
        assert set(told["web.shop:80"][CLUSTER]) == {"web.shop:80", "web.shop:80/*", "next.shop:80/*"}
        assert len(told["web.shop:80"][ENDPOINTS]["web.shop:80/*"]["endpoints"][0]["lb_endpoints"]) == 2
        address = told["web.shop:80"][LISTENER]["web.shop:80"]["address"]["socket_address"]
        assert address == {"address": "100.0.0.1", "port_value": 80}


def test_a_route_of_another_namespace_leads_that_ones_requests_alone_in_place_of_the_services_own():
    producer = within(rules=[{"backendRefs": [{"name": "next", "port": 80}]}])
    own = {"namespace": "shop", "name": "web", "port": 80}
    consumer = within("mine", "elsewhere", parent={**WEB, "namespace": "shop"}, rules=[{"backendRefs": [own]}])
    clusters = {
        client: routes_in(led([producer, consumer], client)["web.shop:80"], "web.shop:80")[0]["route"]
        for client in ("shop", "elsewhere", "third")
    }
    found = {
        client: each["weighted_clusters"]["clusters"][0]["name"].removesuffix("/*") for client, each in clusters.items()
    }
    assert found == {"shop": "next.shop:80", "elsewhere": "web.shop:80", "third": "next.shop:80"}
    assert led([consumer], "third") == led([consumer], "shop") == {}


def test_a_route_leads_to_its_parent_of_another_namespace_without_a_grant_and_to_nothing_else_there():
    other = {"namespace": "shop", "name": "next", "port": 80}
    parent = {**WEB, "namespace": "shop"}
    consumer = within("mine", "elsewhere", parent=parent, rules=[{"backendRefs": [other]}])
    (found,) = routes_in(led([consumer], "elsewhere")["web.shop:80"], "web.shop:80")
    assert found["route"]["weighted_clusters"]["clusters"][0]["name"] == "no-such-backend"
    (told,) = said(consumer)
    assert told["ResolvedRefs"] == ("False", "RefNotPermitted")
    own = within("mine", "elsewhere", parent=parent, rules=[{"backendRefs": [{**other, "name": "web"}]}])
    assert said(own)[0]["ResolvedRefs"] == ("True", "ResolvedRefs")
    # what it may within the mesh it may not through a Gateway
    both = within("mine", "elsewhere", parent=parent, rules=[{"backendRefs": [{**other, "name": "web"}]}])
    both["spec"]["parentRefs"].append({"name": "edge", "namespace": "shop"})
    assert [each["ResolvedRefs"][1] for each in said(both)] == ["ResolvedRefs", "RefNotPermitted"]
    grant = obj(
        "ReferenceGrant",
        "yes",
        {
            "from": [
                {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "elsewhere"}
            ],
            "to": [{"group": "", "kind": "Service"}],
        },
    )  # fmt: skip
    (found,) = routes_in(led([consumer], "elsewhere", grants=[grant])["web.shop:80"], "web.shop:80")
    assert found["route"]["weighted_clusters"]["clusters"][0]["name"] == "next.shop:80/*"


@pytest.mark.parametrize(
    ("parent", "ports"),
    [
        ({}, {"web.shop:80", "web.shop:81"}),
        ({"port": 81}, {"web.shop:81"}),
        ({"sectionName": "http"}, {"web.shop:80"}),
        ({"sectionName": "http", "port": 81}, set()),
        ({"port": 53}, set()),
        ({"name": "none"}, set()),
        ({"kind": "Gateway"}, set()),
    ],
)
def test_a_reference_chooses_ports_by_number_and_name(parent: JsonObject, ports: set[str]):
    assert set(led([within(parent={**WEB, **parent})])) == ports


@pytest.mark.parametrize(
    ("parent", "services", "reason"),
    [
        ({}, {}, "Accepted"),
        ({"name": "none"}, {}, "NoMatchingParent"),
        ({"port": 7}, {}, "NoMatchingParent"),
        ({"sectionName": "none"}, {}, "NoMatchingParent"),
        ({}, {"clusterIP": "None"}, "UnsupportedValue"),
        ({}, {"type": "ExternalName", "externalName": "a.example"}, "UnsupportedValue"),
    ],
)
def test_a_parent_says_why_its_requests_are_not_led(parent: JsonObject, services: JsonObject, reason: str):
    one = within(parent={**WEB, **parent})
    verdict = decide_one(one, service(**services))
    (told,) = route_status(one, verdict, NOW)["parents"]
    assert conditions(told["conditions"])["Accepted"][1] == reason


def decide_one(one: JsonObject, web: JsonObject) -> Any:
    from minik8s_modules.mesh.gateways.deciding import Declared as All  # noqa: PLC0415 - two of that name
    from minik8s_modules.mesh.gateways.deciding import decide_gateways  # noqa: PLC0415

    return decide_gateways(All(routes=[one], services=[web], slices=[slice_of()])).routes[objects.key(one)]


def test_a_route_for_get_alone_is_there_once_for_who_looks():
    found = routes_in(
        led([within(rules=[{**TO_WEB[0], "matches": [{"method": "GET"}]}])])["web.shop:80"], "web.shop:80"
    )
    assert [each["match"]["headers"][0]["name"] for each in found] == [":method"]


def test_hostnames_do_not_count_and_the_condition_says_so():
    one = within(hostnames=["a.example"])
    (parent,) = route_status(one, decide([], [one]).routes[Key("shop", "web")], NOW)["parents"]
    assert "hostnames do not count" in parent["conditions"][0]["message"]
    assert led([one])["web.shop:80"][ROUTES]["web.shop:80"]["virtual_hosts"][0]["domains"] == ["*"]


def test_what_cannot_be_done_leads_nothing():
    one = within(rules=[{**TO_WEB[0], "filters": [{"type": "ExtensionRef", "extensionRef": {}}]}])
    assert led([one]) == {}
    assert said(one)[0]["Accepted"] == ("False", "UnsupportedValue")
    assert (
        led([within(rules=[{**TO_WEB[0], "matches": [{"path": {"type": "RegularExpression", "value": "("}}]}])]) == {}
    )


def test_routes_of_one_service_are_tried_in_upstreams_order_and_none_is_404():
    exact = [{"path": {"type": "Exact", "value": "/v2"}}]
    plain = [{"path": {"type": "PathPrefix", "value": "/v"}}]
    first = within("a", rules=[{**TO_WEB[0], "matches": plain}])
    second = within("b", rules=[{"backendRefs": [{"name": "next", "port": 80}], "matches": exact}])
    found = routes_in(led([first, second])["web.shop:80"], "web.shop:80")
    assert [each["match"] for each in found] == [{"path": "/v2"}, {"path_separated_prefix": "/v"}]


def test_a_virtual_service_of_a_led_port_has_no_effect_and_says_so():
    routes = Routes([within(parent={**WEB, "port": 80})])
    virtual: JsonObject = {
        "metadata": {"name": "split", "namespace": "shop"},
        "spec": {"serviceRef": "web", "port": 80, "subsets": []},
    }
    other = {**virtual, "metadata": {"name": "other", "namespace": "shop"}, "spec": {**virtual["spec"], "port": 81}}
    declared = objects_of("shop", virtual_services=[virtual, other])
    mapped = decide_mapping(declared._replace(led=routes.producers(declared, "shop")))
    refused = mapped.verdicts["split"].refused
    assert refused is not None
    assert refused == ("Conflicted", "HTTPRoute web leads the requests of that port")
    assert mapped.verdicts["other"].refused is None
    assert "100.0.0.1:80" not in mapped.ports
    assert set(mapped.split_by) == {"100.0.0.1:81"}
    # a route of clients elsewhere is none of this namespace's business
    consumer = Routes([within("mine", "elsewhere", parent={**WEB, "namespace": "shop"})])
    assert consumer.producers(declared, "shop") == {}


def test_only_what_changes_is_packed_again_and_statuses_change_nothing():
    packer = Packer("shop")
    one = within()
    looked_at = {**one, "metadata": {**one["metadata"], "resourceVersion": "7"}, "status": {"parents": []}}
    declared = objects_of("shop")
    snapshots = []
    for each in (one, looked_at):
        routes = routes_of([each, route()], [])
        assert len(routes.routes) == 1
        own = declared._replace(led=routes.producers(declared, "shop"))
        snapshots.append(packer.pack(decide_mapping(own), decide_led(routes, "shop", [declared])))
    first, second = (found[ROUTES]["web.shop:80"] for found in snapshots)
    assert first is second


def test_a_port_that_is_udp_as_well_leads_by_tcp():
    declared = objects_of("shop")
    declared.services[0]["spec"]["ports"] = [
        {"name": "dns", "port": 80, "protocol": "UDP"},
        {"name": "http", "port": 80},
    ]
    (port,) = decide_led(Routes([within()]), "shop", [declared])
    for each in port.resources():
        if each.type_url == ENDPOINTS:
            assert len(each.body["endpoints"][0]["lb_endpoints"]) == 2


def test_pods_that_an_update_withholds_are_left_out():
    update = {
        "metadata": {"name": "next", "namespace": "shop"},
        "spec": {"serviceRef": "web", "minimumAlive": 1},
        "status": {"withheld": ["a"]},
    }
    declared = objects_of("shop", rolling_updates=[update])
    for number, each in enumerate(declared.slices[0]["endpoints"]):
        each["targetRef"] = {"kind": "Pod", "name": "ab"[number]}
    (port, _alt) = decide_led(Routes([within()]), "shop", [declared])
    bodies = {each.name: each.body for each in port.resources() if each.type_url == ENDPOINTS}
    for name in ("web.shop:80", "web.shop:80/*"):
        (only,) = bodies[name]["endpoints"][0]["lb_endpoints"]
        assert only["endpoint"]["address"]["socket_address"]["address"] == "10.0.0.2"
