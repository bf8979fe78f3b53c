"""Random plans of what leads requests: what a plan says of sidecars and Gateways is what pilots then tell Envoys.

Services, VirtualServices with all they may say, Subsets by name and label, HTTPRoutes of Gateways and within the mesh,
grants and Gateways, over an API in memory; the pilot's controllers and those of Gateways and Subsets are the real ones.
``MINIK8S_PLAN_SCENARIOS`` says how many scenarios.
"""

from __future__ import annotations

import base64
import copy
import os
import random
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    SECRET,
    SERVICE,
    SIDECAR_MAPPING,
    SUBSET,
    VIRTUAL_SERVICE,
    Kind,
)
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GROUP, is_ours, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.cli.mesh.expecting import expected
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.network.gateways import PARTS, GatewayController, Step, decide_gateway
from minik8s_modules.controllers.network.subsets import SubsetController
from minik8s_modules.mesh.gateways.deciding import Decision
from minik8s_modules.mesh.gateways.statuses import gateway_status, route_status
from minik8s_modules.mesh.mapping import Mapped, decide_mapping, mapping_spec
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, ROUTES, version_of
from minik8s_modules.mesh.serving import ServingController
from minik8s_modules.mesh.statuses import MAPPING, StatusController, decide_status
from minik8s_modules.reconcile.planning.plan_lists import listed
from minik8s_modules.reconcile.planning.planserver import Vacancy
from minik8s_modules.reconcile.planning.questions import Question, parse_question
from minik8s_modules.reconcile.planning.simulated_mesh import Side, namespace_notes
from minik8s_modules.reconcile.planning.simulated_routes import Routing, Secrets, parent_of, route_notes, routings
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices
from minik8s_modules.reconcile.values.values import Settings
from minik8s_modules.runtime.controller import Context
from tests.support.gateway_api import definitions
from tests.support.load.storms import Manager
from tests.support.pki import Authority
from tests.support.waiting import until

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "15"))
SPACES, EARLIER, LATER = ("far", "shop"), "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
EDGE = f"shop/{name_of_parts('edge')}"
PATIENCE_S = 60.0
FALSE = " would be False: "
KINDS = {each.kind: each for each in (SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET, SECRET, *GATEWAY_KINDS)}
Place = tuple[str, str, str]


@lru_cache(1)
def certificate() -> dict[str, str]:
    """Return the data of a Secret with a certificate."""
    with TemporaryDirectory() as folder:
        made = Authority(Path(folder), "ca").issue("edge", "edge")
        files = {"tls.crt": made.cert, "tls.key": made.key}
        return {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}


class Api(FakeApi):
    """One that applies what is not there yet, too."""

    def patch(self, kind: Kind, name: str, namespace: str, body: Any, **options: Any) -> JsonObject:
        """Patch, or create by apply."""
        try:
            return super().patch(kind, name, namespace, body, **options)
        except NotFound:
            if options.get("patch_type") != "apply":
                raise
            return self.create(kind, body)


