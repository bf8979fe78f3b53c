"""What a plan says of Gateways and HTTPRoutes: where requests would go, what controllers would make, what is wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE, Kind
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.controllers.network.gateways import PARTS as KINDS_OF_PARTS
from minik8s_modules.controllers.network.gateways import Apply, decide_gateway
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from minik8s_modules.reconcile.planning.questions import Operation, Question, parse_question
from minik8s_modules.reconcile.planning.simulated_mesh import mesh_notes
from minik8s_modules.reconcile.planning.simulated_routes import Secrets
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices, allocated
from minik8s_modules.reconcile.planning.simulation import (
    PlannedState,
    planned_state,
)
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene
from tests.support.pki import Authority
from tests.unit.mesh.gateways.declared import NOW, gateway, listener, obj, route, service, slice_of
from tests.unit.mesh.namespaces import virtual_service
from tests.unit.reconcile.loop.test_loop import Cluster as Memory
from tests.unit.reconcile.planning.test_plan import ask
from tests.unit.reconcile.planning.test_plan import cluster as memory
from tests.unit.reconcile.planning.test_random_rollouts import node

__all__ = ["memory"]

CLASS = obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, "")
PARTS = name_of_parts("edge")
TO_NEXT: dict[str, Any] = {"rules": [{"backendRefs": [{"name": "next", "port": 80}]}]}
CALLED = {"group": "", "kind": "Service", "name": "web"}


def pods_of(name: str, *pods: str, namespace: str = "shop") -> JsonObject:
    """Return the slice of a Service with these Pods."""
    made = slice_of(name, namespace, *(f"10.0.{len(name)}.{number}" for number in range(1, len(pods) + 1)))
    for endpoint, pod in zip(made["endpoints"], pods, strict=True):
        endpoint["targetRef"] = {"kind": "Pod", "name": pod}
    return made


def cluster(*gateways: JsonObject, mesh: tuple[JsonObject, ...] = (), more: tuple[JsonObject, ...] = ()) -> Cluster:
    services = [service(), service("next", clusterIP="100.0.0.2"), service("other", "elsewhere", clusterIP="100.0.0.3"),
                service(PARTS, clusterIP="100.0.0.9"), *more]  # fmt: skip
    slices = {
        "shop/web": [pods_of("web", "web-a", "web-b")],
        "shop/next": [pods_of("next", "next-a")],
        "elsewhere/other": [pods_of("other", "other-a", namespace="elsewhere")],
    }
    client = {"containers": [{"name": "app", "image": "i"}]}
    callers = tuple(
        {"metadata": {"name": "client", "namespace": space}, "spec": with_sidecar(client)} for space in ("shop", "far")
    )
    spaces = tuple({"metadata": {"name": name, "labels": {"name": name}}} for name in ("shop", "elsewhere"))
    return Cluster(
        callers, (), (), services=tuple(services), slices=lambda key: slices.get(key, []), mesh=mesh,
        gateways=(CLASS, *gateways), scene=Scene(Profiles(), spaces),
    )  # fmt: skip


def notes(
    cluster: Cluster, *operations: tuple[str, JsonObject], seen: PlannedServices | None = None, **secrets: Any
) -> list[str]:
    question = Question(tuple(Operation(*each) for each in operations), frozenset())
    return [note.text for note in mesh_notes(question, seen or PlannedServices(), cluster, Secrets(**secrets))]


def within(name: str = "all", namespace: str = "shop", **spec: Any) -> JsonObject:
    return route(name, namespace=namespace, parent={**CALLED, "namespace": "shop"}, **spec)


EDGE = "Gateway shop/edge would lead requests to any host, port 80 otherwise: "


def test_a_route_that_comes_changes_or_goes_is_shown_with_its_pods():
    assert notes(cluster(gateway()), ("create", route())) == [f"{EDGE}no rule → web-a 50%, web-b 50%"]
    assert notes(cluster(gateway(), route()), ("update", route(**TO_NEXT))) == [
        f"{EDGE}web-a 50%, web-b 50% → next-a 100%"
    ]
    assert notes(cluster(gateway(), route()), ("update", route())) == []
    assert notes(cluster(gateway(), route()), ("delete", route())) == [f"{EDGE}web-a 50%, web-b 50% → no rule"]


def test_matches_weights_and_what_else_is_done_are_told_each():
    shares = [{"name": "web", "port": 80, "weight": 3}, {"name": "next", "port": 80}, {"name": "gone", "port": 80}]
    path = {"path": {"type": "PathPrefix", "value": "/a"}}
    changed = [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x", "value": "50%"}]}}]
    rules = [
        {"matches": [path], "backendRefs": shares, "timeouts": {"request": "5s"}, "filters": changed},
        {"backendRefs": [{"name": "web", "port": 80}]},
    ]
    shown = notes(cluster(gateway(), route()), ("update", route(hostnames=["a.example"], rules=rules)))
    pods = "web-a 30%, web-b 30%, next-a 20%, 20% 500: there is no such backend"
    path_a = f"{pods}, timeout 5s, header x: 50% set in the request"
    to_web = "web-a 50%, web-b 50%"
    assert shown == [
        f"{EDGE.replace('any host', 'a.example')}path /a and below: no rule → {path_a}; no rule → {to_web}",
        f"{EDGE}{to_web} → no rule",
        "HTTPRoute shop/web: Gateway edge: ResolvedRefs would be False: BackendNotFound: there is no Service shop/gone",
    ]


def test_what_changes_behind_a_route_is_a_change_of_the_route():
    seen = PlannedServices({"shop/web": service()}, {"shop/web": [pods_of("web", "web-c")]})
    assert notes(cluster(gateway(), route()), seen=seen) == [f"{EDGE}web-a 50%, web-b 50% → web-c 100%"]
    gone = PlannedServices({"shop/web": None}, {"shop/web": []})
    assert notes(cluster(gateway(), route()), seen=gone) == [
        f"{EDGE}web-a 50%, web-b 50% → 500: there is no such backend",
        "HTTPRoute shop/web: Gateway edge: ResolvedRefs would be False: BackendNotFound: there is no Service shop/web",
    ]


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (route(parent={"sectionName": "x"}), "Accepted would be False: NoMatchingParent"),
        (
            route(namespace="elsewhere"),
            "Accepted would be False: NotAllowedByListeners: no listener takes an HTTPRoute",
        ),
        (route(rules=[{"backendRefs": [{"name": "web", "port": 81}]}]), "BackendNotFound: Service shop/web has no TCP"),
        (
            route(rules=[{"backendRefs": [{"name": "other", "namespace": "elsewhere", "port": 80}]}]),
            "RefNotPermitted: no ReferenceGrant of namespace elsewhere lets HTTPRoutes of shop",
        ),
        (route(rules=[{"retry": {"attempts": 1}}]), "Accepted would be False: UnsupportedValue: rule 1: retry"),
        (within(parentRefs=[{**CALLED, "port": 81}]), "NoMatchingParent: Service shop/web has no such TCP port"),
        (route(parent={"name": "gone"}), "neither a Gateway of minik8s nor a Service is its parent: Gateway gone"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(one: JsonObject, told: str):
    shown = notes(cluster(gateway()), ("create", one))
    assert any(told in text and text.startswith(f"HTTPRoute {objects.key(one)}: ") for text in shown), shown


def test_a_gateway_that_comes_says_what_of_it_is_not_served(tmp_path: Path):
    secured = listener("https", 443, "HTTPS", tls={"certificateRefs": [{"name": "edge-tls"}]})
    both = gateway(listener(), secured, listener("also", port=80))
    shown = notes(cluster(), ("create", both))
    conflict = "Accepted would be False: HostnameConflict: several listeners of port 80 have the hostname of all"
    missing = "ResolvedRefs would be False: InvalidCertificateRef: there is no Secret shop/edge-tls"
    wrong = {"http": conflict, "https": missing, "also": conflict}
    assert [text for text in shown if "listener" in text] == [
        f"Gateway shop/edge: listener {name}: {why}" for name, why in wrong.items()
    ]
    made = Authority(tmp_path, "ca").issue("edge", "edge")
    data = {"tls.crt": made.cert, "tls.key": made.key}
    secret = {"type": "kubernetes.io/tls",
              "data": {name: base64.b64encode(file.read_bytes()).decode() for name, file in data.items()}}  # fmt: skip
    shown = notes(cluster(), ("create", gateway(secured)), then=lambda *_: secret)
    assert not any("listener" in text for text in shown)
    # the Secret of one that stands goes
    shown = notes(cluster(gateway(secured)), ("delete", {"kind": "Secret", "metadata": {}}), now=lambda *_: secret)
    assert shown == [f"Gateway shop/edge: listener https: {missing}"]


def test_a_gateway_of_a_class_that_there_is_not_says_so_and_one_of_others_nothing():
    other = obj("GatewayClass", "theirs", {"controllerName": "example.com/x"}, "")
    named = gateway()
    named["spec"]["gatewayClassName"] = "none"
    assert notes(cluster(other), ("create", named)) == [
        "Gateway shop/edge: there is no GatewayClass none: nothing would be made of it"
    ]
    named["spec"]["gatewayClassName"] = "theirs"
    assert notes(cluster(other), ("create", named)) == []


def test_a_gateway_whose_ports_nodes_keep_says_where_it_would_be_reached():
    (text,) = notes(cluster(), ("create", gateway()))
    assert "load balancing gives Service minik8s-gateway-edge no address" in text


def test_a_grant_changes_the_routes_that_need_it():
    away = route(rules=[{"backendRefs": [{"name": "other", "namespace": "elsewhere", "port": 80}]}])
    spec = {"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}],
            "to": [{"group": "", "kind": "Service"}]}  # fmt: skip
    grant = obj("ReferenceGrant", "shop", spec, "elsewhere")
    assert notes(cluster(gateway(), away), ("create", grant)) == [
        f"{EDGE}500: there is no such backend → elsewhere/other-a 100%"
    ]
    change, fault = notes(cluster(gateway(), away, grant), ("delete", grant))
    assert change == f"{EDGE}elsewhere/other-a 100% → 500: there is no such backend"
    assert "RefNotPermitted: no ReferenceGrant of namespace elsewhere lets HTTPRoutes of shop lead to Service" in fault


def test_a_producer_changes_all_namespaces_sidecars_and_takes_a_virtual_services_port():
    split = {**virtual_service("x", serviceRef="web", port=80, subsets=[{"name": "v1", "weight": 1}]),
             "kind": "VirtualService"}  # fmt: skip
    v1 = {"kind": "Subset", "metadata": {"name": "v1", "namespace": "shop"}, "spec": {"pods": ["web-a"]}}
    made = within(**TO_NEXT)
    assert notes(cluster(mesh=(split, v1)), ("create", made)) == [
        "1 sidecar of namespace far would send requests to web.shop:80 otherwise: not by the mesh → shop/next-a 100%",
        "1 sidecar of namespace shop would send requests to web:80 otherwise: web-a 100% → next-a 100%",
        "VirtualService shop/x: Conflicted: HTTPRoute all leads the requests of that port",
    ]
    assert notes(cluster(made), ("delete", made)) == [
        "1 sidecar of namespace far would send requests to web.shop:80 otherwise: shop/next-a 100% → not by the mesh",
        "1 sidecar of namespace shop would send requests to web:80 otherwise: next-a 100% → web-a 50%, web-b 50%",
    ]


def test_a_consumer_changes_its_own_namespaces_sidecars():
    mine = within("mine", "far", rules=[{"backendRefs": [{"name": "web", "namespace": "shop", "port": 80}]}])
    change = "shop/next-a 100% → shop/web-a 50%, shop/web-b 50%"
    assert notes(cluster(within(**TO_NEXT)), ("create", mine)) == [
        f"1 sidecar of namespace far would send requests to web.shop:80 otherwise: {change}"
    ]


def test_who_may_not_read_a_backends_pods_is_not_shown_their_names():
    away = route(rules=[{"backendRefs": [{"name": "other", "namespace": "elsewhere", "port": 80}]}])
    question = Question((Operation("create", away),), frozenset())
    told, fault = mesh_notes(question, PlannedServices(), cluster(gateway()))
    shown = {(kind, space) for kind in ("HTTPRoute", "Service", "Pod") for space in ("shop", "elsewhere")}
    assert {(one.kind, one.namespace) for one in told.about} == {("Gateway", "shop"), *shown}
    assert [one.kind for one in fault.about] == ["HTTPRoute"]


def test_objects_of_other_groups_with_these_names_are_nobodys():
    theirs = {"apiVersion": "example.com/v1", "kind": "HTTPRoute", "metadata": {"name": "x"}, "spec": {}}
    older = {**route(), "apiVersion": f"{GATEWAY_KINDS.routes.group}/v1beta1"}
    asked = [{"operation": "create", "object": one} for one in (theirs, older)]
    (operation,) = parse_question({"objects": asked}).operations
    assert operation.object["apiVersion"] == GATEWAY_KINDS.routes.api_version


def test_what_the_controllers_make_of_a_gateway_comes_with_the_plan(memory: Memory):
    """The Deployment's Pod goes to the node, and the Service has rules, before either exists."""
    one = {**gateway(listener(port=8080)), "metadata": {"name": "edge", "namespace": "default"}}
    told = ask(memory, ("create", CLASS), ("create", one))
    made = f"Gateway default/edge: the controllers would create ServiceAccount, Deployment and Service {PARTS}"
    assert made in told["messages"]
    (place,) = told["order"]
    assert place["action"] == "create"
    assert place["pod"].startswith(f"default/{PARTS}-")
    assert place["workload"] == "Gateway/edge"
    assert memory.api.list(SERVICE).items == []


