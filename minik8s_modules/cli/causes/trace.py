"""``trace HOST/PATH``: the way of a request as objects declare it: name → ingress → service → endpoints.

A host that no Ingress declares may be a Gateway's: gateway → route → Pods.

``trace TYPE/NAME`` shows that of a Service, or of what the API server calls itself (calls.py).
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import sys
from collections.abc import Iterable, Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import DNS, ENDPOINT_SLICE, HOST_GRANT, INGRESS, INGRESS_CLASS, NODE, POD, SERVICE
from minik8s_modules.api.network.cluster_names import CLUSTER_DOMAIN, name_within
from minik8s_modules.api.network.ingress_routes import (
    ANY_HOST,
    CLASS,
    CONTROLLER,
    Cluster,
    Route,
    Routes,
    decide_routes,
    match,
    owner_of,
    port_of,
)
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.calls import CALLED, Line, called
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.route_causes import class_of
from minik8s_modules.cli.causes.service_endpoints import announcing, behind, endpoints, leads_nowhere
from minik8s_modules.cli.causes.sight import Sight
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.mesh.sidecars import asking
from minik8s_modules.cli.mesh.tracing import by_sidecar
from minik8s_modules.client.api import ApiClient

_WIDTH = 11
_CLAIMING = (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT)
"""What decides who has which host and path."""
_GATEWAYS = "gateways"
_SERVICES = {SERVICE.singular_name, SERVICE.plural, *SERVICE.short_names}


def trace(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the way; returns 1 where it leads nowhere."""
    place = str(options.place).split("://", 1)[-1]
    authority, slash, rest = place.partition("/")
    path, name = (slash + rest or "/").partition("?")[0], rest.rstrip("/")
    is_typed = bool(name) and place == options.place
    own = options.namespace if options.pod else options.from_namespace or options.namespace
    if is_typed and authority.lower() in _SERVICES:
        sight = _sight(client, _host_and_port(name)[0], own)
        return _told(sight, _to_service(sight, options, name, own))
    sight = _sight(client, _host_and_port(authority)[0], own)
    if options.pod:
        return _told(sight, _from_pod(sight, options, authority, path))
    if is_typed and (kind := CALLED.get(authority.lower())) is not None:
        return _shown(called(client, kind, name))
    return _told(sight, way(sight, _host_and_port(authority)[0], path, own))


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


def _to_service(sight: Sight, options: argparse.Namespace, authority: str, own: str) -> Iterator[Line]:
    """Yield the stations to what is named as a Service: no other object may have that name as its host."""
    host = _host_and_port(authority)[0]
    service = _named(sight, host, own)
    if service is None:
        key = _key(host, own) or objects.Key(own, host)
        text = f"{host}: namespace {key.namespace} has no such Service{sight.among}"
        yield Line("name", text, broken=not sight.hides(SERVICE, key.namespace))
    elif options.pod:
        yield from _from_pod(sight, options, authority, "/")
    else:
        yield from _straight(sight, host, service)


def _straight(sight: Sight, host: str, service: JsonObject) -> Iterator[Line]:
    address = objects.spec(service).get("clusterIP") or objects.spec(service).get("externalName") or "no address"
    yield Line("name", f"{host} → {address} (Service {objects.key(service)})")
    yield from _behind(sight, service)


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
    dns, ingresses, classes, grants = (sight.all(kind) for kind in _CLAIMING)
    assumed = {class_of(each) for each in ingresses} - {"", CLASS} if sight.hides(INGRESS_CLASS) else ()
    classes = [*classes, *({"metadata": {"name": each}, "spec": {"controller": CONTROLLER}} for each in assumed)]
    routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
    declared, route = match(routes, host, path)
    if declared == ANY_HOST or not declared:
        service = _named(sight, host, namespace)
        if service is not None:
            yield from _straight(sight, host, service)
            return
        found = _entering(sight, host, path) if not declared else []
        if "." not in host and ":" not in host and not declared and not found:
            text = f"{host}: namespace {namespace} has no such Service{sight.among}, and its pods no such name"
            found = [Line("name", text, broken=not any(sight.hides(kind, namespace) for kind in (SERVICE, DNS)))]
        if found:
            yield from found
            return
    yield from _name(sight, routes, host, declared, namespace)
    if not declared:
        is_sure = not (sight.hides(DNS) or sight.hides(INGRESS) or _GATEWAYS in sight.unread)
        text = f"no Ingress or DNS object{sight.among} declares {host}: {_answer(404, is_sure=is_sure)}"
        yield Line("ingress", text, broken=is_sure)
        return
    shown = "any host" if declared == ANY_HOST else declared
    is_sure = not any(map(sight.hides, _CLAIMING))
    if route is None:
        known = ", ".join(sorted(one.path for one in routes.hosts[declared])) or "none"
        text = f"{shown} has no path for {path}: {_answer(404, is_sure=is_sure)} (paths: {known})"
        yield Line("ingress", text, broken=is_sure)
        return
    secret = routes.tls.get(declared)
    tls = f", TLS from {secret}" if secret else ""
    name = next((class_of(each) for each in ingresses if owner_of("Ingress", each) == route.owner), "")
    supposed = f", if its class {name} is this installation's" if name in assumed else ""
    yield Line("ingress", f"{shown} {route.kind} {route.path}: {route.owner}{tls}{supposed}")
    yield from _through_nginx(sight, services, route, is_sure=is_sure)


