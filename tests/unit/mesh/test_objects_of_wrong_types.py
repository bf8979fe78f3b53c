"""Objects of wrong types, put into the store by hand, end nothing of what a pilot tells and writes of others.

Of each kind that it reads, objects are made that have one value of another type somewhere. Beside all of them a new
Service reaches the sidecars, a new listener its Gateway's Envoys, and conditions are written. A policy that cannot be
read lets nobody in, and holds up no other namespace.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    ROLLING_UPDATE,
    SECRET,
    SERVICE,
    SIDECAR_MAPPING,
    SUBSET,
    VIRTUAL_SERVICE,
)
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY, NONE, Caller, access, selecting
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS
from minik8s_modules.api.network.readable_policies import readable_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, STRICT
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.authorizations.filters import network_filters
from minik8s_modules.mesh.authorizations.guards import Policies
from minik8s_modules.mesh.messages import inbound_message
from minik8s_modules.mesh.reading import OUTLINES, READERS, misfit, with_readable_status
from minik8s_modules.mesh.resources import CLUSTER, LISTENER
from minik8s_modules.mesh.serving import ServingController
from minik8s_modules.mesh.statuses import StatusController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.authorization import define, policy
from tests.support.gateway_api import definitions
from tests.support.waiting import until
from tests.support.wrong_types import WRONG, made, places, put
from tests.unit.mesh.gateways.declared import gateway, listener, obj, route
from tests.unit.mesh.namespaces import declared

BUILT_IN = (SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET, ROLLING_UPDATE, SIDECAR_MAPPING, POD)
SPLIT = {"name": "x", "serviceRef": "reviews", "port": 9080, "subsets": [{"name": "v1", "weight": 1}]}
CASE = {
    "services": [{"name": "reviews", "ports": [9080]}, {"name": "late", "ports": [7070]}],
    "pods": {"reviews": ["a", "b"]},
    "subsets": {"v1": ["a"]},
    "virtual": [SPLIT],
}
GATEWAY = "shop/minik8s-gateway-edge"
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
CONDITION = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "x"}
FILTERS = [
    {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "b"}], "remove": ["c"]}},
    {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "a", "value": "b"}]}},
    {
        "type": "RequestMirror",
        "requestMirror": {"backendRef": {"name": "reviews", "port": 9080}, "fraction": {"numerator": 1}},
    },
    {
        "type": "URLRewrite",
        "urlRewrite": {"hostname": "h", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/"}},
    },
]
REDIRECT = {
    "type": "RequestRedirect",
    "requestRedirect": {
        "scheme": "https", "hostname": "h", "port": 8443, "statusCode": 301,
        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"},
    },
}  # fmt: skip
NAMED = {"type": "Exact", "name": "a", "value": "b"}
MATCH = {
    "path": {"type": "PathPrefix", "value": "/p"}, "method": "GET", "headers": [NAMED], "queryParams": [NAMED],
}  # fmt: skip
BACKEND = {"group": "", "kind": "Service", "name": "reviews", "namespace": "shop", "port": 9080, "weight": 1}
SOUND: dict[Kind, JsonObject] = {
    GATEWAY_KINDS.classes: {
        **obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, ""), "status": {"conditions": [CONDITION]},
    },
    GATEWAY_KINDS.gateways: {
        **gateway(
            listener(
                hostname="h.e.io",
                allowedRoutes={
                    "namespaces": {"from": "Selector", "selector": SELECTOR}, "kinds": [{"kind": "HTTPRoute"}],
                },
            ),
            listener("tls", 443, "HTTPS", tls={"mode": "Terminate", "certificateRefs": [{"name": "web"}]}),
            infrastructure={"labels": {"a": "b"}, "annotations": {"a": "b"}},
        ),
        "status": {"conditions": [CONDITION], "listeners": [{"name": "http", "conditions": [CONDITION]}]},
    },
    GATEWAY_KINDS.routes: {
        **route(
            parent={"sectionName": "http", "port": 80},
            hostnames=["h.e.io"],
            rules=[
                {"matches": [MATCH], "filters": FILTERS, "backendRefs": [{**BACKEND, "filters": FILTERS[:2]}],
                 "timeouts": {"request": "1s", "backendRequest": "1s"}},
                {"filters": [REDIRECT]},
            ],
        ),
        "status": {"parents": [{"controllerName": CONTROLLER, "conditions": [CONDITION]}]},
    },
    SECRET: {"type": "kubernetes.io/tls", "data": {"tls.crt": "eA==", "tls.key": "eA=="}},
    GATEWAY_KINDS.grants: obj(
        "ReferenceGrant", "any",
        {"from": [{"group": "g", "kind": "HTTPRoute", "namespace": "shop"}], "to": [{"group": "", "kind": "Secret"}]},
    ),
}  # fmt: skip
LABELS = {"a": "b"}
_SOURCE = {"principals": ["cluster.local/ns/bank/sa/p"], "notNamespaces": ["n"]}
_OPERATION = {"methods": ["GET"], "paths": ["/a"], "ports": ["80"], "notHosts": ["h"]}
WHOLE = policy(
    "any", {"from": [{"source": _SOURCE}], "to": [{"operation": _OPERATION}]}, namespace="bank", action="ALLOW",
    selector={"matchLabels": LABELS},
)  # fmt: skip
WRONG_IN_POLICIES: tuple[Any, ...] = (
    None, "", 1.5, [[]], ["*", None], ["8080-8090"], ["http"], ["-1"], ["99999999999"], ["80\n"], ["\ud800"], "\ud800",
    {"source": {}}, {"source": None}, {"sources": _SOURCE}, {"source": {"ipBlocks": ["10.0.0.0/8"]}},
    {"source": {"principles": ["p"]}}, {"source": {"principals": []}}, {"source": {"principals": None}},
    {"when": [{"key": "source.ip", "values": ["10.0.0.1"]}]}, {"from": []}, {"from": None}, {"from": [{}]},
    {"to": [{}]}, [{"from": []}], [{"source": {}}], [{"operation": {}}],
    {"matchExpressions": SELECTOR["matchExpressions"]},
    {"rules": [{"from": [{"source": {"ipBlocks": ["10.0.0.0/8"]}}]}]}, {"rules": None}, {"action": "AUDIT"},
)  # fmt: skip
"""What is read as "anybody", or ends what is made of it, if its form is not looked at."""
TWICE = 2
"""How many wrong values stand at each place inside; at the top, each of them."""


def sound(kind: Kind) -> JsonObject:
    """Return an object of a kind with everything that is read of it."""
    return SOUND[kind] if kind in SOUND else made(kind_shape(kind))


def damaged(kind: Kind) -> list[JsonObject]:
    """Return objects that have one value of another type each, outside of metadata, which API servers mend."""
    dice, whole = random.Random(kind.kind), sound(kind)
    where = [path for path in places(whole) if path[0] not in {"metadata", "apiVersion", "kind"}]
    deep = where if kind in SOUND else dice.sample(where, min(60, len(where)))
    chosen = [(path, dice.choice(WRONG)) for path in deep * TWICE]
    chosen += [(path, wrong) for path in where if len(path) == 1 for wrong in WRONG]
    found: list[JsonObject] = []
    for path, wrong in chosen:
        one = copy.deepcopy(whole)
        put(one, path, wrong)
        meta = {"name": f"d{len(found)}", "labels": {"kubernetes.io/service-name": "reviews"}}
        space = {"namespace": "shop"} if kind.namespaced else {}
        found.append({**one, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {**meta, **space}})
    return found


class World(NamedTuple):
    """An API, and the parts of a pilot that leads."""

    api: FakeApi
    context: Context
    serving: ServingController

    def names(self, scope: str, kind: str) -> set[str]:
        """Return what the sidecars of a namespace, or a Gateway's Envoys, are told of."""
        found = self.serving.catalogue.get(scope)
        return set(found.snapshot[kind]) if found is not None else set()


