"""``trace HOST/PATH``: the way of a request as objects declare it: name → ingress → service → endpoints.

A host that no Ingress declares may be a Gateway's: gateway → route → Pods.

``trace TYPE/NAME`` shows that to a Service or a Pod (pod_ways.py), or of what the API server calls itself (calls.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import (
    DNS,
    ENDPOINT_SLICE,
    HOST_GRANT,
    INGRESS,
    INGRESS_CLASS,
    NODE,
    POD,
    SERVICE,
)
from minik8s_modules.api.network.cluster_names import CLUSTER_DOMAIN, name_within
from minik8s_modules.api.network.gateway_api import GATEWAY_NAME
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
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import place as at
from minik8s_modules.cli import output
from minik8s_modules.cli.causes import addresses
from minik8s_modules.cli.causes.calls import CALLED, Line, called
from minik8s_modules.cli.causes.places import Place, place_of
from minik8s_modules.cli.causes.pod_ways import host_port, pod_at, to_pod
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.route_causes import class_of
from minik8s_modules.cli.causes.service_endpoints import announcing, behind, endpoints, leads_nowhere
from minik8s_modules.cli.causes.sight import Sight
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.mesh.sidecars import asking
from minik8s_modules.cli.mesh.tracing import by_sidecar
from minik8s_modules.client.api import ApiClient

_WIDTH = 11
_CLAIMING = (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT)
"""What decides who has which host and path."""
_GATEWAYS = "gateways"
_NGINX_PORTS = ("80", "443")
"""As installed, if nothing else is said."""
_OTHER_PORTS = "(minik8s_ingress_http_port, minik8s_ingress_https_port)"


def trace(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the way; returns 1 where it leads nowhere."""
    place = place_of(options.place)
    if options.pod and options.from_namespace:
        options.refuse("--from names a Pod of the namespace that -n says: leave --from-namespace out")
    if place.kind is not None and place.kind in CALLED:
        if options.pod or options.from_namespace:
            options.refuse(f"the API server itself calls {place.authority}: leave --from and --from-namespace out")
        return _shown(called(client, place.kind, place.path.strip("/")))
    own = options.from_namespace or options.namespace
    named = _key(place.host, own)
    sight = Sight(client, [own, *([named.namespace] if named else [])])
    code = _shown(_stations(sight, options, place, own))
    if sight.unread:
        output.warn(f"without what you may not read: {', '.join(sorted(sight.unread.values()))}")
    return code


def _stations(sight: Sight, options: argparse.Namespace, place: Place, own: str) -> Iterator[Line]:
    """Return the stations of what the command line names.

    Raises:
        UsageError: it names an object that no request goes to.
    """
    if place.kind == SERVICE:
        return _to_service(sight, options, place, own)
    if place.kind == POD:
        return _to_named_pod(sight, options, place, own)
    if place.kind is not None and not _may_be_host(sight, place, own):
        text = f"{place.authority}{place.path} names a {place.kind.kind}, and no request goes to one"
        raise UsageError(f"{text}: write svc/NAME, pod/NAME or a URL (http://{place.authority}{place.path})")
    return _from_pod(sight, options, place) if options.pod else way(sight, place, own)


def _may_be_host(sight: Sight, place: Place, own: str) -> bool:
    """Return whether something has the name of a type as its host, such as Service ``jobs`` of namespace ``batch``."""
    key = _key(place.host, own)
    if _named(sight, place.host, own) is not None or (key and sight.hides(SERVICE, key.namespace)):
        return True
    declared, _ = match(_routes(sight)[0], place.host, place.path)
    return declared not in ("", ANY_HOST) or bool(_entering(sight, place.host, place.path))


