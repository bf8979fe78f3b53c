"""What becomes of Gateways and routes: attachment, conditions, and what Envoys are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import CONTROLLER, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.certificates import Certificate
from minik8s_modules.mesh.gateways.deciding import Decision, Declared, decide_gateways
from minik8s_modules.mesh.gateways.statuses import class_status, gateway_status, route_status
from minik8s_modules.mesh.messages import message_of
from minik8s_modules.mesh.policies import is_for_get
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.unit.mesh.gateways.declared import (
    EDGE,
    NOW,
    conditions,
    decide,
    gateway,
    listener,
    obj,
    route,
    service,
    slice_of,
)


def of_route(one: JsonObject, gateways: Sequence[JsonObject], **more: Any) -> dict[str, tuple[str, str]]:
    verdict = decide(gateways, [one], **more).routes.get(objects.key(one))
    (parent,) = route_status(one, verdict, NOW)["parents"]
    assert parent["controllerName"] == CONTROLLER
    return conditions(parent["conditions"])


def of_listener(one: JsonObject, **more: Any) -> dict[str, tuple[str, str]]:
    found = gateway(one)
    (told,) = gateway_status(found, decide([found], [], **more).gateways[EDGE], NOW)["listeners"]
    return conditions(told["conditions"])


def of_gateway(one: JsonObject, **more: Any) -> dict[str, tuple[str, str]]:
    return conditions(gateway_status(one, decide([one], [], **more).gateways[EDGE], NOW)["conditions"])


def hosts(decision: Decision) -> dict[str, dict[str, list[JsonObject]]]:
    """Return the routes by name of configuration and host, without those that are for GET alone once more."""
    return {
        each.name: {
            one["name"]: [route for route in one["routes"] if not is_for_get(route)]
            for one in each.body["virtual_hosts"]
        }
        for each in decision.told[EDGE]
        if each.type_url == ROUTES
    }


GOOD = {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs")}


def test_a_gateway_listens_at_ipv6_addresses_where_its_service_has_one():
    parts = name_of_parts("edge")
    of_both: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "clusterIPs": ["100.0.0.9", "fd00::9"]}
    classes, found = [obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")], gateway()
    for more, addresses in (({}, ["0.0.0.0"]), (of_both, ["0.0.0.0", "::"])):
        own = service(parts, clusterIP="100.0.0.9", **more)
        decision = decide_gateways(
            Declared(classes, [found], [route()], services=[service(), own], slices=[slice_of()])
        )
        listeners = [each for each in decision.told[EDGE] if each.type_url == LISTENER]
        assert [each.body["address"]["socket_address"]["address"] for each in listeners] == addresses
        assert [each.body["name"] for each in listeners] == [each.name for each in listeners]
        assert len({each.name for each in listeners}) == len(listeners)
        assert len({str(each.body["filter_chains"]) for each in listeners}) == 1
        said = gateway_status(found, decision.gateways[EDGE], NOW)["addresses"]
        assert [each["value"] for each in said] == more.get("clusterIPs", ["100.0.0.9"])


def test_a_route_of_the_same_namespace_is_attached_and_led_to_its_service():
    decision = decide([gateway()], [route()])
    told = {each.type_url: each for each in decision.told[EDGE]}
    assert set(told) == {CLUSTER, ENDPOINTS, LISTENER, ROUTES}
    again, one = told[ROUTES].body["virtual_hosts"][0]["routes"]
    assert again["match"]["headers"] == [{"name": ":method", "string_match": {"exact": "GET"}}]
    assert "reset" in again["route"]["retry_policy"]["retry_on"].split(",")
    assert one["match"] == {"prefix": "/"}
    assert one["route"]["weighted_clusters"] == {"clusters": [{"name": "web.shop:80", "weight": 1}]}
    (at,) = told[ENDPOINTS].body["endpoints"][0]["lb_endpoints"]
    assert at["endpoint"]["address"]["socket_address"] == {"address": "10.0.0.1", "port_value": 8080}
    assert of_route(route(), [gateway()]) == GOOD
    status = gateway_status(gateway(), decision.gateways[EDGE], NOW)
    assert status["addresses"] == [{"type": "IPAddress", "value": "100.0.0.9"}]
    assert status["listeners"][0]["attachedRoutes"] == 1
    assert conditions(status["conditions"]) == {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")}
    assert {each["observedGeneration"] for each in status["conditions"]} == {3}
    assert "gives Service minik8s-gateway-edge no address" in status["conditions"][1]["message"]


@pytest.mark.parametrize(
    ("parent", "listeners", "spec", "reason"),
    [
        ({"sectionName": "none"}, [listener()], {}, "NoMatchingParent"),
        ({"port": 81}, [listener()], {}, "NoMatchingParent"),
        ({"sectionName": "http", "port": 81}, [listener()], {}, "NoMatchingParent"),
        ({}, [listener(hostname="a.example")], {"hostnames": ["b.example"]}, "NoMatchingListenerHostname"),
        ({}, [listener(hostname="*.a.example")], {"hostnames": ["a.example"]}, "NoMatchingListenerHostname"),
        ({}, [listener(allowedRoutes={"kinds": [{"kind": "TCPRoute"}]})], {}, "NotAllowedByListeners"),
        ({}, [listener()], {"namespace": "elsewhere"}, "NotAllowedByListeners"),
        ({}, [listener(allowedRoutes={"namespaces": {"from": "None"}})], {}, "NotAllowedByListeners"),
    ],
)
def test_a_route_that_no_listener_takes_says_why(
    parent: JsonObject, listeners: list[JsonObject], spec: JsonObject, reason: str
):
    one = route(parent=parent, **spec)
    assert of_route(one, [gateway(*listeners)])["Accepted"] == ("False", reason)
    assert all(each.type_url in {LISTENER, ROUTES} for each in decide([gateway(*listeners)], [one]).told[EDGE])


@pytest.mark.parametrize(
    ("allowed", "takes"),
    [
        ({"from": "All"}, True),
        ({"from": "Same"}, False),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "x"}}}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "y"}}}, False),
        ({"from": "Selector", "selector": {"matchExpressions": [{"key": "team", "operator": "Near"}]}}, False),
    ],
)
def test_a_listener_takes_routes_of_the_namespaces_it_says(allowed: JsonObject, takes: bool):  # noqa: FBT001
    one = route(namespace="elsewhere", rules=[{"backendRefs": [{"name": "other", "port": 80}]}])
    found = of_route(
        one, [gateway(listener(allowedRoutes={"namespaces": allowed}))], namespaces={"elsewhere": {"team": "x"}}
    )
    assert found["Accepted"][0] == str(takes)


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ({"name": "web", "port": 80}, "ResolvedRefs"),
        ({"name": "gone", "port": 80}, "BackendNotFound"),
        ({"name": "web", "port": 81}, "BackendNotFound"),
        ({"name": "web", "kind": "Bucket", "group": "x"}, "InvalidKind"),
        ({"name": "other", "namespace": "elsewhere", "port": 80}, "RefNotPermitted"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named_and_answered_500(ref: JsonObject, reason: str):
    one = route(rules=[{"backendRefs": [ref]}])
    assert of_route(one, [gateway()])["ResolvedRefs"][1] == reason
    ((told,),) = hosts(decide([gateway()], [one]))["shop/edge:80"].values()
    (share,) = told["route"]["weighted_clusters"]["clusters"]
    assert (share["name"] == "no-such-backend") == (reason != "ResolvedRefs")
    assert told["route"]["cluster_not_found_response_code"] == "INTERNAL_SERVER_ERROR"


@pytest.mark.parametrize(
    ("whence", "whither", "reason"),
    [
        (("HTTPRoute", "shop"), {"kind": "Service", "group": ""}, "ResolvedRefs"),
        (("HTTPRoute", "shop"), {"kind": "Service", "group": "", "name": "other"}, "ResolvedRefs"),
        (("HTTPRoute", "shop"), {"kind": "Service", "group": "", "name": "web"}, "RefNotPermitted"),
        (("HTTPRoute", "third"), {"kind": "Service", "group": ""}, "RefNotPermitted"),
        (("Gateway", "shop"), {"kind": "Service", "group": ""}, "RefNotPermitted"),
        (("HTTPRoute", "shop"), {"kind": "Secret", "group": ""}, "RefNotPermitted"),
    ],
)
def test_another_namespace_grants_references(whence: tuple[str, str], whither: JsonObject, reason: str):
    spec = {"from": [{"group": GROUP, "kind": whence[0], "namespace": whence[1]}], "to": [whither]}
    one = route(rules=[{"backendRefs": [{"name": "other", "namespace": "elsewhere", "port": 80}]}])
    grants = [obj("ReferenceGrant", "g", spec, "elsewhere")]
    assert of_route(one, [gateway()], grants=grants)["ResolvedRefs"][1] == reason
    assert of_route(one, [gateway()], grants=[{**grants[0], "metadata": {"name": "g", "namespace": "third"}}])[
        "ResolvedRefs"
    ] == ("False", "RefNotPermitted")


@pytest.mark.parametrize("address", ["100.0.0.1", "None"])
def test_a_service_with_slices_of_both_families_is_reached_by_that_of_its_address(address: str):
    """As in upstream's HTTPRouteServiceTypes, whose slice of IPv6 is empty where Pods have no such address."""
    bare = {**slice_of(), "metadata": {**slice_of()["metadata"], "name": "ip6"}, "addressType": "IPv6"}
    others = [{field: value for field, value in bare.items() if field != "endpoints"},
              {**bare, "endpoints": [{"addresses": ["2001:db8::1"], "conditions": {"ready": True}}]}]  # fmt: skip
    classes = [obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")]
    for other in others:
        declared = Declared(classes, [gateway()], [route()], services=[service(clusterIP=address)],
                            slices=[other, slice_of()])  # fmt: skip
        told = decide_gateways(declared).told[EDGE]
        (found,) = (each.body["endpoints"][0]["lb_endpoints"] for each in told if each.type_url == ENDPOINTS)
        assert [each["endpoint"]["address"]["socket_address"]["address"] for each in found] == ["10.0.0.1"]


def test_hosts_are_answered_by_the_listener_that_says_most_about_them():
    """Listeners are isolated: what is attached to the wide one does not answer for the narrow one's names."""
    listeners = [listener("all"), listener("wild", hostname="*.example"), listener("one", hostname="a.example")]
    routes = [
        route("wide", parent={"sectionName": "all"}, hostnames=["a.example", "b.example", "else.test"]),
        route("wild", parent={"sectionName": "wild"}),
    ]
    found = hosts(decide([gateway(*listeners)], routes))["shop/edge:80"]
    assert {name: [each["name"] for each in told] for name, told in found.items()} == {
        "*": [],
        "*.example": ["shop/wild"],
        "a.example": [],
        "else.test": ["shop/wide"],
    }


def test_of_several_matches_the_one_that_says_most_goes_first():
    def matches(*found: JsonObject) -> list[JsonObject]:
        return [{"matches": [each], "backendRefs": [{"name": "web", "port": 80}]} for each in found]

    header = [{"name": "v", "value": "1"}]
    rules = matches(
        {"path": {"type": "PathPrefix", "value": "/"}},
        {"path": {"type": "PathPrefix", "value": "/a"}},
        {"path": {"type": "PathPrefix", "value": "/a"}, "headers": header},
        {"path": {"type": "PathPrefix", "value": "/a"}, "method": "GET"},
        {"path": {"type": "Exact", "value": "/a"}},
        {"path": {"type": "PathPrefix", "value": "/a/long/"}},
        {"path": {"type": "PathPrefix", "value": "/a"}, "queryParams": header},
    )
    older = route("z", rules=matches({"path": {"type": "Exact", "value": "/a"}}), created="2025-01-01T00:00:00Z")
    (told,) = hosts(decide([gateway()], [route(rules=rules), older]))["shop/edge:80"].values()
    exact = {"string_match": {"exact": "1"}, "name": "v"}
    assert [each["match"] for each in told] == [
        {"path": "/a"},
        {"path": "/a"},
        {"path_separated_prefix": "/a/long"},
        {"path_separated_prefix": "/a", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]},
        {"path_separated_prefix": "/a", "headers": [exact]},
        {"path_separated_prefix": "/a", "query_parameters": [exact]},
        {"path_separated_prefix": "/a"},
        {"prefix": "/"},
    ]
    assert [each["name"] for each in told[:2]] == ["shop/z", "shop/web"]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"filters": [{"type": "ExtensionRef", "extensionRef": {}}]}, "ExtensionRef"),
        ({"backendRefs": [{"name": "web", "port": 80, "filters": [{"type": "URLRewrite"}]}]}, "URLRewrite"),
        ({"matches": [{"path": {"type": "RegularExpression", "value": "("}}]}, "("),
        ({"timeouts": {"request": "soon"}}, "soon"),
        ({"retry": {"attempts": 1}}, "retry"),
        (
            {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["Host"]}}]},
            "Host",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(rule: JsonObject, told: str):
    one = route(rules=[rule])
    decision = decide([gateway()], [one])
    assert decision.routes[Key("shop", "web")].unsupported is not None
    (parent,) = route_status(one, decision.routes[Key("shop", "web")], NOW)["parents"]
    accepted = parent["conditions"][0]
    assert (accepted["status"], accepted["reason"]) == ("False", "UnsupportedValue")
    assert told in accepted["message"]
    assert not any(each.type_url == CLUSTER for each in decision.told[EDGE])