def planned(operation: str, one: JsonObject, *known: JsonObject) -> PlannedState:
    """Return what would be, over a node that has room."""
    found = planned_state(Question((Operation(operation, one),), frozenset()), [], [node("n", 10)], NOW, known)
    return allocated(found, [each for each in known if each.get("kind") == "Service"], "100.0.0.0/24")


def edge(*ports: int, **spec: Any) -> JsonObject:
    """Return a Gateway that stands."""
    made = gateway(*(listener(f"l{port}", port) for port in ports), **spec)
    return {**made, "metadata": {**made["metadata"], "uid": placeholder_uid("shop", "Gateway/edge")}}


def parts(one: JsonObject) -> list[JsonObject]:
    """Return what stands of a Gateway, as the API server completes it."""
    none: dict[Kind, JsonObject | None] = dict.fromkeys(KINDS_OF_PARTS)
    found = [each.obj for each in decide_gateway(one, CLASS, none) if isinstance(each, Apply)]
    (balancer,) = (each for each in found if each["kind"] == "Service")
    balancer["spec"]["clusterIP"] = "100.0.0.7"
    for number, port in enumerate(balancer["spec"]["ports"]):
        port["nodePort"] = 31000 + number
    for each in found:
        each["metadata"]["uid"] = placeholder_uid("shop", each["kind"])
    return found