@pytest.fixture
def world() -> Iterator[World]:
    """A namespace with a sidecar, a split Service and a Gateway."""
    api = FakeApi(FakeClock())
    define(api)
    for each in definitions():
        held = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
        made_of = api.create(CUSTOM_RESOURCE_DEFINITION, each)
        status = {"acceptedNames": each["spec"]["names"], "conditions": held}
        api.update(CUSTOM_RESOURCE_DEFINITION, {**made_of, "status": status}, subresource="status")
    api.create(NAMESPACE, {"metadata": {"name": "shop", "labels": {MTLS: STRICT}}})
    found = declared(CASE)
    for kind, group in zip((SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET), found[:4], strict=True):
        for one in group:
            if objects.name(one) != "late":
                api.create(kind, one)
    api.create(GATEWAY_KINDS.classes, obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, ""))
    api.create(GATEWAY_KINDS.gateways, gateway())
    context = Context(api, EventRecorder(api, "c"), Informers(api, readers=READERS))
    serving = ServingController(context)
    statuses = StatusController(context, serving.routes)
    parts: list[Any] = [context.informers, serving, serving.gateways, statuses]
    for part in parts:
        part.start()
    for scope in ("shop", GATEWAY):
        serving.catalogue.wait_for(scope, lambda: None)
    serving.gateways.lead(leads=True)
    yield World(api, context, serving)
    for part in parts[::-1]:
        part.stop()
    context.pool.shutdown()