def _answer(status: int, *, is_sure: bool) -> str:
    return f"nginx answers {status}{_as_far(is_sure=is_sure)}"


def _as_far(*, is_sure: bool) -> str:
    return "" if is_sure else " as far as you may read"


def _through_nginx(sight: Sight, services: Mapping[str, JsonObject], route: Route, *, is_sure: bool) -> Iterator[Line]:
    """Yield the stations behind a path; ``is_sure``: it has that place whatever may not be read."""
    namespace, _, name = route.service.partition("/")
    service = services.get(route.service)
    if service is None and sight.hides(SERVICE, namespace):
        service = sight.get(SERVICE, objects.Key(namespace, name))
    if service is None:
        hidden = sight.hides(SERVICE, namespace)
        among, is_sure = " that you may read" if hidden else "", is_sure and not hidden
        text = f"there is no Service {route.service}{among}: {_answer(503, is_sure=is_sure)}"
        yield Line("service", text, broken=is_sure)
        return
    if port_of(service, route.port) is None:
        text = f"Service {route.service} has no port {route.port}: {_answer(503, is_sure=is_sure)}"
        yield Line("service", text, broken=is_sure)
        return
    yield Line("service", f"{route.service}:{route.port} → {objects.spec(service).get('clusterIP')}")
    yield from _behind(sight, service)


def _entering(sight: Sight, host: str, path: str) -> list[Line]:
    from minik8s_modules.cli.mesh.entering import by_gateways  # noqa: PLC0415 - the mesh's decisions, for this alone

    try:
        return by_gateways(sight.client, host, path)
    except Forbidden:  # what they do with a request depends on objects of all namespaces
        sight.unread[_GATEWAYS] = "what Gateways depend on in all namespaces"
        return []


def _name(sight: Sight, routes: Routes, host: str, declared: str, namespace: str) -> Iterator[Line]:
    own = routes.resolved.get(declared)
    if own is not None and own in ("", namespace):
        asked = f", as {name_within(own, declared)}.{CLUSTER_DOMAIN}" if own else ""
        yield Line("name", f"{host} → the nginx of whatever node asks (cluster DNS{asked})")
        return
    if own is not None:
        text = f"it answers in the pods of namespace {own} alone, as no HostGrant{sight.among} gives it more"
        is_sure = not (sight.hides(DNS) or sight.hides(HOST_GRANT))
        yield Line("name", f"{host}: {text} (minik8s why dns -n {own})", broken=is_sure)
        return
    nodes = [one["address"] for node in sight.all(NODE) if not is_virtual(node)
             for one in objects.status(node).get("addresses") or [] if one.get("type") == "InternalIP"]  # fmt: skip
    known = ", ".join(nodes) or f"there is none{sight.among}"
    is_sure = not (sight.hides(DNS) or ((key := _key(host, namespace)) and sight.hides(SERVICE, key.namespace)))
    text = f"not in the cluster's DNS{_as_far(is_sure=is_sure)}; clients must resolve it to a node ({known})"
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
