"""Keeps the ``ServiceBook`` of a shard: informers note which Services changed, readers bring the book up to date.

Handlers run inside informers' locks and only note; deciding happens in the loop's threads (``entries``).

A pod of this shard that is to end leaves the rules by what is known of the pod itself: its containers get their TERM
from here, too, and whoever keeps EndpointSlices may be down just then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, SERVICE
from minik8s_modules.api.network.load_balancers import is_outside
from minik8s_modules.api.network.surroundings import world_of, world_of_one
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Source
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.network.health_checks import HealthCheck, checks_on, health_check
from minik8s_modules.reconcile.network.services import (
    SERVICE_NAME,
    Balancers,
    ServiceBook,
    pods_of_slice,
    service_ports,
    zone_of,
)
from minik8s_modules.reconcile.pods.service_links import link_variables
from minik8s_modules.reconcile.values.values import Entries, Settings

log = logging.getLogger(__name__)
API = Key("default", "kubernetes")


def _no_nodes() -> list[JsonObject]:
    return []


def _nobody(_names: frozenset[str]) -> None:
    return None


class ServiceFeed:
    """Services and slices of the whole cluster.

    Args:
        api: of the cluster.
        settings: of the installation.
        on_change: called when a node's section may have changed, and when a first list is complete.
        nodes: all Nodes.
        on_announcers: called with the nodes that announce addresses, whenever those may have changed.
    """

    def __init__(
        self,
        api: Source,
        settings: Settings,
        on_change: Callable[[], None],
        nodes: Callable[[], list[JsonObject]] = _no_nodes,
        on_announcers: Callable[[frozenset[str]], None] = _nobody,
    ) -> None:
        self._settings = settings
        self._on_change = on_change
        self._nodes, self._on_announcers = nodes, on_announcers
        self._services = Informer(api, SERVICE, indexes={"namespace": objects.namespace}, on_synced=on_change)
        indexes = {"service": _service_of, "pod": pods_of_slice}
        self._slices = Informer(api, ENDPOINT_SLICE, indexes=indexes, on_synced=on_change)
        self._followers: list[Callable[[Key], None]] = []
        self._noting = threading.Lock()
        self._noted: set[Key] = set()
        self._leaving: set[str] = set()
        self._lock = threading.Lock()
        self._book = ServiceBook()
        self._checks: dict[str, HealthCheck] = {}
        self._links: dict[str, Mapping[str, str]] = {}
        self._generation = 0

    def start(self) -> None:
        """List and watch; returns at once."""
        for informer, handler in ((self._services, self._on_service), (self._slices, self._on_slice)):
            informer.add_handler(handler)
            informer.start()

    def stop(self) -> None:
        """End the watches."""
        self._services.stop()
        self._slices.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether everything was listed once, waiting up to ``timeout_s`` for each kind."""
        return self._services.wait_synced(timeout_s) and self._slices.wait_synced(timeout_s)

    def service(self, key: Key) -> JsonObject | None:
        """Return a Service, None when there is none."""
        return self._services.get(key.namespace, key.name)

    def slices(self, key: Key) -> list[JsonObject]:
        """Return the slices of a Service."""
        return self._slices.by_index("service", str(key))

    def services(self) -> list[JsonObject]:
        """Return all Services."""
        return self._services.list()

    def follow(self, on_service: Callable[[Key], None]) -> None:
        """Have ``on_service`` called, under informers' locks, with each Service that changes; before ``start``."""
        self._followers.append(on_service)

    def entries(self, node: JsonObject) -> Entries:
        """Return the section ``services`` of a node, as things stand now."""
        with self._lock:
            with self._noting:
                noted, self._noted = self._noted, set()
            balancers = self.balancers() if noted else Balancers()
            for key in noted:
                self._put(key, balancers)
            if noted:
                self._on_announcers(self._book.announcers())
            return self._book.entries(objects.name(node), dataplane_entry(node, self._settings), zone_of(node))

    def _put(self, key: Key, balancers: Balancers) -> None:
        """Take a Service as it is; one that cannot be read stays as it was, and keeps no other from being taken."""
        try:
            self._book.put(str(key), self._ports(key, balancers))
        except Exception:
            log.exception("the rules of Service %s stay as they are", key)

    def checks(self, node: str) -> Entries:
        """Return what a node answers to health checks, as of the last ``entries``."""
        with self._lock:
            return checks_on(node, self._checks)

    def links(self, namespace: str, changes: Mapping[str, JsonObject | None]) -> Mapping[str, str]:
        """Return the variables that tell a namespace's Services, if those of ``changes`` (None: gone) were so."""
        if changes:
            standing = {str(objects.key(one)): one for one in self._services.by_index("namespace", namespace)}
            mine = {key: one for key, one in changes.items() if key.startswith(f"{namespace}/")}
            return link_variables(one for one in {**standing, **mine}.values() if one is not None)
        with self._noting:
            known, generation = self._links.get(namespace), self._generation
        if known is None:
            known = link_variables(self._services.by_index("namespace", namespace))
            with self._noting:
                if generation == self._generation:  # else a Service has changed meanwhile
                    self._links[namespace] = known
        return known

    def announced(self, node: str) -> int:
        """Return how many addresses a node announces."""
        with self._lock:
            return self._book.announced(node)

    def balancers(self) -> Balancers:
        """Return what addresses from outside are decided by, as things stand now."""
        balancing = self._settings.balancing
        return Balancers(balancing, world_of(self._nodes(), self.slices(API), balancing))

    def _ports(self, key: Key, balancers: Balancers) -> dict[str, Any]:
        service = self._services.get(key.namespace, key.name)
        self._checks.pop(str(key), None)
        if service is None:
            return {}
        slices = self._slices.by_index("service", str(key))
        with self._noting:
            leaving = self._leaving.intersection(uid for one in slices for uid in pods_of_slice(one))
        if (check := health_check(service, slices, leaving)) is not None:
            self._checks[str(key)] = check
        return service_ports(service, slices, leaving, self._settings.kubelet_port, balancers)

    def on_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a change of a Node: who announces an address may be another one."""
        if world_of_one(old) != world_of_one(new):
            self._note_outside()

    def _note_outside(self) -> None:
        for service in self._services.list():
            if is_outside(service):
                self._note(objects.key(service))

    def on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take a change of a pod: one that ends leaves its Services, as long as slices list it."""
        pod = new or old
        if pod is None or (new is not None and not objects.is_deleting(new)):
            return
        uid = objects.uid(pod)
        slices = self._slices.by_index("pod", uid)
        with self._noting:
            known = uid in self._leaving
            self._leaving.add(uid)
            if new is None and not slices:
                self._leaving.discard(uid)
        for one in [] if known else slices:
            self._note_slice(one)

    def _on_service(self, old: JsonObject | None, new: JsonObject | None) -> None:
        key = objects.key(new or old or {})
        with self._noting:
            self._generation += 1
            self._links.pop(key.namespace, None)
        self._note(key)

    def _on_slice(self, old: JsonObject | None, new: JsonObject | None) -> None:
        gone = set(pods_of_slice(old or {})) - set(pods_of_slice(new or {}))
        with self._noting:
            self._leaving -= gone
        for one in (old, new):
            if one is not None:
                self._note_slice(one)

    def _note_slice(self, endpoint_slice: JsonObject) -> None:
        namespace, _, name = _service_of(endpoint_slice).partition("/")
        self._note(Key(namespace, name))
        if Key(namespace, name) == API:  # no Service has an address of an API server
            self._note_outside()

    def _note(self, key: Key) -> None:
        with self._noting:
            self._noted.add(key)
        for follower in self._followers:
            follower(key)
        self._on_change()


def _service_of(endpoint_slice: JsonObject) -> str:
    return str(Key(objects.namespace(endpoint_slice), objects.labels(endpoint_slice).get(SERVICE_NAME, "")))