def balancer_of(found: PlannedState) -> JsonObject:
    balancer = found.services[f"shop/{PARTS}"]
    assert balancer is not None
    return objects.spec(balancer)


def test_a_new_gateways_service_has_the_next_address_and_port():
    taken = {**service(clusterIP="100.0.0.2"), "apiVersion": "v1", "kind": "Service"}
    balancer = balancer_of(planned("create", edge(80), CLASS, taken))
    assert (balancer["type"], balancer["clusterIP"]) == ("LoadBalancer", "100.0.0.3")
    assert [(each["port"], each["nodePort"]) for each in balancer["ports"]] == [(80, 30086)]


def test_a_port_that_comes_keeps_the_others_node_ports_and_replaces_no_pod():
    found = planned("update", edge(80, 8080), CLASS, edge(80), *parts(edge(80)))
    balancer = balancer_of(found)
    assert balancer["clusterIP"] == "100.0.0.7"
    assert {each["port"]: each["nodePort"] for each in balancer["ports"]} == {80: 31000, 8080: 30086}
    stays = planned("update", edge(80), CLASS, edge(80), *parts(edge(80)))
    assert stays.services == {}


def test_a_gateway_that_goes_takes_its_service_along_and_a_deployment_that_goes_comes_back():
    gone = planned("delete", edge(80), CLASS, edge(80), *parts(edge(80)))
    assert gone.services == {f"shop/{PARTS}": None}
    (deployment,) = (each for each in parts(edge(80)) if each["kind"] == "Deployment")
    again = planned("delete", deployment, CLASS, edge(80), *parts(edge(80)))
    assert [each["action"] for each in again.order] == ["create"]
    assert any("the controllers would create Deployment minik8s-gateway-edge" in each.text for each in again.messages)


