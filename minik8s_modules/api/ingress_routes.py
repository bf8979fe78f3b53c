"""Which object has which host and path, and who is refused. Pure; the reconciler and the status controllers share it.

Objects are taken oldest first, so a place that is taken stays its owner's. A DNS object has whole hosts, as in the
original; Ingresses may share a host, path by path. Sources: Ingress of networking.k8s.io/v1 and its conformance tests
(kubernetes-sigs/ingress-controller-conformance): Exact before Prefix, longest first, prefixes by whole elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject

CONTROLLER, CLASS = "minik8s.io/ingress", "minik8s"
"""What an IngressClass of ours names, and the class that needs no such object."""
CLASS_ANNOTATION, DEFAULT_CLASS = "kubernetes.io/ingress.class", "ingressclass.kubernetes.io/is-default-class"
REDIRECT_ANNOTATION = "nginx.ingress.kubernetes.io/ssl-redirect"
"""ingress-nginx' annotation; "false" is what it takes to have a host with a certificate answer without TLS, too."""
ANY_HOST = "_"
CONFLICT, INVALID_PATH, NO_SERVICE, NO_PORT = "HostConflict", "InvalidPath", "ServiceNotFound", "ServicePortNotFound"
NO_CLASS, NOT_SUPPORTED, NO_CERTIFICATE = "IngressClassNotFound", "NotSupported", "CertificateNotServed"
Places = dict[tuple[str, str], "Route"]


class Route(NamedTuple):
    """One path of one host; ``owner`` is ``<Kind> <namespace>/<name>``, ``service`` ``<namespace>/<name>``."""

    owner: str
    kind: str
    path: str
    service: str
    port: int | str
    strip: bool = False
    """Whether the path is replaced by "/", as the original's nginx does."""
    plain: bool = False
    """Whether it is served without TLS although its host has a certificate; else such a request is sent to https."""


class Refusal(NamedTuple):
    """Why (a part of) an object has no effect."""

    reason: str
    message: str


class Routes(NamedTuple):
    """What all objects come to."""

    hosts: Mapping[str, tuple[Route, ...]]
    tls: Mapping[str, str]
    """``<namespace>/<name>`` of the Secret by host."""
    resolved: frozenset[str]
    """Hosts of DNS objects: cluster DNS answers for them."""
    refused: Mapping[str, tuple[Refusal, ...]]
    owners: frozenset[str]
    """All objects that are this installation's to realize."""


class Cluster(NamedTuple):
    """The objects that decide."""

    dns: Iterable[JsonObject]
    ingresses: Iterable[JsonObject]
    classes: Iterable[JsonObject]
    services: Mapping[str, JsonObject]


def owner_of(kind: str, obj: JsonObject) -> str:
    """Return what an object is called in refusals."""
    return f"{kind} {objects.namespace(obj)}/{objects.name(obj)}"


def decide_routes(cluster: Cluster) -> Routes:
    """Return who has which host and path."""
    return _Claims(cluster).routes()