def _to_service(sight: Sight, options: argparse.Namespace, place: Place, own: str) -> Iterator[Line]:
    """Yield the stations to what is named as a Service: no other object may have that name as its host."""
    service = _named(sight, place.host, own, place.port)
    if service is None:
        key = _key(place.host, own) or objects.Key(own, place.host)
        text = f"{place.host}: namespace {key.namespace} has no such Service{sight.among}"
        yield Line("name", text, broken=not sight.hides(SERVICE, key.namespace))
    elif options.pod:
        yield from _from_pod(sight, options, place)
    else:
        yield from _straight(sight, place, service)


def _to_named_pod(sight: Sight, options: argparse.Namespace, place: Place, own: str) -> Iterator[Line]:
    if options.pod:
        raise _past_routes(options, place)
    pod = sight.get(POD, objects.Key(own, place.host))
    if pod is None:
        text = f"{place.host}: namespace {own} has no such Pod{sight.among}"
        yield Line("name", text, broken=not sight.hides(POD, own))
    else:
        yield from to_pod(sight, place.host, place.port, pod)


def _past_routes(options: argparse.Namespace, place: Place) -> UsageError:
    """Return why the way from a Pod to a Pod's own address is not told."""
    to = f"{place.host}:{place.port or 'PORT'}"
    text = "a sidecar passes connections to a Pod's own address on unchanged, without mutual TLS"
    others = "a Pod of a strict Namespace refuses them, and AuthorizationPolicies see no caller"
    command = f"minik8s why connect -n {options.namespace} {options.pod} {to}"
    return UsageError(f"{text}: {others}; what NetworkPolicies allow: {command}")


def _straight(sight: Sight, place: Place, service: JsonObject) -> Iterator[Line]:
    spec, key = objects.spec(service), objects.key(service)
    yield Line(
        "name", f"{place.host} → {spec.get('clusterIP') or spec.get('externalName') or 'no address'} (Service {key})"
    )
    is_translated = (
        spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None"
    )  # others may be called at any
    number = addresses.number_of(service, place.port) if place.port else None
    if place.port and is_translated and number is None:
        yield Line("service", f"Service {key} has no port {place.port}", broken=True)
        return
    yield from _into(sight, place, service, str(number or ""))


def _from_pod(sight: Sight, options: argparse.Namespace, place: Place) -> Iterator[Line]:
    """Yield the stations of a request from a Pod with a sidecar."""
    host, port = place.host, place.port or ("" if place.scheme else "80")
    service = _named(sight, host, options.namespace, port)
    if service is None:
        if pod_at(sight, host) is not None:
            raise _past_routes(options, place)
        yield Line("name", f"{host} is not a Service{sight.among}: the sidecar passes the request on unchanged")
        yield from way(sight, place, options.namespace)
        return
    if not port:
        raise UsageError(f"{place.scheme} has no port of its own: write {place.scheme}://{host}:PORT{place.path}")
    yield Line("name", f"{host} → {objects.spec(service).get('clusterIP')} (Service {objects.key(service)})")
    number = addresses.number_of(service, port)
    if number is None:
        yield Line("service", f"Service {objects.key(service)} has no port {port}", broken=True)
        return
    of_pod = (options.namespace, options.pod)
    lines, passes = by_sidecar(sight.client, asking(options), *of_pod, service, number, place.path, place.authority)
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