class Dice:
    """What there may be, from one seed."""

    def __init__(self, seed: int) -> None:
        self.roll = random.Random(seed)
        self._made: dict[str, Callable[[str, str], JsonObject]] = {
            "Service": self._service, "EndpointSlice": self._slice, "VirtualService": self._virtual_service,
            "Subset": self._subset, "HTTPRoute": self._route, "Gateway": self._gateway, "GatewayClass": self._class,
            "ReferenceGrant": self._grant, "Secret": self._secret,
        }  # fmt: skip

    def places(self) -> Iterator[Place]:
        """Yield what there may be."""
        for name, space in (("web", "shop"), ("next", "shop"), ("api", "far")):
            yield from (("Service", space, name), ("EndpointSlice", space, name))
        yield from (("VirtualService", "shop", name) for name in ("first", "second"))
        yield from (("Subset", "shop", name) for name in ("v1", "v2"))
        yield from (("HTTPRoute", space, name) for space in SPACES for name in ("a", "b"))
        yield from (("Gateway", "shop", "edge"), ("GatewayClass", "", "ours"), ("Secret", "shop", "edge-tls"))
        yield from (("ReferenceGrant", "far", "grant"), ("ReferenceGrant", "shop", "grant"))

    def one(self, place: Place, born: str) -> JsonObject:
        """Return an object for a place."""
        kind, space, name = place
        meta = {"name": name, "creationTimestamp": born, **({"namespace": space} if space else {})}
        made = {"apiVersion": KINDS[kind].api_version, "kind": kind, **self._made[kind](space, name)}
        return {**made, "metadata": {**meta, **made.get("metadata", {})}}

    def _some(self, *found: Any, least: int = 0) -> list[Any]:
        return self.roll.sample(found, self.roll.randint(least, len(found)))

    def _maybe(self, **fields: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if self.roll.random() < 0.3}

    def _service(self, _space: str, name: str) -> JsonObject:
        ports = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in (80, 8080)]
        ports[0] |= {"appProtocol": self.roll.choice(["http", "kubernetes.io/h2c", "example.com/x"])}
        address = f"100.0.0.{('web', 'next', 'api').index(name) + 10}"
        kept = ports[: self.roll.randint(1, 2)]
        return {"spec": {"type": "ClusterIP", "clusterIP": self.roll.choice([address] * 5 + ["None"]), "ports": kept}}

    def _slice(self, space: str, name: str) -> JsonObject:
        points = [
            {
                "addresses": [f"10.{SPACES.index(space)}.{len(name)}.{number}"],
                "conditions": {"ready": self.roll.random() < 0.8},
                "targetRef": {"kind": "Pod", "name": f"{name}-{number}"},
            }
            for number in self._some(1, 2, 3)
        ]
        ports = [{"name": f"p{port}", "port": port + 1, "protocol": "TCP"} for port in (80, 8080)]
        meta = {"labels": {"kubernetes.io/service-name": name}}
        return {"addressType": "IPv4", "endpoints": points, "ports": ports, "metadata": meta}

    def _virtual_service(self, _space: str, _name: str) -> JsonObject:
        subsets = [
            {"name": name, **self.roll.choice([
                {"weight": self.roll.randint(0, 3)}, {"url": self.roll.choice(["^/a", "b$", "("])},
                {"headers": {"user": self.roll.choice(["x", "y"])}},
            ])}
            for name in self._some("v1", "v2", "gone", least=1)
        ]  # fmt: skip
        fault = {"delay": {"fixed": "10ms", "percent": 10}, "abort": {"httpStatus": 500, "percent": 5}}
        extra = self._maybe(
            timeout="2s",
            retries={"attempts": 1, "retryOn": ["5xx"]},
            fault=fault,
            mirror={"subset": "v2", "percent": 7},
        )
        service = self.roll.choice(["web", "web", "next", "gone"])
        return {"spec": {"serviceRef": service, "port": self.roll.choice([80, 80, 81]), "subsets": subsets, **extra}}

    def _subset(self, _space: str, name: str) -> JsonObject:
        named = {"pods": self._some("web-1", "web-2", "next-1", "gone", least=1)}
        return {"spec": self.roll.choice([named, {"labels": {"version": name}}])}

    def _route(self, space: str, _name: str) -> JsonObject:
        other = {"namespace": "shop"} if space != "shop" else {}
        service = {"group": "", "kind": "Service", "name": self.roll.choice(["web", "web", "gone"]), **other}
        parents = [{"name": "edge", **other, **self._maybe(sectionName="http", port=8080)},
                   {**service, **self._maybe(port=80)}, {"name": "nobody"}]  # fmt: skip
        names = self.roll.choice([{}, {"hostnames": ["a.example"]}, {"hostnames": ["*.example", "b.test"]}])
        rules = [self._rule() for _ in range(self.roll.randint(1, 3))]
        return {"spec": {"parentRefs": self._some(*parents, least=1), "rules": rules, **names}}

    def _rule(self) -> JsonObject:
        paths = [
            {"type": "PathPrefix", "value": "/a"},
            {"type": "Exact", "value": "/b"},
            {"type": "PathPrefix", "value": "/"},
        ]
        matches = [
            {"path": self.roll.choice(paths), **self._maybe(method="POST", headers=[{"name": "u", "value": "1"}])}
        ]
        header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x", "value": "1"}]}}
        copies = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "next", "port": 80}, "percent": 5}}
        moved = {"type": "RequestRedirect", "requestRedirect": {"hostname": "c.test", "statusCode": 301}}
        if self.roll.random() < 0.2:
            return {"matches": matches, "filters": [moved]}
        backends = [
            {"name": name, "port": 80, **where, "weight": self.roll.randint(0, 3)}
            for name, where in self._some(
                ("web", {}), ("next", {}), ("api", {"namespace": "far"}), ("web", {"namespace": "shop"}), ("gone", {})
            )
        ]
        timeouts = self._maybe(request="5s", backendRequest="1s")
        rule = {"matches": matches, "filters": self._some(header, copies), "backendRefs": backends}
        return {
            **rule,
            **({"timeouts": timeouts} if timeouts else {}),
            **self._maybe(retry={"attempts": 1} if self.roll.random() < 0.1 else None),
        }

    def _gateway(self, _space: str, _name: str) -> JsonObject:
        whence = {"from": self.roll.choice(["Same", "All", "Selector"]), "selector": {"matchLabels": {"name": "far"}}}
        http = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": whence}}
        tls = {"certificateRefs": [{"name": self.roll.choice(["edge-tls", "gone"])}]}
        others = [
            {"name": "named", "port": 80, "protocol": "HTTP", "hostname": "*.example"},
            {"name": "more", "port": 8080, "protocol": "HTTP"},
            {"name": "same", "port": 8080, "protocol": self.roll.choice(["HTTP", "UDP"])},
            {"name": "https", "port": 8443, "protocol": "HTTPS", "hostname": "a.example", "tls": tls},
        ]
        refused = {"addresses": [{"value": "192.0.2.1"}]} if self.roll.random() < 0.1 else {}
        return {"spec": {"gatewayClassName": "ours", "listeners": [http, *self._some(*others)], **refused}}

    def _class(self, _space: str, _name: str) -> JsonObject:
        return {"spec": {"controllerName": self.roll.choice([CONTROLLER] * 4 + ["example.com/x"])}}

    def _grant(self, space: str, _name: str) -> JsonObject:
        whence = {"group": GROUP, "kind": "HTTPRoute", "namespace": "far" if space == "shop" else "shop"}
        return {"spec": {"from": [whence], "to": [{"group": "", "kind": "Service", **self._maybe(name="api")}]}}

    def _secret(self, _space: str, _name: str) -> JsonObject:
        return {"type": self.roll.choice(["kubernetes.io/tls", "Opaque"]), "data": certificate()}