class _Claims:
    """The claims made so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._services = cluster.services
        self._classes = {objects.name(each): each for each in cluster.classes}
        self._places: dict[str, Places] = {}
        self._whole: dict[str, str] = {}
        self._tls: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, list[Refusal]] = {}
        self._owners: set[str] = set()
        self._defaults: list[tuple[list[str], Route]] = []
        every = [("DNS", each) for each in cluster.dns] + [("Ingress", each) for each in cluster.ingresses]
        for kind, obj in sorted(every, key=lambda one: _age(*one)):
            if not objects.is_deleting(obj):
                (self._dns if kind == "DNS" else self._ingress)(obj)
        self._fill_defaults()

    def routes(self) -> Routes:
        """Return the outcome."""
        hosts = {host: tuple(places.values()) for host, places in self._places.items()}
        return Routes(
            hosts,
            {host: secret for host, (secret, _) in self._tls.items() if host in hosts},
            frozenset(self._whole),
            {owner: tuple(dict.fromkeys(why)) for owner, why in self._refused.items()},
            frozenset(self._owners),
        )

    def _refuse(self, owner: str, reason: str, message: str) -> None:
        self._refused.setdefault(owner, []).append(Refusal(reason, message))

    def _dns(self, obj: JsonObject) -> None:
        owner, namespace = owner_of("DNS", obj), objects.namespace(obj)
        self._owners.add(owner)
        for rule in objects.spec(obj).get("rules") or []:
            host = str(rule.get("host") or "").lower()
            holder = self._whole.get(host) or next((one.owner for one in self._places.get(host, {}).values()), "")
            if holder:
                self._refuse(owner, CONFLICT, f"host {host} conflicts with existing host of {holder}")
                continue
            self._whole[host] = owner
            self._places.setdefault(host, {})
            for path in rule.get("paths") or []:
                service = (path.get("backend") or {}).get("service") or {}
                target = f"{namespace}/{service.get('name')}"
                text, port = str(path.get("path") or "/"), service.get("port") or 0
                self._claim(host, Route(owner, "Prefix", text, target, port, strip=True))

    def _ingress(self, obj: JsonObject) -> None:
        owner = owner_of("Ingress", obj)
        if not self._is_ours(obj, owner):
            return
        self._owners.add(owner)
        spec = objects.spec(obj)
        hosts = []
        for rule in spec.get("rules") or []:
            host = str(rule.get("host") or ANY_HOST).lower()
            hosts.append(host)
            for path in (rule.get("http") or {}).get("paths") or []:
                kind = "Exact" if path.get("pathType") == "Exact" else "Prefix"
                route = self._route(obj, owner, kind, str(path.get("path") or "/"), path.get("backend") or {})
                if route is not None:
                    self._claim(host, route)
        if spec.get("defaultBackend") is not None:
            default = self._route(obj, owner, "Prefix", "/", spec["defaultBackend"])
            if default is not None and hosts:
                self._defaults.append(([*hosts, ANY_HOST], default))
            elif default is not None:
                self._claim(ANY_HOST, default)
        self._certificates(obj, owner, hosts)

    def _is_ours(self, obj: JsonObject, owner: str) -> bool:
        name = objects.spec(obj).get("ingressClassName") or objects.annotations(obj).get(CLASS_ANNOTATION)
        if name:
            known = self._classes.get(name)
            if known is None and name != CLASS and objects.spec(obj).get("ingressClassName"):
                self._refuse(owner, NO_CLASS, f"there is no IngressClass {name}; {CLASS} needs none")
            return name == CLASS if known is None else objects.spec(known).get("controller") == CONTROLLER
        defaults = [each for each in self._classes.values() if objects.annotations(each).get(DEFAULT_CLASS) == "true"]
        return not defaults or any(objects.spec(each).get("controller") == CONTROLLER for each in defaults)

    def _route(self, obj: JsonObject, owner: str, kind: str, path: str, backend: JsonObject) -> Route | None:
        service = backend.get("service")
        if service is None:
            self._refuse(owner, NOT_SUPPORTED, f"path {path!r}: only services can be backends, no resources")
            return None
        port = service.get("port") or {}
        target = f"{objects.namespace(obj)}/{service.get('name')}"
        plain = objects.annotations(obj).get(REDIRECT_ANNOTATION) == "false"
        return Route(owner, kind, path, target, port.get("number") or port.get("name") or 0, plain=plain)

    def _claim(self, host: str, route: Route) -> None:
        if any(ord(char) < 32 or ord(char) == 127 for char in route.path):  # noqa: PLR2004 - ASCII's controls
            self._refuse(route.owner, INVALID_PATH, f"path {route.path!r} of {host} holds control characters")
            return
        places = self._places.setdefault(host, {})
        place = (route.kind, route.path.rstrip("/") or "/") if route.kind == "Prefix" else (route.kind, route.path)
        holder = places.get(place) if self._whole.get(host, route.owner) == route.owner else None
        owner = holder.owner if holder else self._whole.get(host, route.owner)
        if holder is not None or owner != route.owner:
            shown = "any host" if host == ANY_HOST else f"host {host}"
            self._refuse(route.owner, CONFLICT, f"{shown} path {route.path} is taken by {owner}")
            return
        places[place] = route._replace(path=place[1])
        self._check(route)

    def _check(self, route: Route) -> None:
        service = self._services.get(route.service)
        if service is None:
            self._refuse(route.owner, NO_SERVICE, f"path {route.path}: there is no Service {route.service}")
            return
        if objects.spec(service).get("type") == "ExternalName":
            self._refuse(route.owner, NOT_SUPPORTED, f"path {route.path}: Service {route.service} is an ExternalName")
        elif port_of(service, route.port) is None:
            self._refuse(route.owner, NO_PORT, f"path {route.path}: Service {route.service} has no port {route.port}")

    def _certificates(self, obj: JsonObject, owner: str, hosts: list[str]) -> None:
        for tls in objects.spec(obj).get("tls") or []:
            secret = tls.get("secretName")
            if not secret:
                self._refuse(owner, NO_CERTIFICATE, "spec.tls without a secretName: no certificate is served")
                continue
            named = [str(host).lower() for host in tls.get("hosts") or [] or hosts]
            for host in named:
                if host == ANY_HOST:
                    self._refuse(owner, NO_CERTIFICATE, "a certificate is served for named hosts only")
                    continue
                self._tls.setdefault(host, (f"{objects.namespace(obj)}/{secret}", owner))
                if self._tls[host] != (f"{objects.namespace(obj)}/{secret}", owner):
                    holder = self._tls[host][1]
                    self._refuse(owner, NO_CERTIFICATE, f"host {host} has its certificate from {holder}")

    def _fill_defaults(self) -> None:
        for hosts, route in self._defaults:
            for host in hosts:
                if host not in self._whole:
                    self._places.setdefault(host, {}).setdefault(("Prefix", "/"), route)
            self._check(route)


def _age(kind: str, obj: JsonObject) -> tuple[str, bool, str, str, str]:
    """Return what objects are ordered by; of one second's (times have no more), those that have a place go first."""
    created = str(objects.dig(obj, "metadata", "creationTimestamp") or "~")
    return (created, not has_place(obj), kind, objects.namespace(obj), objects.name(obj))


def has_place(obj: JsonObject) -> bool:
    """Return whether the status of an object says that it has a place."""
    status = objects.status(obj)
    accepted = (one for one in status.get("conditions") or [] if one.get("type") == "Accepted")
    return any(one.get("status") == "True" for one in accepted) or bool(objects.dig(status, "loadBalancer", "ingress"))


def port_of(service: JsonObject, port: int | str) -> JsonObject | None:
    """Return the Service's port of that number or name, None when it has none."""
    ports = objects.spec(service).get("ports") or []
    return next((one for one in ports if port in (one.get("port"), one.get("name"))), None)


def match(routes: Routes, host: str, path: str) -> tuple[str, Route | None]:
    """Return the declared host that a request is of ("" for none) and its route, as nginx finds them."""
    name = host.lower().rstrip(".")
    for declared in (name, f"*.{name.partition('.')[2]}", ANY_HOST):
        if declared in routes.hosts:
            fitting = [one for one in routes.hosts[declared] if _fits(one, path)]
            return declared, max(fitting, key=lambda one: (one.kind == "Exact", len(one.path)), default=None)
    return "", None


def _fits(route: Route, path: str) -> bool:
    below = route.path.rstrip("/") + "/"
    return path == route.path or (route.kind == "Prefix" and path.startswith(below))
