"""``trace HOST/PATH``: the way of a request as objects declare it: name → ingress → service → endpoints.

A host that no Ingress declares may be a Gateway's: gateway → route → Pods.

``trace TYPE/NAME`` shows that of a Service, or of what the API server calls itself (calls.py).
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import sys
from collections.abc import Iterable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import DNS, ENDPOINT_SLICE, HOST_GRANT, INGRESS, INGRESS_CLASS, NODE, POD, SERVICE
from minik8s_modules.api.network.cluster_names import CLUSTER_DOMAIN, name_within
from minik8s_modules.api.network.ingress_routes import (
    ANY_HOST,
    Cluster,
    Routes,
    decide_routes,
    match,
    port_of,
)
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.calls import CALLED, Line, called
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import announcing, behind, endpoints, leads_nowhere
from minik8s_modules.cli.causes.sight import Sight
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.mesh.sidecars import asking
from minik8s_modules.cli.mesh.tracing import by_sidecar
from minik8s_modules.client.api import ApiClient

_WIDTH = 11
_SERVICES = {SERVICE.singular_name, SERVICE.plural, *SERVICE.short_names}


def trace(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the way; returns 1 where it leads nowhere."""
    place = str(options.place).split("://", 1)[-1]
    authority, slash, rest = place.partition("/")
    host, path = _host_and_port(authority)[0], slash + rest or "/"
    if options.pod:
        sight = _sight(client, host, options.namespace)
        return _told(sight, _from_pod(sight, options, authority, path.partition("?")[0]))
    kind = CALLED.get(authority.lower())
    name = rest.rstrip("/")
    if name and place == options.place and authority.lower() in _SERVICES:
        host, path = name, "/"
    if kind is not None and name and place == options.place:
        return _shown(called(client, kind, name))
    own = options.from_namespace or options.namespace
    sight = _sight(client, host, own)
    return _told(sight, way(sight, host, path.partition("?")[0], own))


def _sight(client: ApiClient, host: str, own: str) -> Sight:
    """Return what is seen of a cluster to follow a request from a namespace: that one, and that of the Service."""
    named = _key(host, own)
    return Sight(client, [own, *([named.namespace] if named else [])])


def _told(sight: Sight, lines: Iterable[Line]) -> int:
    code = _shown(lines)
    if sight.unread:
        output.warn(f"without what you may not read: {', '.join(sorted(sight.unread.values()))}")
    return code


def _host_and_port(authority: str) -> tuple[str, str]:
    """Return what a URL names as host and port, without the brackets of IPv6; people leave these out, too."""
    if authority.startswith("["):
        host, _, behind_it = authority[1:].partition("]")
        return host, behind_it.removeprefix(":")
    host, _, port = authority.partition(":")
    return (authority, "") if ":" in port else (host, port)


def _from_pod(sight: Sight, options: argparse.Namespace, authority: str, path: str) -> Iterator[Line]:
    """Yield the stations of a request from a Pod with a sidecar."""
    host, number = _host_and_port(authority)
    port = int(number) if number.isascii() and number.isdigit() else 80
    service = _named(sight, host, options.namespace)
    if service is None:
        yield Line("name", f"{host} is not a Service{sight.among}: the sidecar passes the request on unchanged")
        yield from way(sight, host, path, options.namespace)
        return
    yield Line("name", f"{host} → {objects.spec(service).get('clusterIP')} (Service {objects.key(service)})")
    if all(each.get("port") != port for each in objects.spec(service).get("ports") or ()):
        yield Line("service", f"Service {objects.key(service)} has no port {port}", broken=True)
        return
    of_pod = (options.namespace, options.pod)
    lines, passes = by_sidecar(sight.client, asking(options), *of_pod, service, port, path, authority)
    yield from lines
    if passes:
        yield from _behind(sight, service)


def _shown(lines: Iterable[Line]) -> int:
    lines = list(lines)
    before = ""
    for line in lines:
        shown = "" if line.station == before else line.station
        sys.stdout.write(f"{shown:<{_WIDTH}}{line.text}\n")
        before = line.station
    return int(any(line.broken for line in lines))


