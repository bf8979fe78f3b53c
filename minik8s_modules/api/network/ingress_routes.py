"""Which object has which host and path, and who is refused. Pure; the reconciler and the status controllers share it.

Claims of hosts that a HostGrant gives to the object's namespace go first; among equals the oldest object goes first,
so a place that is taken stays its owner's. A DNS object has whole hosts, as in the original; Ingresses may share a
host, path by path, those of several namespaces only where each was granted it. Whoever was not granted a host has it
until somebody claims it who was, and has no name below another namespace's granted ``*.domain``. Source:
kubernetes-sigs/ingress-controller-conformance: Exact before Prefix, longest first, prefixes by whole elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.cluster_names import is_own, is_too_long
from minik8s_modules.api.network.host_grants import HostGrants
from minik8s_modules.api.objects import JsonObject

CONTROLLER, CLASS = "minik8s.io/ingress", "minik8s"
"""What an IngressClass of ours names, and the class that needs no such object."""
NGINX_CONTROLLER, NGINX_CLASS = "k8s.io/ingress-nginx", "nginx"
"""What manifests written for ingress-nginx name: ours answers for it unless ingress-nginx itself is installed, which
brings a class with the label ``INSTALLED``."""
INSTALLED = ("app.kubernetes.io/name", "ingress-nginx")
CLASS_ANNOTATION, DEFAULT_CLASS = "kubernetes.io/ingress.class", "ingressclass.kubernetes.io/is-default-class"
REDIRECT_ANNOTATION = "nginx.ingress.kubernetes.io/ssl-redirect"
"""ingress-nginx' annotation; "false" is what it takes to have a host with a certificate answer without TLS, too."""
ANY_HOST = "_"
CONFLICT, INVALID_PATH, NO_SERVICE, NO_PORT = "HostConflict", "InvalidPath", "ServiceNotFound", "ServicePortNotFound"
NO_CLASS, NOT_SUPPORTED, NO_CERTIFICATE = "IngressClassNotFound", "NotSupported", "CertificateNotServed"
NOT_GRANTED, INVALID_HOST = "HostNotGranted", "InvalidHost"
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
    resolved: Mapping[str, str]
    """Hosts of DNS objects, for which cluster DNS answers, and the namespace whose pods alone it tells, "" for all."""
    refused: Mapping[str, tuple[Refusal, ...]]
    owners: frozenset[str]
    """All objects that are this installation's to realize."""
    confined: Mapping[str, tuple[str, ...]]
    """Hosts of a DNS object that answer in its own namespace alone, by the object."""


class Cluster(NamedTuple):
    """The objects that decide."""

    dns: Iterable[JsonObject]
    ingresses: Iterable[JsonObject]
    classes: Iterable[JsonObject]
    services: Mapping[str, JsonObject]
    grants: Iterable[JsonObject]


class _Claim(NamedTuple):
    """What one rule of an object asks for; ``kind`` is "" for a default backend, which takes what is left."""

    kind: str
    owner: str
    namespace: str
    host: str
    routes: tuple[Route, ...]
    grant: str
    """The HostGrant that gives the namespace the host, "" for none."""


class _Holder(NamedTuple):
    """Whoever has a host; ``whole``: nobody else gets a path of it."""

    owner: str
    namespace: str
    grant: str
    whole: bool


def owner_of(kind: str, obj: JsonObject) -> str:
    """Return what an object is called in refusals."""
    return f"{kind} {objects.namespace(obj)}/{objects.name(obj)}"


def decide_routes(cluster: Cluster) -> Routes:
    """Return who has which host and path; what cannot be read has none, and keeps nobody from his."""
    try:
        return _Claims(cluster).routes()
    except objects.MISREAD:
        return _Claims(_readable(cluster)).routes()


