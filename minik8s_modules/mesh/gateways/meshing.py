"""From HTTPRoutes within the mesh to what the sidecars of a namespace are told. Pure.

A led port has the listener that each port of a Service has (``mesh.resources``), and routes as a Gateway's. What is no
HTTP goes to the Service's Pods. Backends are clusters of their own, ``SERVICE.NAMESPACE:PORT/*``: all Pods of a port,
whatever leads the requests to that port itself. Who is led to a Service that is led in turn goes to its Pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.gateways.backends import HTTP2, Backend, Backends, is_tcp
from minik8s_modules.mesh.gateways.parents import Led, is_within, led_ports, namespaces_of
from minik8s_modules.mesh.gateways.resources import Place, host_of, matched_routes
from minik8s_modules.mesh.gateways.rules import Routed, Rule, rules_of
from minik8s_modules.mesh.mapping import Declared, Port
from minik8s_modules.mesh.resources import (
    AS_ASKED,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    Resource,
    assignment,
    cluster,
    service_listener,
)

ALL_PODS = "/*"
"""Behind the name of a port: the cluster of all its Pods. No Subset has that name."""
_META = ("name", "namespace", "creationTimestamp", "deletionTimestamp")
_HTTP2: JsonObject = {"explicit_http_config": {"http2_protocol_options": {}}}


class Routes(NamedTuple):
    """HTTPRoutes within the mesh, and ReferenceGrants, of the whole cluster."""

    routes: Sequence[JsonObject] = ()
    grants: Sequence[JsonObject] = ()

    def namespaces(self, namespace: str) -> set[str]:
        """Return the namespaces whose objects matter to the sidecars of one."""
        return namespaces_of(self.routes, namespace)

    def producers(self, declared: Declared, namespace: str) -> dict[tuple[str, int], str]:
        """Return the routes that lead ports of a namespace's own Services, which VirtualServices then do not split."""
        services = {objects.key(each): each for each in declared.services}
        found = led_ports(self.routes, namespace, services.get)
        return {
            (led.service.name, led.port): ", ".join(objects.name(each) for each in of)
            for led, of in found.items()
            if led.service.namespace == namespace
        }


def routes_of(routes: Iterable[JsonObject], grants: Iterable[JsonObject]) -> Routes:
    """Return those that matter within the mesh, without what changes when they are only looked at: their status."""
    within = sorted(filter(is_within, routes), key=objects.key)
    return Routes(tuple(map(_plain, within)), tuple(map(_plain, sorted(grants, key=objects.key))) if within else ())


def _plain(obj: JsonObject) -> JsonObject:
    meta = objects.metadata(obj)
    return {"metadata": {field: meta[field] for field in _META if field in meta}, "spec": objects.spec(obj)}


class LedPort(NamedTuple):
    """A port of a Service, and the routes that lead its requests."""

    name: str
    port: Port
    routes: tuple[Routed, ...]
    namespace: str

    @property
    def place(self) -> str:
        """Return ADDRESS:PORT."""
        return f"{self.port.address}:{self.port.port}"

    @property
    def led_by(self) -> str:
        """Return the routes, NAMESPACE/NAME of each."""
        return ",".join(str(objects.key(each.route)) for each in self.routes)

    def resources(self) -> list[Resource]:
        """Return what sidecars are told of it."""
        return [Resource(kind, name, body, self.place) for kind, name, body in _bodies(self)]


def decide_led(found: Routes, namespace: str, declared: Sequence[Declared]) -> list[LedPort]:
    """Return the ports whose requests from a namespace's sidecars are led by HTTPRoutes.

    Args:
        found: all routes within the mesh, and grants.
        namespace: that of the sidecars.
        declared: the objects of ``found.namespaces(namespace)``.
    """
    backends = Backends(
        [each for of in declared for each in of.services],
        [each for of in declared for each in of.slices],
        [each for of in declared for each in of.rolling_updates],
        found.grants,
    )
    led = led_ports(found.routes, namespace, backends.service)
    return [_led(each, routes, backends) for each, routes in sorted(led.items(), key=lambda pair: pair[0])]


def _led(led: Led, routes: Iterable[JsonObject], backends: Backends) -> LedPort:
    key = led.service
    declared = objects.spec(backends.service(key) or {})
    port = next(each for each in declared["ports"] if each["port"] == led.port and is_tcp(each))
    plain = Port(key.name, declared["clusterIP"], led.port, (backends.branch(key, port),))
    routed = tuple(Routed(route, tuple(map(_within, rules_of(route, backends, key)[0]))) for route in routes)
    return LedPort(f"{key.name}.{key.namespace}:{led.port}", plain, routed, key.namespace)


def _within(rule: Rule) -> Rule:
    return Rule(rule.declared, tuple(map(_renamed, rule.backends)), tuple(map(_renamed, rule.mirrors)))


def _renamed(backend: Backend | None) -> Backend | None:
    return None if backend is None else backend._replace(cluster=f"{backend.cluster}{ALL_PODS}")


def _bodies(led: LedPort) -> Iterator[tuple[str, str, JsonObject]]:
    yield CLUSTER, led.name, cluster(led.name, AS_ASKED)
    yield ENDPOINTS, led.name, assignment(led.name, led.port.branches[0])
    rules = [rule for each in led.routes for rule in each.rules]
    backends = {each.cluster: each for rule in rules for each in (*rule.backends, *rule.mirrors) if each is not None}
    for name, backend in sorted(backends.items()):
        yield CLUSTER, name, cluster(name, _HTTP2 if backend.protocol == HTTP2 else AS_ASKED)
        yield ENDPOINTS, name, assignment(name, backend.branch)
    yield LISTENER, led.name, service_listener(led.name, led.port, led.name)
    place = Place(led.port.port, "http")
    matched = [(order, _named(route, led.name)) for each in led.routes for order, route in matched_routes(each, place)]
    yield ROUTES, led.name, {"name": led.name, "virtual_hosts": [host_of("", matched)]}


def _named(route: JsonObject, name: str) -> JsonObject:
    """Return a route by which the log names the Service, as of requests that no route leads; `trace` reads the rest."""
    return {**route, "name": name, "metadata": {"filter_metadata": {"minik8s.io": {"httproute": route["name"]}}}}
