"""Why an Ingress or a DNS object does not lead where it says: for ``describe`` and ``why``.

The decision about hosts and paths is the nodes' own (``api/network/ingress_routes.py``); besides, certificates are
looked at, and what is behind the Services.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DNS, HOST_GRANT, INGRESS, INGRESS_CLASS, SECRET, SERVICE
from minik8s_modules.api.network import ingress_annotations
from minik8s_modules.api.network.host_grants import confinement
from minik8s_modules.api.network.ingress_routes import (
    CLASS,
    CLASS_ANNOTATION,
    CONTROLLER,
    NOT_GRANTED,
    Cluster,
    Routes,
    decide_routes,
    has_place,
    owner_of,
    port_of,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.access import certificate_fault, replace_certificate
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource, unrecovered, why
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import behind, leads_nowhere
from minik8s_modules.cli.causes.surroundings import Around


def route_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why requests to the hosts and paths of an Ingress or DNS object do not arrive."""
    services = {str(objects.key(each)): each for each in around.all(SERVICE)}
    dns, ingresses, classes, grants = (around.all(kind) for kind in (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT))
    if around.unread & {kind.plural for kind in (SERVICE, DNS, INGRESS, INGRESS_CLASS, HOST_GRANT)}:
        return  # who has which host is decided by all of them
    routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
    owner, namespace = owner_of(obj["kind"], obj), objects.namespace(obj)
    refused = [f"{one.reason}: {one.message}" for one in routes.refused.get(owner, ())]
    if owner not in routes.owners and not refused:
        if not objects.is_deleting(obj):
            yield Fault(_foreign(obj, {objects.name(one) for one in classes}), "kubectl get ingressclasses")
        return
    found = [Fault(reason, kubectl(namespace, "edit", resource(obj))) for reason in (*refused, *_pathless(obj))]
    confined = confinement(namespace, routes.confined.get(owner, ()))
    found += [Fault(f"{NOT_GRANTED}: {reason}", "kubectl get hostgrants") for reason in confined]
    found += _certificates(around, routes, obj)
    found += _endpoints(around, routes, owner, services)
    found += unrecovered(around.events(obj), around.now)
    if not found and not has_place(obj):
        message = "no node that is ready has an address to answer at, or the controllers have not processed it yet"
        found.append(Fault(message, "kubectl get nodes -o wide"))
    yield from found


def unheeded(ingress: JsonObject, around: Around) -> Iterator[tuple[str, Fault]]:
    """Yield which annotations of ingress-nginx change nothing, after the path of the first one."""
    if found := ingress_annotations.unheeded(ingress, list(around.all(INGRESS_CLASS))):
        paths = [f"metadata.annotations[{key}]" for key in found]
        text = f"{', '.join(paths)} {'are' if paths[1:] else 'is'} not acted on: {ingress_annotations.REASON}"
        yield paths[0], Fault(text)


def _pathless(obj: JsonObject) -> Iterator[str]:
    """Yield the hosts for which an object declares no path."""
    spec = objects.spec(obj)
    rules = spec.get("rules") or []
    if not rules and not spec.get("defaultBackend"):
        yield "it has no rules: nothing is served"
    for rule in rules:
        paths = rule.get("paths") if obj["kind"] == "DNS" else (rule.get("http") or {}).get("paths")
        if not paths and not spec.get("defaultBackend"):
            yield f"host {rule.get('host') or 'of any name'} has no paths: nginx answers 404"


def class_faults(one: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that an IngressClass belongs to another controller."""
    controller = objects.spec(one).get("controller")
    if controller != CONTROLLER:
        text = f"it belongs to the controller {controller}: minik8s ({CONTROLLER}) does not act on its Ingresses"
        yield Fault(text, "kubectl get ingresses -A")
    _ = around


def class_of(ingress: JsonObject) -> str:
    """Return the name of an Ingress' class, "" where it names none."""
    return str(
        objects.spec(ingress).get("ingressClassName") or objects.annotations(ingress).get(CLASS_ANNOTATION) or ""
    )


def _foreign(obj: JsonObject, classes: AbstractSet[str]) -> str:
    called = class_of(obj)
    if called and called not in classes:
        return f"there is no IngressClass {called}: minik8s does not act on it (its own class is {CLASS})"
    if called:
        return f"its class {called} belongs to another controller: minik8s does not act on it"
    return "it names no class, and the default class belongs to another controller: minik8s does not act on it"


def _certificates(around: Around, routes: Routes, obj: JsonObject) -> Iterator[Fault]:
    """Yield what is wrong with the Secrets of an Ingress."""
    namespace = objects.namespace(obj)
    for tls in objects.spec(obj).get("tls") or []:
        name = str(tls.get("secretName") or "")
        secret = f"{namespace}/{name}"
        hosts = [str(host).lower() for host in tls.get("hosts") or [] if routes.tls.get(str(host).lower()) == secret]
        if not name or (not hosts and tls.get("hosts")):
            continue  # told as a refusal, as is another object's certificate that is served there
        where = ", ".join(hosts) or "its hosts"
        if why := _of_secret(around, namespace, name):
            yield Fault(f"no certificate for {where}: {why}", replace_certificate(namespace, name))


def _of_secret(around: Around, namespace: str, name: str) -> str:
    secret = around.get(SECRET, name, namespace)
    if secret is None:
        return f"there is no Secret {namespace}/{name}" if around.lacks(SECRET, name, namespace) else ""
    return certificate_fault(secret, around)


def _endpoints(around: Around, routes: Routes, owner: str, services: dict[str, JsonObject]) -> Iterator[Fault]:
    """Yield the Services of an object's paths that lead nowhere, each once."""
    ways = sorted({(one.service, one.port) for places in routes.hosts.values() for one in places if one.owner == owner})
    seen = set[str]()
    for name, port in ways:
        service = services.get(name)
        if service is None or port_of(service, port) is None or name in seen:
            continue  # told as a refusal, or told
        seen.add(name)
        cause = leads_nowhere(service, behind(around, service), lambda pod: pod_cause(pod, around))
        if cause:
            lead = why(SERVICE, objects.name(service), objects.namespace(service))
            yield Fault(f"Service {name} has no endpoints (nginx answers 503): {cause}", lead)