def test_listeners_that_are_not_served_say_why():
    assert of_listener(listener(protocol="UDP"))["Accepted"] == ("False", "UnsupportedProtocol")
    kinds = {"kinds": [{"kind": "TCPRoute"}]}
    assert of_listener(listener(allowedRoutes=kinds))["ResolvedRefs"] == ("False", "InvalidRouteKinds")
    assert of_listener(listener())["Conflicted"] == ("False", "NoConflicts")
    both = gateway(listener("a"), listener("b", protocol="HTTPS"))
    told = gateway_status(both, decide([both], []).gateways[EDGE], NOW)
    assert {conditions(each["conditions"])["Conflicted"] for each in told["listeners"]} == {
        ("True", "ProtocolConflict")
    }
    assert conditions(told["conditions"])["Accepted"] == ("False", "ListenersNotValid")


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ({"name": "good"}, "ResolvedRefs"),
        ({"name": "gone"}, "InvalidCertificateRef"),
        ({"name": "bad"}, "InvalidCertificateRef"),
        ({"name": "good", "kind": "ConfigMap"}, "InvalidCertificateRef"),
        ({"name": "good", "group": "x"}, "InvalidCertificateRef"),
        ({"name": "good", "namespace": "elsewhere"}, "RefNotPermitted"),
    ],
)
def test_a_listener_without_its_certificate_is_not_served(ref: JsonObject, reason: str):
    certificates = {Key("shop", "good"): Certificate("c", "k"), Key("shop", "bad"): "no PEM"}
    secured = listener("https", 443, "HTTPS", hostname="a.example", tls={"mode": "Terminate", "certificateRefs": [ref]})
    assert of_listener(secured, certificates=certificates)["ResolvedRefs"][1] == reason
    told = decide([gateway(secured)], [], certificates=certificates).told[EDGE]
    chains = [chain for each in told if each.type_url == LISTENER for chain in each.body["filter_chains"]]
    assert len(chains) == (reason == "ResolvedRefs")
    assert all(chain["filter_chain_match"] == {"server_names": ["a.example"]} for chain in chains)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"addresses": [{"value": "192.0.2.1"}]}, "UnsupportedAddress"),
        ({"infrastructure": {"parametersRef": {"name": "x"}}}, "InvalidParameters"),
        ({"infrastructure": {"annotations": {"minik8s.io/x": ""}}}, "InvalidParameters"),
        ({"infrastructure": {"labels": {"gateway.networking.k8s.io/gateway-name": "x"}}}, "InvalidParameters"),
    ],
)
def test_a_gateway_that_cannot_be_made_says_why_and_is_told_nothing(spec: JsonObject, reason: str):
    found = gateway(**spec)
    told = of_gateway(found)
    assert (told["Accepted"], told["Programmed"][0]) == (("False", reason), "False")
    assert decide([found], []).told == {}