class Shop:
    """What stands, and the controllers; ``operations`` is what is planned and then done."""

    def __init__(self, seed: int) -> None:
        self.api, dice = Api(SystemClock()), Dice(seed)
        for each in definitions():
            names = each["spec"]["names"]
            accepted = {"acceptedNames": names, "conditions": [{"type": "NamesAccepted", "status": "True"}]}
            self.api.create(CUSTOM_RESOURCE_DEFINITION, {**each, "status": accepted})
        for space in SPACES:
            self.api.create(NAMESPACE, {"metadata": {"name": space, "labels": {"name": space}}})
        self._pods()
        self.operations: list[tuple[str, JsonObject]] = []
        for place in dice.places():
            stands = dice.one(place, EARLIER) if dice.roll.random() < 0.75 else None
            if stands is not None:
                self.api.create(KINDS[place[0]], copy.deepcopy(stands))
            if dice.roll.random() < 0.25:
                gone = stands is not None and dice.roll.random() < 0.3
                what = "delete" if gone else "create" if stands is None else "update"
                new = stands if gone and stands is not None else dice.one(place, LATER if stands is None else EARLIER)
                self.operations.append((what, new))
        dice.roll.shuffle(self.operations)

    def _pods(self) -> None:
        for space, name, version in (("shop", "web-1", "v1"), ("shop", "web-2", "v2"), ("shop", "next-1", "v2"),
                                     ("far", "caller", "")):  # fmt: skip
            meta = {"name": name, "namespace": space, "labels": {"version": version}}
            spec = {"nodeName": "n", "containers": [{"name": "app", "image": "i"}]}
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.api.create(POD, {"metadata": meta, "spec": with_sidecar(spec), "status": status})

    @property
    def question(self) -> Question:
        """What is planned."""
        asked = [{"operation": what, "object": copy.deepcopy(obj)} for what, obj in self.operations]
        return parse_question({"objects": asked})

    def planned(self) -> list[str]:
        """Return what a plan says."""
        vacancy = Vacancy(self.api, Settings(hmac_key=b"key"), SystemClock())
        vacancy.start()
        try:
            return [str(each["text"]) for each in vacancy.plan(self.question)["messages"]]
        finally:
            vacancy.stop()

    def apply(self) -> None:
        """Do what is planned."""
        for what, obj in self.operations:
            kind, place = KINDS[obj["kind"]], (objects.name(obj), objects.namespace(obj))
            if what == "delete":
                self.api.delete(kind, *place)
            elif what == "create":
                self.api.create(kind, copy.deepcopy(obj))
            else:
                old = self.api.get(kind, *place)
                status = {"status": old["status"]} if "status" in old else {}
                meta = {**old["metadata"], **obj["metadata"]}
                self.api.update(kind, {**copy.deepcopy(obj), "metadata": meta, **status})

    def stands(self) -> tuple[Cluster, Routing, Side]:
        """Return what stands now, read as pilots read it."""
        slices: dict[str, list[JsonObject]] = {}
        for one in self.api.list(ENDPOINT_SLICE).items:
            key = f"{objects.namespace(one)}/{objects.labels(one)['kubernetes.io/service-name']}"
            slices.setdefault(key, []).append(one)
        services = tuple(self.api.list(SERVICE).items)
        cluster = listed(self.api, self.question, ())._replace(
            services=services, slices=lambda key: slices.get(key, [])
        )
        nothing = Question((), frozenset())
        routing, _ = routings(nothing, PlannedServices(), cluster, Secrets(self._secret, self._secret))
        return cluster, routing, Side(routing, cluster.mesh)

    def _secret(self, _kind: str, key: str) -> JsonObject | None:
        try:
            return self.api.get(SECRET, key.partition("/")[2], key.partition("/")[0])
        except NotFound:
            return None

    def faults(self) -> set[str]:
        """Return what the statuses of routes and Gateways say is wrong, in a plan's words."""
        found = set()
        for route in self.api.list(GATEWAY_KINDS.routes).items:
            for parent in objects.status(route).get("parents") or []:
                said = f"HTTPRoute {objects.key(route)}: {parent_of(parent['parentRef'])}: "
                found |= {f"{said}{text}" for text in false_of(parent)}
        ours = {objects.name(one) for one in self.api.list(GATEWAY_KINDS.classes).items if is_ours(one)}
        for gateway in self.api.list(GATEWAY_KINDS.gateways).items:
            if gateway["spec"]["gatewayClassName"] not in ours:
                continue  # what was last said of it stays
            for one in objects.status(gateway).get("listeners") or []:
                said = f"Gateway {objects.key(gateway)}: listener {one['name']}: "
                found |= {f"{said}{text}" for text in false_of(one, "Programmed", "Conflicted")}
            told = false_of(objects.status(gateway), "Programmed")
            said = f"Gateway {objects.key(gateway)}: "
            found |= {f"{said}{text}" for text in told if "ListenersNotValid" not in text}
        return found

    def unsplit(self) -> set[str]:
        """Return what the statuses of VirtualServices say is wrong, in a plan's words."""
        return {
            f"VirtualService {objects.key(each)}: {text.partition(FALSE)[2]}"
            for each in self.api.list(VIRTUAL_SERVICE).items
            for text in false_of(objects.status(each))
        }

    def steps(self) -> list[Step]:
        """Return what the controllers have to do of Gateways yet."""
        classes = {objects.name(each): each for each in self.api.list(GATEWAY_KINDS.classes).items}
        return [
            step
            for each in self.api.list(GATEWAY_KINDS.gateways).items
            for step in decide_gateway(each, classes.get("ours"), {kind: self._part(kind, each) for kind in PARTS})
        ]

    def _part(self, kind: Kind, gateway: JsonObject) -> JsonObject | None:
        found = self.api.list(kind, objects.namespace(gateway)).items
        return next((each for each in found if objects.name(each) == name_of_parts(objects.name(gateway))), None)

    def parts(self) -> set[tuple[str, str]]:
        """Return what there is of Gateways."""
        return {
            (kind.kind, objects.name(each))
            for kind in PARTS
            for each in self.api.list(kind).items
            if objects.controller_of(each)
        }