def way(sight: Sight, place: Place, namespace: str) -> Iterator[Line]:
    """Yield the stations of a request from a pod of a namespace. Raises as the API does."""
    host, path = place.host, place.path
    routes, assumed = _routes(sight)
    declared, route = match(routes, host, path)
    if declared == ANY_HOST or not declared:
        found = [*_elsewhere(sight, place, namespace, declared)]
        if found:
            yield from found
            return
    yield from _name(sight, routes, place, declared, namespace)
    others = (SERVICE, POD) if addresses.address_of(host) else ()  # which may have a port of a node instead of nginx
    if not declared:
        is_sure = not (any(map(sight.hides, (DNS, INGRESS, *others))) or _GATEWAYS in sight.unread)
        text = f"no Ingress or DNS object{sight.among} declares {host}: {_answer(404, is_sure=is_sure)}"
        yield Line("ingress", text, broken=is_sure)
        return
    shown = "any host" if declared == ANY_HOST else declared
    is_sure = not any(map(sight.hides, (*_CLAIMING, *others)))
    if route is None:
        known = ", ".join(sorted(one.path for one in routes.hosts[declared])) or "none"
        text = f"{shown} has no path for {path}: {_answer(404, is_sure=is_sure)} (paths: {known})"
        yield Line("ingress", text, broken=is_sure)
        return
    secret = routes.tls.get(declared)
    tls = f", TLS from {secret}" if secret else ""
    name = next((class_of(each) for each in sight.all(INGRESS) if owner_of("Ingress", each) == route.owner), "")
    supposed = f", if its class {name} is this installation's" if name in assumed else ""
    yield Line("ingress", f"{shown} {route.kind} {route.path}: {route.owner}{tls}{supposed}")
    yield from _through_nginx(sight, route, is_sure=is_sure)


def _routes(sight: Sight) -> tuple[Routes, set[str]]:
    """Return who has which host and path, and the classes of Ingresses that are taken for this installation's."""
    dns, ingresses, classes, grants = (sight.all(kind) for kind in _CLAIMING)
    assumed = {class_of(each) for each in ingresses} - {"", CLASS} if sight.hides(INGRESS_CLASS) else set[str]()
    classes = [*classes, *({"metadata": {"name": each}, "spec": {"controller": CONTROLLER}} for each in assumed)]
    return decide_routes(Cluster(dns, ingresses, classes, _services(sight), grants)), assumed


def _services(sight: Sight) -> dict[str, JsonObject]:
    return {str(objects.key(each)): each for each in sight.all(SERVICE)}


def _elsewhere(sight: Sight, place: Place, namespace: str, declared: str) -> Iterator[Line]:
    """Yield the stations of a request that nginx does not answer: of a Service, a Pod, a Gateway or nobody."""
    host, address = place.host, addresses.address_of(place.host)
    service = _named(sight, host, namespace, place.port)
    pod = pod_at(sight, host) if address and service is None else None
    if service is not None:
        yield from _straight(sight, place, service)
    elif pod is not None:
        yield from to_pod(sight, host, place.port, pod)
    elif found := [*_from_outside(sight, place)] if address else []:
        yield from found
    elif not (declared or (address and place.port)):  # a Gateway's port of a node is its Service's
        found = _entering(sight, host, place.path)
        yield from found
        if not (found or address or "." in host):
            text = f"{host}: namespace {namespace} has no such Service{sight.among}, and its pods no such name"
            yield Line("name", text, broken=not any(sight.hides(kind, namespace) for kind in (SERVICE, DNS)))


def _from_outside(sight: Sight, place: Place) -> Iterator[Line]:
    """Yield the stations of a request to an address that is no Service's or Pod's own, unless it is for nginx."""
    host, port = place.host, place.port
    address, own = addresses.address_of(host), addresses.beside(sight, host)
    machine = own or ([address] if sight.hides(NODE) else [])  # it may be one's
    if found := addresses.sent_on(sight, machine, port) or (addresses.node_port(sight, port) if own else None):
        yield Line("name", f"{at(host, port)} → the {found.how} of Service {objects.key(found.service)}")
        yield from _into(sight, place, found.service, found.port)
    elif led := host_port(sight, machine, address, port):
        pod, number = led
        yield Line("name", f"{at(host, port)} → the host port of Pod {objects.key(pod)}")
        yield from to_pod(sight, objects.name(pod), number, pod)
    elif not own and (service := addresses.balanced_at(sight, host, port)) is not None:
        yield from _straight(sight, place, service)
    elif not own:
        hidden = any(map(sight.hides, (SERVICE, POD, NODE)))
        and_port = f" and port {port}" if port and sight.hides(NODE) else ""
        text = f"{host}: no Service, Pod or node{sight.among} has this address{and_port}"
        nodes = ", ".join(addresses.of_nginx(sight)) or "none"
        yield Line("name", f"{text} (nodes: {nodes})", broken=not hidden)