def test_an_edit_of_what_a_gateway_runs_as_is_reverted_and_changes_no_pod_and_no_rule():
    stand = [CLASS, edge(80), *parts(edge(80))]
    (deployment,) = (each for each in parts(edge(80)) if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    deployment["spec"]["replicas"] = 2
    found = planned("update", deployment, *stand)
    told = f"Gateway shop/edge: Deployment {PARTS} differs from what the Gateway declares, and is reverted: "
    assert f"{told}spec.template.spec.containers[envoy].image" in [each.text for each in found.messages]
    images = {pod["spec"]["containers"][0]["image"] for pod in found.pods.values() if pod is not None}
    assert (images, len(found.pods)) == ({"minik8s/envoy:1"}, 2)  # the replicas are the Deployment's to say

    (balancer,) = (each for each in parts(edge(80)) if each["kind"] == "Service")
    balancer["spec"]["ports"][0]["port"] = 81
    renumbered = planned("update", balancer, *stand)
    told = f"Gateway shop/edge: Service {PARTS} differs from what the Gateway declares, and is reverted: "
    assert [each.text for each in renumbered.messages if each.text.startswith(told)]
    assert [each["port"] for each in balancer_of(renumbered)["ports"]] == [80]


def test_a_class_that_comes_makes_its_gateways_and_a_name_that_is_taken_is_told():
    found = planned("create", CLASS, edge(80))
    assert f"shop/{PARTS}" in found.services
    theirs = {**service(PARTS, clusterIP="100.0.0.9"), "apiVersion": "v1", "kind": "Service"}
    told = [each.text for each in planned("create", edge(80), CLASS, theirs).messages]
    assert f"Gateway shop/edge: Service {PARTS} is there and is not this Gateway's" in told