def false_of(told: Mapping[str, Any], *without: str) -> list[str]:
    """Return the conditions that are False."""
    return [
        f"{each['type']}{FALSE}{each['reason']}: {each['message']}"
        for each in told.get("conditions") or []
        if each["status"] == "False" and each["type"] not in without
    ]


class Pilot:
    """What a pilot that leads runs, beside the controllers."""

    def __init__(self, context: Context) -> None:
        self.serving = ServingController(context)
        self._statuses = StatusController(context, self.serving.routes)
        for scope in (*SPACES, EDGE):
            self.serving.catalogue.wait_for(scope, lambda: None)

    def start(self) -> None:
        """Begin."""
        self.serving.start()
        self.serving.gateways.start()
        self.serving.gateways.lead(leads=True)
        self._statuses.start()

    def stop(self) -> None:
        """End."""
        self._statuses.stop()
        self.serving.gateways.stop()
        self.serving.stop()

    def told(self, scope: str) -> dict[tuple[str, str], str]:
        """Return the versions of what a scope's Envoys are told."""
        found = self.serving.catalogue.get(scope)
        kinds = (CLUSTER, ROUTES, ENDPOINTS)
        return (
            {(kind, name): each.version for kind in kinds for name, each in found.snapshot[kind].items()}
            if found
            else {}
        )


