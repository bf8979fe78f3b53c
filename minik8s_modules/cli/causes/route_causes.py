"""Why an Ingress or a DNS object does not lead where it says: for ``describe`` and ``why``.

The decision about hosts and paths is the nodes' own (``api/network/ingress_routes.py``); besides, certificates are
looked at, and what is behind the Services.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import DNS, HOST_GRANT, INGRESS, INGRESS_CLASS, SECRET, SERVICE
from minik8s_modules.api.network.host_grants import confinement
from minik8s_modules.api.network.ingress_routes import (
    CLASS_ANNOTATION,
    NOT_GRANTED,
    Cluster,
    Routes,
    decide_routes,
    has_place,
    owner_of,
    port_of,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.service_endpoints import behind, service_cause
from minik8s_modules.client.api import ApiClient

KINDS = frozenset({"Ingress", "DNS"})
CauseOf = Callable[[JsonObject], str]
_REFUSED, _PUT_RIGHT = "FailedToUpdatePaths", "PathsUpdated"


def route_causes(client: ApiClient, obj: JsonObject, events: Sequence[JsonObject], cause_of: CauseOf) -> list[str]:
    """Return why requests to the object's hosts and paths do not arrive; [] for other kinds, or where all do.

    ``cause_of`` tells what is wrong with a pod. What may not be read is not spoken of.
    """
    if obj.get("kind") not in KINDS:
        return []
    try:
        services = {str(objects.key(each)): each for each in client.list(SERVICE).items}
        dns, ingresses, classes, grants = (
            client.list(kind).items for kind in (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT)
        )
    except StatusError:
        return []
    routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
    owner = owner_of(obj["kind"], obj)
    found = [f"{one.reason}: {one.message}" for one in routes.refused.get(owner, ())]
    if owner not in routes.owners and not found:
        return [_foreign(obj)]
    hosts = routes.confined.get(owner, ())
    found += [f"{NOT_GRANTED}: {told}" for told in confinement(objects.namespace(obj), hosts)]
    found += _certificates(client, routes, obj)
    found += _endpoints(client, routes, owner, services, cause_of)
    found += _refused_by_nginx(events)
    if not found and not has_place(obj):
        found.append("no node that is ready has an address to answer at, or the controllers have not looked yet")
    return found


def _foreign(obj: JsonObject) -> str:
    called = objects.spec(obj).get("ingressClassName") or objects.annotations(obj).get(CLASS_ANNOTATION)
    if called:
        return f"its class {called} belongs to another controller: minik8s does not act on it"
    return "it names no class, and the default class belongs to another controller: minik8s does not act on it"


def _certificates(client: ApiClient, routes: Routes, obj: JsonObject) -> Iterator[str]:
    """Yield what is wrong with the Secrets of an Ingress."""
    namespace = objects.namespace(obj)
    for tls in objects.spec(obj).get("tls") or []:
        secret = f"{namespace}/{tls.get('secretName')}"
        hosts = [str(host).lower() for host in tls.get("hosts") or [] if routes.tls.get(str(host).lower()) == secret]
        if not hosts and tls.get("hosts"):
            continue  # another object's certificate is served there, which is a refusal
        where = ", ".join(hosts) or "its hosts"
        if why := _of_secret(client, namespace, str(tls.get("secretName") or "")):
            yield f"no certificate for {where}: {why}"


def _of_secret(client: ApiClient, namespace: str, name: str) -> str:
    if not name:
        return ""  # told as a refusal
    try:
        data = client.get(SECRET, name, namespace).get("data") or {}
    except NotFound:
        return f"there is no Secret {namespace}/{name}"
    except StatusError:
        return ""
    missing = [key for key in ("tls.crt", "tls.key") if not data.get(key)]
    if missing:
        return f"Secret {namespace}/{name} has no {' and no '.join(missing)}"
    plain = [
        key for key, mark in (("tls.crt", b"CERTIFICATE"), ("tls.key", b"PRIVATE KEY")) if not _pem(data[key], mark)
    ]
    return f"{' and '.join(plain)} of Secret {namespace}/{name} is not PEM" if plain else ""


def _pem(text: str, mark: bytes) -> bool:
    try:
        plain = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return False
    return b"-----BEGIN " in plain and mark in plain


def _endpoints(
    client: ApiClient, routes: Routes, owner: str, services: dict[str, JsonObject], cause_of: CauseOf
) -> Iterator[str]:
    """Yield the Services of an object's paths that lead nowhere, each once."""
    ways = sorted({(one.service, one.port) for places in routes.hosts.values() for one in places if one.owner == owner})
    seen = set[str]()
    for name, port in ways:
        service = services.get(name)
        if service is None or port_of(service, port) is None or name in seen:
            continue  # told as a refusal, or told
        seen.add(name)
        try:
            cause = service_cause(service, behind(client, service), cause_of)
        except StatusError:
            continue
        if cause:
            yield f"Service {name} has no endpoints (nginx answers 503): {cause}"


def _refused_by_nginx(events: Iterable[JsonObject]) -> list[str]:
    """Return what a node's nginx said last, while it says so."""
    last = [event for event in events if event.get("reason") in (_REFUSED, _PUT_RIGHT)][-1:]
    return [f"{_REFUSED}: {event.get('message', '')}" for event in last if event.get("reason") == _REFUSED]