def _answer(status: int, *, is_sure: bool) -> str:
    return f"nginx answers {status}{_as_far(is_sure=is_sure)}"


def _as_far(*, is_sure: bool) -> str:
    return "" if is_sure else " as far as you may read"


def _through_nginx(sight: Sight, route: Route, *, is_sure: bool) -> Iterator[Line]:
    """Yield the stations behind a path; ``is_sure``: it has that place whatever may not be read."""
    namespace, _, name = route.service.partition("/")
    service = _services(sight).get(route.service)
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


def _into(sight: Sight, place: Place, service: JsonObject, port: str) -> Iterator[Line]:
    """Yield what is behind a port of a Service; at an address of a Gateway's, what that does with the request."""
    found = list[Line]()
    if GATEWAY_NAME in objects.labels(service) and addresses.address_of(place.host):
        found = _entering(sight, place.host, place.path, (objects.key(service), port))
    yield from found or _behind(sight, service)


def _entering(sight: Sight, host: str, path: str, at_port: tuple[objects.Key, str] | None = None) -> list[Line]:
    from minik8s_modules.cli.mesh.entering import by_gateways  # noqa: PLC0415 - the mesh's decisions, for this alone

    try:
        return by_gateways(sight.client, host, path, at_port)
    except Forbidden:  # what they do with a request depends on objects of all namespaces
        sight.unread[_GATEWAYS] = "what Gateways depend on in all namespaces"
        return []


def _name(sight: Sight, routes: Routes, place: Place, declared: str, namespace: str) -> Iterator[Line]:
    host, own = place.host, routes.resolved.get(declared)
    if own is not None and own in ("", namespace):
        asked = f", as {name_within(own, declared)}.{CLUSTER_DOMAIN}" if own else ""
        yield Line("name", f"{host} → the nginx of whatever node asks (cluster DNS{asked})")
        return
    if own is not None:
        text = f"it answers in the pods of namespace {own} alone, as no HostGrant{sight.among} gives it more"
        is_sure = not (sight.hides(DNS) or sight.hides(HOST_GRANT))
        yield Line("name", f"{host}: {text} (minik8s why dns -n {own})", broken=is_sure)
        return
    if addresses.address_of(host):
        yield Line("name", f"{host} → the nginx of the node that has this address")
        if place.port not in ("", *_NGINX_PORTS):
            text = f"if it was installed with port {place.port} {_OTHER_PORTS}: no Service or Pod{sight.among} has it"
            yield Line("name", text)
        return
    known = ", ".join(addresses.of_nginx(sight)) or f"there is none{sight.among}"
    is_sure = not (sight.hides(DNS) or ((key := _key(host, namespace)) and sight.hides(SERVICE, key.namespace)))
    text = f"not in the cluster's DNS{_as_far(is_sure=is_sure)}; clients must resolve it to a node ({known})"
    yield Line("name", f"{host}: {text}")


def _named(sight: Sight, host: str, own: str, port: str = "") -> JsonObject | None:
    """Return the Service that cluster DNS knows by this name from pods of the namespace ``own``, or at this address."""
    if addresses.address_of(host):
        return addresses.service_at(sight, host, port)
    key = _key(host, own)
    return sight.get(SERVICE, key) if key else None


def _key(host: str, own: str) -> objects.Key | None:
    """Return which Service a name may mean in pods of the namespace ``own``; None for what names none."""
    parts = host.rstrip(".").removesuffix(f".svc.{CLUSTER_DOMAIN}").removesuffix(".svc").split(".")
    if len(parts) > 2 or not parts[0]:  # noqa: PLR2004 - service.namespace
        return None
    return objects.Key(parts[1] if len(parts) > 1 else own, parts[0])


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