def is_told(shop: Shop, pilot: Pilot) -> bool:
    """Return whether the pilot tells Envoys, and has written down, what follows from what stands."""
    for space in SPACES:
        wanted, told = expected(shop.api, space), pilot.told(space)
        versions = {name: version for (kind, name), version in wanted.versions.items() if kind == "route"}
        if {name: version for (kind, name), version in told.items() if kind == ROUTES} != versions:
            return False
        if {name for kind, name in told if kind == ENDPOINTS} != wanted.endpoints.keys():
            return False
    _cluster, routing, side = shop.stands()
    decided = routing.decision().told.get(objects.Key("shop", "edge"), [])
    if {
        (each.type_url, each.name): version_of(each.body)
        for each in decided
        if each.type_url in (CLUSTER, ROUTES, ENDPOINTS)
    } != pilot.told(EDGE):
        return False
    own = side.declared("shop", [each for each in shop.api.list(POD).items if objects.namespace(each) == "shop"])
    mapped = decide_mapping(own._replace(led=side.routes.producers(own, "shop")))
    found = [objects.spec(each) for each in shop.api.list(SIDECAR_MAPPING).items if objects.name(each) == MAPPING]
    if found != ([mapping_spec(mapped)] if own.virtual_services else []):
        return False
    return is_written(shop, routing.decision(), mapped)


def is_written(shop: Shop, decision: Decision, mapped: Mapped) -> bool:
    """Return whether all that is written down follows from a decision: statuses, and what Gateways run as."""
    now = SystemClock().now()
    split = (
        decide_status(mapped.verdicts[objects.name(each)], objects.status(each), now) == objects.status(each)
        for each in shop.api.list(VIRTUAL_SERVICE).items
    )
    gateways = (
        gateway_status(each, verdict, now) == objects.status(each)
        for each in shop.api.list(GATEWAY_KINDS.gateways).items
        if (verdict := decision.gateways.get(objects.key(each))) is not None
    )
    routes = (
        (verdict is None and not objects.status(each).get("parents"))
        or route_status(each, verdict, now) == objects.status(each)
        for each in shop.api.list(GATEWAY_KINDS.routes).items
        for verdict in [decision.routes.get(objects.key(each))]
    )
    return all(split) and all(gateways) and all(routes) and not shop.steps()


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_what_a_plan_says_of_requests_is_what_envoys_are_told(seed: int):
    shop, made = Shop(seed), list[Pilot]()

    def pilot(context: Context) -> Pilot:
        made.append(Pilot(context))
        return made[0]

    manager = Manager(shop.api, pilot, GatewayController, SubsetController)
    manager.start()
    try:
        until(lambda: is_told(shop, made[0]), PATIENCE_S)
        before, faults, unsplit, parts = shop.stands(), shop.faults(), shop.unsplit(), shop.parts()
        planned = shop.planned()
        shop.apply()
        until(lambda: is_told(shop, made[0]), PATIENCE_S)
        after = shop.stands()

        told = [each for space in SPACES for each in namespace_notes(space, (before[2], after[2]), after[0])]
        told += route_notes(Question((), frozenset()), before[1], after[1])
        assert only(planned, "otherwise: ") == only([each.text for each in told], "otherwise: ")
        asked = {f"{obj['kind']} {objects.key(obj)}: " for what, obj in shop.operations if what != "delete"}
        assert fresh(shop.faults(), faults, asked) == set(only(planned, FALSE))
        assert fresh(shop.unsplit(), unsplit, asked) == {each for each in planned if each.startswith("VirtualService ")}
        assert shop.parts() - parts == created(planned)
    finally:
        manager.stop()


def only(texts: list[str], having: str) -> list[str]:
    """Return those that have some words, sorted."""
    return sorted(text for text in texts if having in text)


def fresh(faults: set[str], before: set[str], asked: set[str]) -> set[str]:
    """Return the faults that a plan tells: all of what is applied, of the rest what is new."""
    return {each for each in faults if each not in before or each.startswith(tuple(asked))}


def created(planned: list[str]) -> set[tuple[str, str]]:
    """Return what controllers would make of Gateways."""
    found = set()
    for text in only(planned, "the controllers would create "):
        *kinds, name = text.partition("would create ")[2].replace(",", "").replace(" and", "").split()
        found |= {(kind, name) for kind in kinds}
    return found
