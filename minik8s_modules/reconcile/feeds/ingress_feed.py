"""Keeps what nodes are told of names and paths: sections ``dns`` and ``ingress``, and the certificates these need.

Handlers run inside informers' locks and only note; deciding happens in the loop's threads (``of``). A change of a
Service makes its own records again; routes are decided again, all of them, when one of their objects changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DNS, HOST_GRANT, INGRESS, INGRESS_CLASS, Kind
from minik8s_modules.api.network.host_grants import HostGrants
from minik8s_modules.api.network.ingress_routes import Cluster, Route, Routes, decide_routes, has_place, owner_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source
from minik8s_modules.reconcile.feeds.references import ReferencedObjects
from minik8s_modules.reconcile.feeds.services_feed import ServiceFeed
from minik8s_modules.reconcile.network.dns import NameBook, server_entry, service_entry
from minik8s_modules.reconcile.network.ingress import (
    CERTIFICATE,
    PRIVATE_KEY,
    Backend,
    Renderer,
    backend,
    ingress_entries,
)
from minik8s_modules.reconcile.values.sealing import secret_entry, values_of
from minik8s_modules.reconcile.values.values import NOTHING_NAMED, Named, PodDecision, Sealed, Settings

log = logging.getLogger(__name__)
Overlay = Mapping[tuple[str, str], JsonObject | None]
"""Objects as they would be, None where one would go, by kind and key."""
Slices = Mapping[str, list[JsonObject]]
SecretOf = Callable[[str], JsonObject | None]
"""The Secret of ``<namespace>/<name>``, None when there is none."""
_TLS = "ingress-tls/"
_KINDS = (DNS, INGRESS, INGRESS_CLASS, HOST_GRANT)


class NamesFeed:
    """The names and paths of the whole cluster.

    Args:
        on_change: called when they may have changed, and when a first list is complete.
        make: the informer of a kind in a namespace (or of one object), for Secrets with certificates.
    """

    def __init__(
        self,
        api: Source,
        services: ServiceFeed,
        settings: Settings,
        on_change: Callable[[], None],
        make: Callable[[Kind, str, str], Informer],
    ) -> None:
        self._services, self._settings, self._on_change = services, settings, on_change
        self._renderer = Renderer(settings.ingress) if settings.ingress.http_port else None
        self._copies = {kind: Informer(api, kind, on_synced=on_change) for kind in _KINDS} if self._active else {}
        self._secrets = ReferencedObjects(make, self._on_secrets, by_name=settings.own_node)
        self._followed: set[str] = set()
        server = server_entry(settings.dns, settings.cluster_domain) if settings.dns.listen else None
        self._book = NameBook(server)
        self._noting = threading.Lock()
        self._noted: set[Key] = set()
        self._stale = True
        self._lock = threading.Lock()
        self._behind: frozenset[str] = frozenset()
        self._owners: dict[str, frozenset[str]] = {}
        self._named = NOTHING_NAMED

    @property
    def _active(self) -> bool:
        return bool(self._settings.dns.listen or self._renderer)

    def start(self) -> None:
        """List and watch; returns at once. Before the ServiceFeed starts."""
        if not self._active:
            return
        self._services.follow(self._on_service)
        for informer in self._copies.values():
            informer.add_handler(self._on_object)
            informer.start()

    def stop(self) -> None:
        """End the watches."""
        for informer in self._copies.values():
            informer.stop()
        self._secrets.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether everything was listed once, waiting up to ``timeout_s`` for each kind."""
        return all(informer.wait_synced(timeout_s) for informer in self._copies.values())

    def of(self) -> Named:
        """Return what every node gets, as things stand now."""
        if not self._active:
            return NOTHING_NAMED
        with self._lock:
            with self._noting:
                noted, self._noted = self._noted, set()
                stale, self._stale = self._stale, False
            for key in noted:
                self._put(key)
            if stale or any(str(key) in self._behind for key in noted):
                self._decide()
            self._named = self._named._replace(dns=self._book.entries())
            return self._named

    def _put(self, key: Key) -> None:
        """Take a Service as it is; one that cannot be read stays as it was, and keeps no other from being taken."""
        service = self._services.service(key)
        try:
            self._book.put_service(str(key), service_entry(service, self._services.slices(key)) if service else {})
        except objects.MISREAD:
            log.exception("the name of Service %s stays as it is", key)

    def owners(self, host: str) -> list[JsonObject]:
        """Return the DNS and Ingress objects that have a host or a path of it."""
        return [each for _, each in self.holders(host)]

    def holders(self, host: str) -> list[tuple[Kind, JsonObject]]:
        """Return the DNS and Ingress objects that have a host or a path of it, with their kinds."""
        with self._lock:
            names = self._owners.get(host, frozenset())
        known = [(kind, each) for kind in (DNS, INGRESS) if kind in self._copies for each in self._copies[kind].list()]
        return [(kind, each) for kind, each in known if owner_of(kind.kind, each) in names]

    def imagined(self, changes: Overlay, slices: Slices, secret_of: SecretOf) -> Named:
        """Return what every node would get if the objects of ``changes`` (None: gone) were applied.

        ``slices`` are those of the Services that would differ; ``secret_of`` reads a Secret as it would be.
        """
        now = self.of()
        if not self._active:
            return now
        with self._lock:
            book = self._book.copy()
        services = _overlaid(self._services.services(), "Service", changes)
        for key in slices:
            service = services.get(key)
            book.put_service(key, service_entry(service, slices[key]) if service else {})
        dns, ingresses, classes, grants = (
            list(_overlaid(self._copies[kind].list(), kind.kind, changes).values()) for kind in _KINDS
        )
        routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
        book.put_short(HostGrants(grants).short_names)
        if self._renderer is None:
            return now._replace(dns=book.entries())
        book.put_hosts(routes.resolved, self._settings.dns.listen)
        found = self._sealed((secret, secret_of(secret)) for secret in sorted(set(routes.tls.values())))
        ingress = ingress_entries(routes, self._leads(routes, services, slices), _hmacs(found), self._renderer)
        return now._replace(dns=book.entries(), ingress=ingress, certificates=found)

    def _leads(self, routes: Routes, services: Mapping[str, JsonObject], slices: Slices) -> dict[Route, Backend]:
        every = (route for places in routes.hosts.values() for route in places)
        return {
            route: backend(
                route,
                services.get(route.service),
                slices[route.service] if route.service in slices else self._slices(route.service),
            )
            for route in every
        }

    def _slices(self, service: str) -> list[JsonObject]:
        namespace, _, name = service.partition("/")
        return self._services.slices(Key(namespace, name))

    def _decide(self) -> None:
        services = {str(objects.key(each)): each for each in self._services.services()}
        dns, ingresses, classes, grants = (self._copies[kind].list() for kind in _KINDS)
        routes = decide_routes(Cluster(dns, ingresses, classes, services, grants))
        self._book.put_short(HostGrants(grants).short_names)
        self._behind = frozenset(route.service for places in routes.hosts.values() for route in places)
        self._owners = {host: frozenset(one.owner for one in places) for host, places in routes.hosts.items()}
        if self._renderer is None:
            return
        self._book.put_hosts(routes.resolved, self._settings.dns.listen)
        found = self._certificates(routes)
        leads = self._leads(routes, services, {})
        self._named = Named({}, ingress_entries(routes, leads, _hmacs(found), self._renderer), found)

    def _certificates(self, routes: Routes) -> PodDecision:
        """Return the Secrets at hand that hold a certificate; those named are followed from now on."""
        self._follow(set(routes.tls.values()))
        return self._sealed(
            found
            for namespace in sorted(self._followed)
            for found in self._secrets.of(_TLS + namespace, "Secret").items()
        )

    def _sealed(self, secrets: Iterable[tuple[str, JsonObject | None]]) -> PodDecision:
        """Return what nodes get of those Secrets that hold a certificate."""
        values = {key: values_of(obj) for key, obj in secrets if obj is not None}
        found = {key: each for key, each in values.items() if each.get(CERTIFICATE) and each.get(PRIVATE_KEY)}
        key_of = self._settings.hmac_key
        entries = {key: secret_entry(key_of, key, each) for key, each in sorted(found.items())}
        return PodDecision({"secrets": entries} if entries else {}, sealed=Sealed(found))

    def _follow(self, secrets: Iterable[str]) -> None:
        names: dict[str, list[str]] = {}
        for secret in sorted(secrets):
            namespace, _, name = secret.partition("/")
            names.setdefault(namespace, []).append(name)
        for namespace in self._followed - names.keys():
            self._secrets.forget(_TLS + namespace)
        for namespace, wanted in names.items():
            volumes = [{"secret": {"secretName": name}} for name in wanted]
            self._secrets.follow(
                {"metadata": {"uid": _TLS + namespace, "namespace": namespace}, "spec": {"volumes": volumes}}
            )
        self._followed = set(names)

    # what others tell; each only notes it

    def _on_service(self, key: Key) -> None:
        with self._noting:
            self._noted.add(key)

    def _on_object(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is not None and new is not None and _read_of(old) == _read_of(new):
            return
        self._note()

    def _on_secrets(self, _uids: frozenset[str]) -> None:
        self._note()

    def _note(self) -> None:
        with self._noting:
            self._stale = True
        self._on_change()


def _hmacs(found: PodDecision) -> dict[str, str]:
    return {name: str(entry["hmac"]) for name, entry in found.entries.get("secrets", {}).items()}


def _overlaid(known: Iterable[JsonObject], kind: str, changes: Overlay) -> dict[str, JsonObject]:
    """Return objects by namespace/name (or name), with those of ``changes`` in the place of what is."""
    found: dict[str, JsonObject | None] = {str(objects.key(each)): each for each in known}
    found |= {key: obj for (of_kind, key), obj in changes.items() if of_kind == kind}
    return {key: obj for key, obj in found.items() if obj is not None}


def _read_of(obj: JsonObject) -> tuple[Any, ...]:
    metadata = obj.get("metadata") or {}
    return (obj.get("spec"), metadata.get("annotations"), metadata.get("deletionTimestamp"), has_place(obj))