def defined(world: World, kind: Kind) -> Kind:
    """Return a kind as the pilot has it: a custom one by its definition."""
    return next((each for each in world.context.informers.custom.all() if each.id == kind.id), kind)


@pytest.mark.parametrize("kind", [*BUILT_IN, *SOUND, AUTHORIZATION_POLICY], ids=lambda kind: kind.kind)
def test_objects_of_wrong_types_hold_up_no_others(world: World, kind: Kind):
    api = world.api
    until(lambda: world.names("shop", CLUSTER) and world.names(GATEWAY, LISTENER))
    wrong = damaged_policies() if kind is AUTHORIZATION_POLICY else damaged(kind)
    last = [int(objects.resource_version(api.create(kind, each))) for each in wrong][-1]
    if kind is POD:
        until(lambda: world.serving.peers._pods["shop"].has_reached(last))
    elif kind is not SECRET:
        until(lambda: world.context.informers.of(defined(world, kind)).has_reached(last))
    if kind is SECRET:
        for number, each in enumerate(wrong):
            refs = [{"name": objects.name(each)}]
            tls = listener("tls", 443, "HTTPS", tls={"certificateRefs": refs})
            api.create(
                GATEWAY_KINDS.gateways, {**gateway(tls), "metadata": {"name": f"s{number}", "namespace": "shop"}}
            )
    api.create(POD, {"metadata": {"name": "late", "namespace": "shop"}, "spec": {}})
    api.create(SERVICE, declared(CASE).services[1])
    edge = api.get(GATEWAY_KINDS.gateways, "edge", "shop")
    spec = {**objects.spec(edge), "listeners": [listener(), listener("more", 8081)]}
    api.patch(GATEWAY_KINDS.gateways, "edge", "shop", {"spec": spec})
    until(lambda: "late.shop:7070" in world.names("shop", CLUSTER), 20)
    until(lambda: "shop/edge:8081" in world.names(GATEWAY, LISTENER), 20)

    def listeners() -> int:
        return len(objects.status(api.get(GATEWAY_KINDS.gateways, "edge", "shop")).get("listeners") or [])

    def has_pod() -> bool:
        peers = world.serving.peers.get()
        return peers is not None and "late" in peers.cannot.get("shop", {})

    until(lambda: listeners() == 2, 20)
    until(has_pod, 20)
    until(lambda: objects.condition(api.get(VIRTUAL_SERVICE, "x", "shop"), "Accepted"), 20)


def damaged_policies() -> list[JsonObject]:
    """Return AuthorizationPolicies of another namespace: each wrong value at each place of one."""
    found: list[JsonObject] = []
    for path in [path for path in places(WHOLE) if path[0] == "spec"]:
        for wrong in (*WRONG, *WRONG_IN_POLICIES):
            one = copy.deepcopy(WHOLE)
            put(one, path, wrong)
            found.append({**one, "metadata": {"name": f"d{len(found)}", "namespace": "bank"}})
    return found


def test_no_damage_to_a_policy_lets_a_stranger_in_or_ends_a_stream():
    unreadable, stranger = 0, Caller("bank", "any")
    for each in damaged_policies():
        found, fault = readable_policy(each)
        guard = Policies([found], {"web": frozenset({80})}).guard("bank", "web", LABELS)
        for ipv6 in (False, True):
            inbound_message(STRICT, ipv6, guard)
        if not fault and each["spec"].get("rules") == [{}]:
            continue  # that is the form of a policy which allows everything
        passes = [
            access([found], each, 80, http=http).passes for each in (stranger, Caller()) for http in (True, False)
        ]
        assert passes == [NONE] * 4, each
        if not fault:
            continue
        unreadable += 1
        assert guard is not None, each
        assert [one["name"] for one in network_filters(guard)] == ["authorization-deny"]
        assert access([found], Caller("bank", "p"), 80, http=True).passes == NONE, "it denies also whom it named"
        keeps = isinstance(each["spec"], dict) and each["spec"].get("selector") == {"matchLabels": LABELS}
        assert bool(selecting([found], "bank", {})) != keeps, "one whose selector cannot be read selects all"
    assert unreadable > 300


def test_a_status_of_wrong_types_leaves_a_policy_as_it_is():
    whole = policy("any", {"to": [{"operation": {"ports": ["80"]}}]})
    assert with_readable_status({**whole, "status": {"enforcedBy": 5}}) == whole
    sound = {**whole, "status": {"enforcedBy": ["a"]}}
    assert with_readable_status(sound) == sound


@pytest.mark.parametrize("kind", GATEWAY_KINDS, ids=lambda kind: kind.kind)
def test_objects_that_the_definitions_take_fit_their_outlines(kind: Kind):
    assert misfit(OUTLINES[kind.id], SOUND[kind]) == ""