def test_a_gateway_is_programmed_once_a_pod_of_it_is_ready():
    classes = [obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")]
    parts = name_of_parts("edge")
    for services, reason in (([], "AddressNotAssigned"), ([service(parts)], "NoResources")):
        verdict = decide_gateways(Declared(classes, [gateway()], services=services)).gateways[EDGE]
        found = gateway_status(gateway(), verdict, NOW)
        assert conditions(found["conditions"])["Programmed"] == ("False", reason)


def test_classes_of_others_are_left_alone():
    classes = [obj("GatewayClass", "ours", {"controllerName": "example.com/other"}, "")]
    assert decide_gateways(Declared(classes, [gateway()], [route()])) == Decision({}, {}, {})
    parameters = obj("GatewayClass", "ours", {"controllerName": CONTROLLER, "parametersRef": {"name": "x"}}, "")
    assert conditions(class_status(parameters, NOW)["conditions"])["Accepted"] == ("False", "InvalidParameters")
    assert decide_gateways(Declared([parameters], [gateway()], [route()])) == Decision({}, {}, {})


def test_parents_that_others_keep_stay_and_a_time_changes_with_its_status_alone():
    theirs = {"controllerName": "example.com/other", "parentRef": {"name": "x"}, "conditions": []}
    one = {**route(), "status": {"parents": [theirs]}}
    first = route_status(one, decide([gateway()], [one]).routes[Key("shop", "web")], NOW)
    assert first["parents"][0] == theirs
    again = {**one, "status": first}
    later = NOW.replace(year=2027)
    assert route_status(again, decide([gateway()], [again]).routes[Key("shop", "web")], later) == first
    assert route_status(again, None, later)["parents"] == [theirs]


def test_names_of_gateways_that_differ_are_names_of_parts_that_differ():
    names = ["a.b", "a-b", "a" * 60, "a" * 61, "a" * 253]
    found = {name_of_parts(name) for name in names}
    assert len(found) == len(names)
    assert all(len(name) <= 63 and "." not in name for name in found)


def test_envoys_messages_are_made_of_all_that_can_be_declared():
    mirror = {"backendRef": {"name": "web", "port": 80}, "fraction": {"numerator": 1, "denominator": 3}}
    change = {"set": [{"name": "a", "value": "50%"}], "add": [{"name": "b", "value": "1"}], "remove": ["c"]}
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/a"}, "method": "GET"}],
            "filters": [
                {"type": "RequestHeaderModifier", "requestHeaderModifier": change},
                {"type": "ResponseHeaderModifier", "responseHeaderModifier": change},
                {"type": "RequestMirror", "requestMirror": mirror},
                {"type": "URLRewrite", "urlRewrite": {"hostname": "b.example", "path": path}},
            ],
            "backendRefs": [{"name": "web", "port": 80, "weight": 3}, {"name": "gone", "port": 80}],
            "timeouts": {"request": "1m30s", "backendRequest": "500ms"},
        },
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "path": path}}]},
        {"backendRefs": [{"name": "web", "port": 80, "weight": 0}]},
    ]
    secured = listener("https", 443, "HTTPS", tls={"certificateRefs": [{"name": "good"}]})
    certificates = {Key("shop", "good"): Certificate("chain", "key")}
    decision = decide([gateway(listener(), secured)], [route(rules=rules)], certificates=certificates)
    for each in decision.told[EDGE]:
        assert message_of(each).packed.value
    (first, second, third) = next(iter(hosts(decision)["shop/edge:80"].values()))
    assert first["request_headers_to_add"][0]["header"] == {"key": "a", "value": "50%%"}
    action = first["route"]
    assert [each["weight"] for each in action["weighted_clusters"]["clusters"]] == [3, 1]
    assert (action["timeout"], action["retry_policy"]["per_try_timeout"]) == ("90s", "0.500s")
    assert action["regex_rewrite"] == {"pattern": {"regex": "^/a/*"}, "substitution": "/"}
    share = action["request_mirror_policies"][0]["runtime_fraction"]["default_value"]
    assert share == {"numerator": 333333, "denominator": "MILLION"}
    assert second["redirect"]["scheme_redirect"] == "https"
    assert "port_redirect" not in second["redirect"]
    assert third["direct_response"] == {"status": 500}
