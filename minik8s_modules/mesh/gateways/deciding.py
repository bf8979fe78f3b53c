"""Decides on all Gateways of ours at once: what each is told, and what is to be said of it and of its routes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import duration_ms, infrastructure_fault, is_ours, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.attaching import Attachment, Parent, attach, gateway_of, refused_parent
from minik8s_modules.mesh.gateways.backends import Backend, Backends
from minik8s_modules.mesh.gateways.filters import filters_fault
from minik8s_modules.mesh.gateways.listeners import Certificates, Listener, Why, listeners_of
from minik8s_modules.mesh.gateways.matching import ALL, match_fault
from minik8s_modules.mesh.gateways.resources import Routed, Rule, gateway_resources
from minik8s_modules.mesh.mapping import SERVICE_NAME
from minik8s_modules.mesh.resources import Resource


class Declared(NamedTuple):
    """The objects of the cluster that Gateways are made of; ``namespaces`` are labels by name."""

    classes: Sequence[JsonObject] = ()
    gateways: Sequence[JsonObject] = ()
    routes: Sequence[JsonObject] = ()
    grants: Sequence[JsonObject] = ()
    services: Sequence[JsonObject] = ()
    slices: Sequence[JsonObject] = ()
    updates: Sequence[JsonObject] = ()
    namespaces: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    certificates: Certificates = MappingProxyType({})


class GatewayVerdict(NamedTuple):
    """What became of a Gateway: why it is refused, where it is reached, why it is not, and who is attached to it."""

    refused: Why | None
    addresses: tuple[str, ...]
    unreachable: Why | None
    listeners: tuple[Listener, ...]
    attached: Mapping[str, int]
    """Routes by listener."""


class RouteVerdict(NamedTuple):
    """What became of a route: each of its parents here, and which of its references leads nowhere."""

    parents: tuple[Parent, ...]
    unresolved: Why | None
    unsupported: Why | None


class Decision(NamedTuple):
    """The whole; by namespace and name."""

    gateways: Mapping[Key, GatewayVerdict]
    routes: Mapping[Key, RouteVerdict]
    told: Mapping[Key, list[Resource]]


def decide_gateways(declared: Declared) -> Decision:
    """Return what becomes of every Gateway whose class is ours, and of the routes that name one."""
    ours = {
        objects.name(each) for each in declared.classes if is_ours(each) and not objects.spec(each).get("parametersRef")
    }
    gateways = {
        objects.key(each): each
        for each in declared.gateways
        if objects.spec(each)["gatewayClassName"] in ours and not objects.is_deleting(each)
    }
    if not (gateways or declared.routes):
        return Decision({}, {}, {})
    listeners = {key: listeners_of(each, declared.grants, declared.certificates) for key, each in gateways.items()}
    backends = Backends(declared.services, declared.slices, declared.updates, declared.grants)
    attached: dict[Key, list[Attachment]] = defaultdict(list)
    routes: dict[Key, RouteVerdict] = {}
    routed: dict[Key, Routed] = {}
    for route in declared.routes:
        found = _route(route, gateways, listeners, declared, backends)
        if found is None:
            continue
        verdict, rules, places = found
        routes[objects.key(route)], routed[objects.key(route)] = verdict, rules
        for gateway, attachments in places.items():
            attached[gateway] += attachments
    verdicts = {key: _verdict(each, listeners[key], attached[key], declared) for key, each in gateways.items()}
    told = {
        key: gateway_resources(
            key, listeners[key], attached[key], {each.route: routed[each.route] for each in attached[key]}
        )
        for key in gateways
        if verdicts[key].refused is None
    }
    return Decision(verdicts, routes, told)


def _route(
    route: JsonObject,
    gateways: Mapping[Key, JsonObject],
    listeners: Mapping[Key, Sequence[Listener]],
    declared: Declared,
    backends: Backends,
) -> tuple[RouteVerdict, Routed, dict[Key, list[Attachment]]] | None:
    named = objects.spec(route).get("parentRefs") or []
    refs = [(ref, key) for ref in named if (key := gateway_of(ref, route)) in gateways]
    parents = [parent for ref in named if (parent := refused_parent(ref)) is not None]
    if not (refs or parents) or objects.is_deleting(route):
        return None
    unsupported = _unsupported(route)
    places: dict[Key, list[Attachment]] = defaultdict(list)
    labels = declared.namespaces.get(objects.namespace(route), {})
    for ref, key in refs:
        if key is None:
            continue
        parent, found = attach(route, ref, gateways[key], listeners[key], labels)
        parents.append(parent)
        if unsupported is None:
            places[key] += [each for each in found if each not in places[key]]
    rules, wrong = _rules(route, backends)
    return RouteVerdict(tuple(parents), wrong, unsupported), Routed(route, rules), places


def _unsupported(route: JsonObject) -> Why | None:
    for number, rule in enumerate(objects.spec(route).get("rules") or []):
        faults = [filters_fault(rule), *(match_fault(each) for each in rule.get("matches") or [ALL]), _time_fault(rule)]
        faults += [f"{field} is not known here" for field in ("sessionPersistence", "retry") if rule.get(field)]
        if fault := next(filter(None, faults), ""):
            return "UnsupportedValue", f"rule {number + 1}: {fault}"
    return None


def _time_fault(rule: JsonObject) -> str:
    for each in (rule.get("timeouts") or {}).values():
        try:
            duration_ms(each)
        except ValueError:
            return f"{each} is no time"
    return ""


def _rules(route: JsonObject, backends: Backends) -> tuple[tuple[Rule, ...], Why | None]:
    wrong: list[Why] = []

    def resolved(ref: JsonObject) -> Backend | None:
        found = backends.resolve(ref, route)
        if isinstance(found, Backend):
            return found
        wrong.append(found)
        return None

    rules = tuple(
        Rule(
            rule,
            tuple(resolved(ref) for ref in rule.get("backendRefs") or []),
            tuple(
                resolved(each["requestMirror"]["backendRef"])
                for each in rule.get("filters") or []
                if each.get("requestMirror")
            ),
        )
        for rule in objects.spec(route).get("rules") or []
    )
    return rules, next(iter(wrong), None)


def _verdict(
    gateway: JsonObject, listeners: Sequence[Listener], attached: Iterable[Attachment], declared: Declared
) -> GatewayVerdict:
    counts: dict[str, set[Key]] = defaultdict(set)
    for each in attached:
        counts[each.listener].add(each.route)
    numbers = {name: len(routes) for name, routes in counts.items()}
    refused = infrastructure_fault(objects.spec(gateway))
    if refused is not None:
        return GatewayVerdict(refused, (), ("Invalid", refused[1]), tuple(listeners), numbers)
    addresses, unreachable = _reached(gateway, declared)
    return GatewayVerdict(None, addresses, unreachable, tuple(listeners), numbers)


def _reached(gateway: JsonObject, declared: Declared) -> tuple[tuple[str, ...], Why | None]:
    key = Key(objects.namespace(gateway), name_of_parts(objects.name(gateway)))
    service = next((each for each in declared.services if objects.key(each) == key), None)
    if service is None or not objects.spec(service).get("clusterIP"):
        return (), ("AddressNotAssigned", f"Service {key} is not there yet")
    given = (objects.status(service).get("loadBalancer") or {}).get("ingress") or []
    addresses = tuple(each["ip"] for each in given if each.get("ip")) or (objects.spec(service)["clusterIP"],)
    ready = any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for each in declared.slices
        if objects.namespace(each) == key.namespace and objects.labels(each).get(SERVICE_NAME) == key.name
        for endpoint in each.get("endpoints") or []
    )
    return addresses, None if ready else ("NoResources", f"no Pod of Deployment {key} is ready")
