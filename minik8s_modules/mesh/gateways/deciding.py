"""Decides on all Gateways of ours at once: what each is told, and what is to be said of it and of its routes. Pure.

Of routes within the mesh it decides only what is to be said of them: what sidecars are told is decided by namespace
(``meshing``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import infrastructure_fault, is_ours, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.attaching import Attachment, Parent, attach, gateway_of
from minik8s_modules.mesh.gateways.backends import Backends
from minik8s_modules.mesh.gateways.listeners import Certificates, Listener, Why, listeners_of
from minik8s_modules.mesh.gateways.parents import service_parents
from minik8s_modules.mesh.gateways.resources import gateway_resources
from minik8s_modules.mesh.gateways.rules import Routed, rules_of, unsupported
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
    remark: str = ""
    """What is to be said of its addresses, where it is reached."""


class RouteVerdict(NamedTuple):
    """What became of a route: each of its parents here, and what of it cannot be done."""

    parents: tuple[Parent, ...]
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
            key,
            listeners[key],
            attached[key],
            {each.route: routed[each.route] for each in attached[key]},
            ipv6=_has_ipv6(gateways[key], declared),
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
    parents = service_parents(route, backends)
    if not (refs or parents) or objects.is_deleting(route):
        return None
    fault = unsupported(route)
    rules, wrong = rules_of(route, backends)
    places: dict[Key, list[Attachment]] = defaultdict(list)
    labels = declared.namespaces.get(objects.namespace(route), {})
    for ref, key in refs:
        if key is None:
            continue
        parent, found = attach(route, ref, gateways[key], listeners[key], labels)
        parents.append(parent._replace(unresolved=wrong))
        if fault is None:
            places[key] += [each for each in found if each not in places[key]]
    return RouteVerdict(tuple(parents), fault), Routed(route, rules), places


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
    return GatewayVerdict(None, addresses, unreachable, tuple(listeners), numbers, _inside(gateway, declared))


def _inside(gateway: JsonObject, declared: Declared) -> str:
    """Return that a Gateway has no address outside, and what to do; "" where it has one."""
    service = _service(gateway, declared)
    if service is None or (objects.status(service).get("loadBalancer") or {}).get("ingress"):
        return ""
    ports = [
        f"{each['port']} at {each['nodePort']}"
        for each in objects.spec(service).get("ports") or []
        if each.get("nodePort")
    ]
    reached = f", or at each node by node ports (port {', port '.join(ports)})" if ports else ""
    name = objects.name(service)
    return (
        f"load balancing gives Service {name} no address, so it is reached within the cluster{reached}; nodes keep "
        f"ports 80 and 443 for Ingresses: use other ports or a pool of addresses (minik8s why service/{name})"
    )


def _service(gateway: JsonObject, declared: Declared) -> JsonObject | None:
    key = Key(objects.namespace(gateway), name_of_parts(objects.name(gateway)))
    return next((each for each in declared.services if objects.key(each) == key), None)


def _has_ipv6(gateway: JsonObject, declared: Declared) -> bool:
    """Return whether a Gateway's Service has an IPv6 address; only then do its Pods have one."""
    service = _service(gateway, declared)
    return service is not None and "IPv6" in (objects.spec(service).get("ipFamilies") or ())


def _reached(gateway: JsonObject, declared: Declared) -> tuple[tuple[str, ...], Why | None]:
    key = Key(objects.namespace(gateway), name_of_parts(objects.name(gateway)))
    service = _service(gateway, declared)
    if service is None or not objects.spec(service).get("clusterIP"):
        return (), ("AddressNotAssigned", f"Service {key} is not there yet")
    given = (objects.status(service).get("loadBalancer") or {}).get("ingress") or []
    inside = objects.spec(service).get("clusterIPs") or [objects.spec(service)["clusterIP"]]
    addresses = tuple(each["ip"] for each in given if each.get("ip")) or tuple(inside)
    ready = any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for each in declared.slices
        if objects.namespace(each) == key.namespace and objects.labels(each).get(SERVICE_NAME) == key.name
        for endpoint in each.get("endpoints") or []
    )
    return addresses, None if ready else ("NoResources", f"no Pod of Deployment {key} is ready")
