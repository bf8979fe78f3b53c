"""HTTPRoutes within the mesh, whose parent is a Service: which of its ports' requests they lead, and whose. Pure.

Source: Gateway API v1.3, ParentReference and GEP-1426. A route in the Service's own namespace (producer) leads the
requests of all sidecars, one of another namespace (consumer) those of its own namespace's, in place of the former. A
request is one to the Service's address, whatever its Host says: a route's hostnames do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GROUP
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.attaching import Parent
from minik8s_modules.mesh.gateways.backends import Backends
from minik8s_modules.mesh.gateways.listeners import Why
from minik8s_modules.mesh.gateways.rules import rules_of, unsupported

_HOSTNAMES = "hostnames do not count here: requests are those to the Service's address"
GetService = Callable[[Key], JsonObject | None]


class Led(NamedTuple):
    """A port of a Service whose requests are led."""

    service: Key
    port: int


def service_of(ref: JsonObject, route: JsonObject) -> Key | None:
    """Return the Service that a parentRef of a route names; None for another kind of parent."""
    if (ref.get("group", GROUP), ref.get("kind")) != ("", "Service"):
        return None
    return Key(ref.get("namespace") or objects.namespace(route), ref["name"])


def service_parents(route: JsonObject, backends: Backends) -> list[Parent]:
    """Return what becomes of a route's references to Services."""
    return [
        _parent(route, ref, key, backends)
        for ref in objects.spec(route).get("parentRefs") or []
        if (key := service_of(ref, route)) is not None
    ]


def _parent(route: JsonObject, ref: JsonObject, key: Key, backends: Backends) -> Parent:
    _rules, wrong = rules_of(route, backends, key)
    found = _ports(ref, key, backends.service(key))
    refused = found if isinstance(found, tuple) else None
    return Parent(ref, refused, wrong, _HOSTNAMES if objects.spec(route).get("hostnames") else "")


def _ports(ref: JsonObject, key: Key, service: JsonObject | None) -> list[int] | Why:
    """Return the ports of a Service that a parentRef chooses, by number and name; or why it chooses none."""
    if service is None:
        return "NoMatchingParent", f"there is no Service {key}"
    declared = objects.spec(service)
    if declared.get("type") == "ExternalName" or (declared.get("clusterIP") or "None") == "None":
        return "UnsupportedValue", f"Service {key} has no cluster address, by which sidecars recognise its requests"
    chosen = [
        each["port"]
        for each in declared.get("ports") or []
        if (each.get("protocol") or "TCP") == "TCP"
        and ref.get("port") in {None, each["port"]}
        and ref.get("sectionName") in {None, "", each.get("name")}
    ]
    return chosen or ("NoMatchingParent", f"Service {key} has no such TCP port")


def is_within(route: JsonObject) -> bool:
    """Return whether a route names a Service as its parent."""
    return any(service_of(ref, route) is not None for ref in objects.spec(route).get("parentRefs") or [])


def led_ports(routes: Iterable[JsonObject], namespace: str, service: GetService) -> dict[Led, list[JsonObject]]:
    """Return the routes that lead requests of a namespace's sidecars, by what they lead.

    Those of the namespace itself (consumers) stand in the place of those of the Service's namespace (producers).
    """
    producers: dict[Led, list[JsonObject]] = defaultdict(list)
    consumers: dict[Led, list[JsonObject]] = defaultdict(list)
    for route, key, ref in _references(routes):
        space = objects.namespace(route)
        if space not in {key.namespace, namespace}:
            continue
        found = _ports(ref, key, service(key))
        for port in found if isinstance(found, list) else ():
            of = (producers if space == key.namespace else consumers)[Led(key, port)]
            if route not in of:
                of.append(route)
    return {**producers, **consumers}


def _references(routes: Iterable[JsonObject]) -> Iterator[tuple[JsonObject, Key, JsonObject]]:
    for route in routes:
        if objects.is_deleting(route) or unsupported(route) is not None:
            continue
        for ref in objects.spec(route).get("parentRefs") or []:
            key = service_of(ref, route)
            if key is not None:
                yield route, key, ref


def namespaces_of(routes: Iterable[JsonObject], namespace: str) -> set[str]:
    """Return the namespaces whose Services matter to the sidecars of one."""
    found = {namespace}
    for route, key, _ref in _references(routes):
        space = objects.namespace(route)
        if space in {key.namespace, namespace}:
            found |= {key.namespace, space, *backend_spaces(route)}
    return found


def backend_spaces(route: JsonObject) -> Iterator[str]:
    """Yield the other namespaces that a route's backends are in."""
    for rule in objects.spec(route).get("rules") or []:
        refs = [*(rule.get("backendRefs") or [])]
        refs += [each["requestMirror"]["backendRef"] for each in rule.get("filters") or [] if each.get("requestMirror")]
        yield from (ref["namespace"] for ref in refs if ref.get("namespace"))
