"""Why a Gateway lets nothing in, and why an HTTPRoute leads nowhere."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import DEPLOYMENT, SERVICE
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.checks import FINE, Verdict, judge
from minik8s_modules.controllers.network.gateways import Apply, decide_gateway
from tests.unit.cli.causes.logged_api import LoggedApi, put


def verdict_on(found: JsonObject, *others: JsonObject) -> Verdict:
    """Return the verdict on an object of a custom kind, beside others that are built in."""
    api = LoggedApi()
    put(api, *others)
    return judge(found, api.around())


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> JsonObject:
    return {"type": kind, "status": status, "reason": reason or kind, "message": message}


GOOD = [condition("Accepted"), condition("Programmed")]


def custom(kind: str, spec: JsonObject, status: JsonObject) -> JsonObject:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": spec,
        "status": status,
    }


def gateway(*listeners: JsonObject, conditions: Any = GOOD) -> JsonObject:
    return custom("Gateway", {"gatewayClassName": "ours"}, {"conditions": conditions, "listeners": [*listeners]})


def route(**status: Any) -> JsonObject:
    parents = [{"group": "", "kind": "Service", "name": "web"}]
    rules = [{"backendRefs": [{"name": "web", "port": 80}]}]
    return custom("HTTPRoute", {"parentRefs": parents, "rules": rules}, status)


def test_a_gateway_names_the_listener_that_is_not_served_and_is_well_without():
    bad = {"name": "https", "conditions": [condition("ResolvedRefs", "False", "InvalidCertificateRef", "no Secret")]}
    (fault,) = verdict_on(gateway(bad)).faults
    assert fault.cause == "listener https: ResolvedRefs is False: InvalidCertificateRef: no Secret"
    assert fault.next == "kubectl -n shop edit gateway/edge"
    verdict = verdict_on(gateway({"name": "http", "conditions": [condition("Conflicted", "False")]}))
    assert (verdict.faults, verdict.otherwise, verdict.certain) == ((), FINE, True)


def parts(one: JsonObject) -> tuple[JsonObject, dict[Kind, JsonObject]]:
    """Return the class of a Gateway of ours, and the objects that the controllers make for it."""
    ours = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "ours"},
        "spec": {"controllerName": CONTROLLER},
    }
    one["metadata"]["uid"] = "u"
    one["spec"]["listeners"] = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    return ours, {step.kind: step.obj for step in decide_gateway(one, ours, {}) if isinstance(step, Apply)}


def test_the_pod_of_a_gateway_is_well_without_mutual_tls():
    _ours, made = parts(gateway())
    template = made[DEPLOYMENT]["spec"]["template"]
    meta = {**template["metadata"], "name": "edge-1", "namespace": "shop"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
    labels = {"minik8s.io/inject": "enabled", "minik8s.io/mtls": "strict"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}
    running = {**pod, "status": {"phase": "Running"}}
    assert verdict_on(running, space).faults == ()
    other = {**running, "metadata": {"name": "web", "namespace": "shop", "labels": {"minik8s.io/inject": "disabled"}}}
    (fault,) = verdict_on(other, space).faults
    assert "takes connections of anybody" in fault.cause


def test_a_gateway_names_what_of_its_objects_is_changed_by_hand_and_not_reverted_yet():
    one = gateway()
    ours, made = parts(one)
    made[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"
    api = LoggedApi()
    put(api, *made.values())
    api.create(GATEWAY_KINDS.classes, ours)
    fault = judge(one, api.around()).faults[0]
    said = f"Deployment {name_of_parts('edge')} differs from what the Gateway declares, and is reverted: "
    assert fault.cause == f"{said}spec.template.spec.containers[envoy].image"
    assert fault.next == "kubectl -n kube-system get lease/minik8s-controllers"


def test_a_gateway_or_route_that_nobody_has_decided_on_says_so():
    pending = [condition("Accepted", "Unknown", "Pending", "Waiting for controller")]
    assert "no pilot has decided on it" in verdict_on(gateway(conditions=pending)).cause
    assert "there is no such parent: Service web" in verdict_on(route()).cause


def test_a_route_names_its_parent_and_the_backend_that_nobody_answers_for():
    parent = {
        "parentRef": {"group": "", "kind": "Service", "name": "web"},
        "conditions": [condition("Accepted", "False", "NoMatchingParent", "there is no Service shop/web")],
    }
    (fault,) = verdict_on(route(parents=[parent])).faults
    assert fault.cause == "Service web: Accepted is False: NoMatchingParent: there is no Service shop/web"
    well = {**parent, "conditions": GOOD[:1]}
    service = {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "100.0.0.1", "selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    (fault,) = verdict_on(route(parents=[well]), service).faults
    assert fault.cause.startswith("backend shop/web: ")
    assert fault.next == "minik8s why -n shop service/web"


def parent(name: str, *conditions: JsonObject) -> JsonObject:
    return {"parentRef": {"name": name}, "conditions": [*conditions]}


def test_a_route_names_each_parent_that_nobody_leads_requests_of():
    one = route(parents=[parent("edge", *GOOD[:1])])
    one["spec"]["parentRefs"] = [{"name": "edge"}, {"name": "gone"}]
    (fault,) = verdict_on(one).faults
    assert fault.cause == "nobody leads requests of Gateway gone by it: it is not there, or not one of ours"


def test_what_a_stopped_pilot_said_of_an_earlier_spec_is_not_taken_for_what_holds():
    old = {**condition("Accepted"), "observedGeneration": 1}
    one = gateway(conditions=[old, condition("Programmed")])
    one["metadata"]["generation"] = 2
    (fault,) = verdict_on(one).faults
    assert fault.cause == "no pilot has decided on its last change yet; what follows is of before"
    one["metadata"]["generation"] = 1
    assert verdict_on(one).faults == ()
    led = route(parents=[parent("edge", old)])
    led["metadata"]["generation"], led["spec"]["parentRefs"] = 2, [{"name": "edge"}]
    assert [each.cause for each in verdict_on(led).faults] == [
        "Gateway edge: no pilot has decided on its last change yet; what follows is of before"
    ]


def test_a_route_says_that_its_gateway_lets_nothing_in():
    closed = gateway(conditions=[GOOD[0], condition("Programmed", "False", "NoResources", "no Pod is ready")])
    one = route(parents=[parent("edge", *GOOD[:1])])
    one["spec"]["parentRefs"] = [{"name": "edge"}]
    api = LoggedApi()
    api.create(GATEWAY_KINDS.gateways, closed)
    (fault,) = judge(one, api.around()).faults
    assert fault.cause == "Gateway edge: Programmed is False: NoResources: no Pod is ready"
    assert fault.next == "minik8s why -n shop gateway/edge"
    refused = route(parents=[parent("edge", condition("Accepted", "False", "NotAllowedByListeners", "none"))])
    refused["spec"]["parentRefs"] = [{"name": "edge"}]
    assert ["Accepted is False" in each.cause for each in judge(refused, api.around()).faults] == [True]