def way(sight: Sight, host: str, path: str, namespace: str) -> Iterator[Line]:
    """Yield the stations of a request from a pod of a namespace. Raises as the API does."""
    services = {str(objects.key(each)): each for each in sight.all(SERVICE)}
    dns, ingresses, classes, grants = (sight.all(kind) for kind in (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT))
    routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
    declared, route = match(routes, host, path)
    if declared == ANY_HOST or not declared:
        service = _named(sight, host, namespace)
        if service is not None:
            address = (
                objects.spec(service).get("clusterIP") or objects.spec(service).get("externalName") or "no address"
            )
            yield Line("name", f"{host} → {address} (Service {objects.key(service)})")
            yield from _behind(sight, service)
            return
        found = _entering(sight, host, path) if not declared else []
        if "." not in host and ":" not in host and not declared and not found:
            text = f"{host}: namespace {namespace} has no such Service{sight.among}, and its pods no such name"
            found = [Line("name", text, broken=True)]
        if found:
            yield from found
            return
    yield from _name(sight, routes, host, declared, namespace)
    if not declared:
        yield Line("ingress", f"no Ingress or DNS object{sight.among} declares {host}: nginx answers 404", broken=True)
        return
    shown = "any host" if declared == ANY_HOST else declared
    if route is None:
        known = ", ".join(sorted(one.path for one in routes.hosts[declared])) or "none"
        yield Line("ingress", f"{shown} has no path for {path}: nginx answers 404 (paths: {known})", broken=True)
        return
    secret = routes.tls.get(declared)
    yield Line("ingress", f"{shown} {route.kind} {route.path}: {route.owner}{f', TLS from {secret}' if secret else ''}")
    service = services.get(route.service)
    if service is None:
        yield Line("service", f"there is no Service {route.service}{sight.among}: nginx answers 503", broken=True)
        return
    if port_of(service, route.port) is None:
        yield Line("service", f"Service {route.service} has no port {route.port}: nginx answers 503", broken=True)
        return
    yield Line("service", f"{route.service}:{route.port} → {objects.spec(service).get('clusterIP')}")
    yield from _behind(sight, service)


def _entering(sight: Sight, host: str, path: str) -> list[Line]:
    from minik8s_modules.cli.mesh.entering import by_gateways  # noqa: PLC0415 - the mesh's decisions, for this alone

    try:
        return by_gateways(sight.client, host, path)
    except Forbidden:  # what they do with a request depends on objects of all namespaces
        sight.unread["gateways"] = "what Gateways depend on in all namespaces"
        return []


def _name(sight: Sight, routes: Routes, host: str, declared: str, namespace: str) -> Iterator[Line]:
    own = routes.resolved.get(declared)
    if own is not None and own in ("", namespace):
        asked = f", as {name_within(own, declared)}.{CLUSTER_DOMAIN}" if own else ""
        yield Line("name", f"{host} → the nginx of whatever node asks (cluster DNS{asked})")
        return
    if own is not None:
        text = f"it answers in the pods of namespace {own} alone, as no HostGrant{sight.among} gives it more"
        yield Line("name", f"{host}: {text} (minik8s why dns -n {own})", broken=True)
        return
    nodes = [one["address"] for node in sight.all(NODE) if not is_virtual(node)
             for one in objects.status(node).get("addresses") or [] if one.get("type") == "InternalIP"]  # fmt: skip
    known = ", ".join(nodes) or f"there is none{sight.among}"
    text = f"not in the cluster's DNS; clients must resolve it to a node ({known})"
    yield Line("name", f"{host}: {text}")


def _named(sight: Sight, host: str, own: str) -> JsonObject | None:
    """Return the Service that cluster DNS knows by this name from pods of the namespace ``own``, or at this address."""
    with contextlib.suppress(ValueError):
        wanted = ipaddress.ip_address(host)
        return _at_address(sight.all(SERVICE), wanted)
    key = _key(host, own)
    return sight.get(SERVICE, key) if key else None


def _key(host: str, own: str) -> objects.Key | None:
    """Return which Service a name may mean in pods of the namespace ``own``; None for what names none."""
    parts = host.rstrip(".").removesuffix(f".svc.{CLUSTER_DOMAIN}").removesuffix(".svc").split(".")
    if len(parts) > 2 or not parts[0]:  # noqa: PLR2004 - service.namespace
        return None
    return objects.Key(parts[1] if len(parts) > 1 else own, parts[0])


def _at_address(
    services: Iterable[JsonObject], wanted: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> JsonObject | None:
    """Return the Service that has an address, however it is written there, with this as its first: it is called."""
    for service in services:
        spec = objects.spec(service)
        if wanted in map(ipaddress.ip_address, addresses_of(spec)):
            return {**service, "spec": {**spec, "clusterIP": str(wanted)}}
    return None


def _behind(sight: Sight, service: JsonObject) -> Iterator[Line]:
    if objects.spec(service).get("type") == "ExternalName":
        return
    around = Around(sight.client)
    found = behind(around, service)
    hidden = {kind.plural for kind in (ENDPOINT_SLICE, POD)} & around.unread
    sight.unread |= {plural: f"{plural} of namespace {objects.namespace(service)}" for plural in hidden}
    for address, who, is_announced in announcing(around, service, found):
        yield Line("outside", f"{address} ({who})", broken=not is_announced)
    shown = [Line("endpoints", f"{place} ({what})") for place, what in endpoints(found)]
    yield from shown
    if hidden:
        return
    cause = leads_nowhere(service, found, lambda pod: pod_cause(pod, around))
    if cause:
        yield Line("endpoints", f"none: {cause}", broken=True)