def _readable(cluster: Cluster) -> Cluster:
    """Return of a cluster what can be read, each object by itself."""
    nothing = Cluster((), (), (), {}, ())
    return cluster._replace(
        dns=objects.readable(cluster.dns, lambda each: _Claims(nothing._replace(dns=[each]))),
        ingresses=objects.readable(cluster.ingresses, lambda each: _Claims(nothing._replace(ingresses=[each]))),
        classes=objects.readable(cluster.classes, lambda each: _Claims(nothing._replace(classes=[each]))),
        grants=objects.readable(cluster.grants, lambda each: _Claims(nothing._replace(grants=[each]))),
    )


class _Claims:
    """The claims made so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._services = cluster.services
        self._classes = {objects.name(each): each for each in cluster.classes}
        self._has_nginx = any(_is_installed_nginx(each) for each in self._classes.values())
        self._grants = HostGrants(cluster.grants)
        self._places: dict[str, Places] = {}
        self._holders: dict[str, _Holder] = {}
        self._tls: dict[str, tuple[str, str]] = {}
        self._refused: dict[str, list[Refusal]] = {}
        self._owners: set[str] = set()
        every = [("DNS", each) for each in cluster.dns] + [("Ingress", each) for each in cluster.ingresses]
        ordered = sorted((one for one in every if not objects.is_deleting(one[1])), key=lambda one: _age(*one))
        ours = [(kind, obj) for kind, obj in ordered if kind == "DNS" or self._is_ours(obj)]
        claims = [claim for kind, obj in ours for claim in (self._dns if kind == "DNS" else self._ingress)(obj)]
        for claim in sorted(claims, key=lambda one: (not one.grant, not one.kind)):
            self._take(claim)
        for kind, obj in ours:
            if kind == "Ingress":
                self._certificates(obj)

    def routes(self) -> Routes:
        """Return the outcome."""
        hosts = {host: tuple(places.values()) for host, places in self._places.items()}
        resolved = {host: "" if _is_for_all(host, one) else one.namespace for host, one in self._whole()}
        confined: dict[str, list[str]] = {}
        for host, holder in self._whole():
            if resolved[host]:
                confined.setdefault(holder.owner, []).append(host)
        return Routes(
            hosts,
            {host: secret for host, (secret, _) in self._tls.items()},
            resolved,
            {owner: tuple(dict.fromkeys(why)) for owner, why in self._refused.items()},
            frozenset(self._owners),
            {owner: tuple(sorted(found)) for owner, found in confined.items()},
        )

    def _whole(self) -> Iterator[tuple[str, _Holder]]:
        return ((host, holder) for host, holder in self._holders.items() if holder.whole)

    def _refuse(self, owner: str, reason: str, message: str) -> None:
        self._refused.setdefault(owner, []).append(Refusal(reason, message))

    # what objects ask for

    def _dns(self, obj: JsonObject) -> Iterator[_Claim]:
        owner, namespace = owner_of("DNS", obj), objects.namespace(obj)
        self._owners.add(owner)
        for rule in objects.spec(obj).get("rules") or []:
            host = str(rule.get("host") or "").lower()
            routes = []
            for path in rule.get("paths") or []:
                service = (path.get("backend") or {}).get("service") or {}
                target = f"{namespace}/{service.get('name')}"
                text, port = str(path.get("path") or "/"), service.get("port") or 0
                routes.append(Route(owner, "Prefix", text, target, port, strip=True))
            yield self._claimed("DNS", obj, host, routes)

    def _ingress(self, obj: JsonObject) -> Iterator[_Claim]:
        owner, spec = owner_of("Ingress", obj), objects.spec(obj)
        self._owners.add(owner)
        hosts = hosts_of(spec)
        for host, rule in zip(hosts, spec.get("rules") or [], strict=True):
            routes = []
            for path in (rule.get("http") or {}).get("paths") or []:
                kind = "Exact" if path.get("pathType") == "Exact" else "Prefix"
                routes += self._route(obj, owner, kind, str(path.get("path") or "/"), path.get("backend") or {})
            yield self._claimed("Ingress", obj, host, routes)
        if spec.get("defaultBackend") is not None:
            default = self._route(obj, owner, "Prefix", "/", spec["defaultBackend"])
            for host in [*hosts, ANY_HOST]:
                yield self._claimed("" if hosts else "Ingress", obj, host, default)

    def _claimed(self, kind: str, obj: JsonObject, host: str, routes: Iterable[Route]) -> _Claim:
        namespace = objects.namespace(obj)
        grant = self._grants.of(namespace, host)
        return _Claim(kind, owner_of(kind or "Ingress", obj), namespace, host, tuple(routes), grant)

    def _is_ours(self, obj: JsonObject) -> bool:
        name = objects.spec(obj).get("ingressClassName") or objects.annotations(obj).get(CLASS_ANNOTATION)
        if name:
            known = self._classes.get(name)
            if known is None and name != CLASS and objects.spec(obj).get("ingressClassName"):
                self._refuse(owner_of("Ingress", obj), NO_CLASS, f"there is no IngressClass {name}; {CLASS} needs none")
            return name == CLASS if known is None else self._serves(known)
        defaults = [each for each in self._classes.values() if objects.annotations(each).get(DEFAULT_CLASS) == "true"]
        return not defaults or any(map(self._serves, defaults))

    def _serves(self, ingress_class: JsonObject) -> bool:
        """Return whether Ingresses of a class are this installation's to realize."""
        controller = objects.spec(ingress_class).get("controller")
        return controller == CONTROLLER or (controller == NGINX_CONTROLLER and not self._has_nginx)

    def _route(self, obj: JsonObject, owner: str, kind: str, path: str, backend: JsonObject) -> list[Route]:
        service = backend.get("service")
        if service is None:
            self._refuse(owner, NOT_SUPPORTED, f"path {path!r}: a backend must be a service, not a resource")
            return []
        port = service.get("port") or {}
        target = f"{objects.namespace(obj)}/{service.get('name')}"
        plain = objects.annotations(obj).get(REDIRECT_ANNOTATION) == "false"
        return [Route(owner, kind, path, target, port.get("number") or port.get("name") or 0, plain=plain)]

    # who gets it

    def _take(self, claim: _Claim) -> None:
        if not claim.kind:
            self._fill(claim)
        elif claim.kind == "DNS":
            self._take_whole(claim)
        else:
            for route in claim.routes:
                if refusal := self._foreign(claim.host, claim.namespace, claim.grant, claim.owner):
                    path = f" path {route.path}" if _place_of(route) in self._places.get(claim.host, {}) else ""
                    detail = f"{_shown(claim.host)}{path} is in use by {refusal.message}"
                    self._refuse(claim.owner, refusal.reason, detail)
                else:
                    self._place(claim, route)

    def _take_whole(self, claim: _Claim) -> None:
        host = claim.host
        if is_own(host):
            self._refuse(claim.owner, INVALID_HOST, f"host {host} is reserved for the cluster's own names")
            return
        if is_too_long(claim.namespace, host):
            detail = f"host {host} is too long for the domain that its namespace's pods search"
            self._refuse(claim.owner, INVALID_HOST, detail)
            return
        refusal = self._foreign(host, claim.namespace, claim.grant, claim.owner)
        if refusal is None and host in self._holders:
            refusal = Refusal(CONFLICT, self._holders[host].owner)
        if refusal is not None:
            self._refuse(claim.owner, refusal.reason, f"host {host} conflicts with existing host of {refusal.message}")
            return
        self._holders[host] = _Holder(claim.owner, claim.namespace, claim.grant, whole=True)
        self._places[host] = {}
        for route in claim.routes:
            self._place(claim, route)

    def _foreign(self, host: str, namespace: str, grant: str, owner: str) -> Refusal | None:
        """Return why a namespace may have nothing of a host, None where it may; the message says whose."""
        above = self._holders.get(f"*.{host.partition('.')[2]}")
        for holder in (self._holders.get(host), above if above and above.grant and not grant else None):
            if holder is None or holder.owner == owner:
                continue
            if holder.namespace != namespace and holder.grant and not grant:
                detail = (
                    f"{holder.owner}, which has it by HostGrant {holder.grant}; none gives it to namespace {namespace}"
                )
                return Refusal(NOT_GRANTED, detail)
            if holder.whole:
                return Refusal(CONFLICT, holder.owner)
            if holder.namespace != namespace and not grant:
                detail = "namespaces share a host only where a HostGrant gives it to each"
                return Refusal(CONFLICT, f"{holder.owner}; {detail}")
        return None

    def _place(self, claim: _Claim, route: Route) -> None:
        """Give a path of a host that the claim's namespace may have to the claim's owner, unless it is taken."""
        if any(ord(char) < 32 or ord(char) == 127 for char in route.path):  # noqa: PLR2004 - ASCII's controls
            self._refuse(claim.owner, INVALID_PATH, f"path {route.path!r} of {claim.host} holds control characters")
            return
        places = self._places.setdefault(claim.host, {})
        place = _place_of(route)
        if place in places:
            detail = f"{_shown(claim.host)} path {route.path} is in use by {places[place].owner}"
            self._refuse(claim.owner, CONFLICT, detail)
            return
        places[place] = route._replace(path=place[1])
        self._holders.setdefault(claim.host, _Holder(claim.owner, claim.namespace, claim.grant, whole=False))
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

    def _fill(self, claim: _Claim) -> None:
        """Let a default backend answer what nobody else does, on hosts that its namespace may have."""
        for route in claim.routes:
            if self._foreign(claim.host, claim.namespace, claim.grant, claim.owner) is None:
                self._places.setdefault(claim.host, {}).setdefault(("Prefix", "/"), route)
                self._holders.setdefault(claim.host, _Holder(claim.owner, claim.namespace, claim.grant, whole=False))
            self._check(route)

    def _certificates(self, obj: JsonObject) -> None:
        owner, namespace, spec = owner_of("Ingress", obj), objects.namespace(obj), objects.spec(obj)
        for tls in spec.get("tls") or []:
            if not tls.get("secretName"):
                self._refuse(owner, NO_CERTIFICATE, "spec.tls has no secretName, so no certificate is served")
                continue
            for host in [str(host).lower() for host in tls.get("hosts") or [] or hosts_of(spec)]:
                if host == ANY_HOST:
                    self._refuse(owner, NO_CERTIFICATE, "certificates are served only for named hosts")
                else:
                    self._certify(host, owner, namespace, f"{namespace}/{tls['secretName']}")

    def _certify(self, host: str, owner: str, namespace: str, secret: str) -> None:
        """Have a host served with a Secret of a namespace that has the host, or shares it."""
        holder = self._holders.get(host)
        if holder is None:
            return  # nobody has it: nothing is served there
        if holder.namespace != namespace and not (holder.grant and self._grants.of(namespace, host)):
            detail = f"host {host} is of {holder.owner}, and so is its certificate"
            self._refuse(owner, NO_CERTIFICATE, detail)
        elif self._tls.setdefault(host, (secret, owner)) != (secret, owner):
            self._refuse(owner, NO_CERTIFICATE, f"host {host} has its certificate from {self._tls[host][1]}")


def _place_of(route: Route) -> tuple[str, str]:
    """Return what a route has of its host: the kind and the path, as nginx tells them apart."""
    return (route.kind, route.path.rstrip("/") or "/") if route.kind == "Prefix" else (route.kind, route.path)


def _is_installed_nginx(ingress_class: JsonObject) -> bool:
    label, value = INSTALLED
    controller = objects.spec(ingress_class).get("controller")
    return controller == NGINX_CONTROLLER and objects.labels(ingress_class).get(label) == value


def hosts_of(spec: JsonObject) -> list[str]:
    """Return the hosts of an Ingress' rules."""
    return [str(rule.get("host") or ANY_HOST).lower() for rule in spec.get("rules") or []]


def _shown(host: str) -> str:
    return "any host" if host == ANY_HOST else f"host {host}"


def _is_for_all(host: str, holder: _Holder) -> bool:
    """Return whether cluster DNS tells a host to everybody: names of one label are each namespace's own."""
    return bool(holder.grant) and "." in host


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
