"""Why a Gateway lets nothing in, and why an HTTPRoute leads nowhere."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.checks import FINE, Verdict, judge
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
