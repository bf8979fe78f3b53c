"""Says on Ingresses and DNS objects what became of them: addresses and conditions in their status, causes as Events.

Who has which host and path is one decision over all of them (ingress_routes.py), so there is one key. An Ingress has no
conditions in Kubernetes: its status holds the addresses of the nodes, whose nginx each answers, once it has a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import DNS, HOST_GRANT, INGRESS, INGRESS_CLASS, NODE, SERVICE, Kind
from minik8s_modules.api.network.host_grants import confinement
from minik8s_modules.api.network.ingress_routes import (
    NO_PORT,
    NO_SERVICE,
    NOT_GRANTED,
    Cluster,
    Refusal,
    Routes,
    decide_routes,
    owner_of,
)
from minik8s_modules.api.network.surroundings import family_of
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.owning import with_condition
from minik8s_modules.runtime.controller import Context, Loop, Looping

ACCEPTED, RESOLVED, GRANTED = "Accepted", "ResolvedRefs", "Granted"
"""Conditions of a DNS object, the first two as Gateway API's routes have them; hosts answer everybody when Granted."""
_REFERENCES = frozenset({NO_SERVICE, NO_PORT})
_ALL = Key("", "routes")


def node_addresses(nodes: Iterable[JsonObject], *, both: bool = False) -> list[str]:
    """Return the addresses of the machines that are Ready: each answers for every host.

    Args:
        nodes: the Nodes.
        both: whether nginx listens over both families; a machine then counts with an address of each that it has.
    """
    found: set[str] = set()
    for node in nodes:
        if is_virtual(node):
            continue
        status = objects.status(node)
        ready = any(
            one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or []
        )
        addresses = [one["address"] for one in status.get("addresses") or [] if one.get("type") == "InternalIP"]
        of_family = {family_of(one): one for one in reversed(addresses if both else addresses[:1])}
        found |= set(of_family.values()) if ready else set()
    return sorted(found, key=lambda one: (family_of(one), one))


def decide_ingress_status(ingress: JsonObject, routes: Routes, addresses: Sequence[str]) -> JsonObject:
    """Return the status of an Ingress: where it answers, nothing while it has no place."""
    owner = owner_of("Ingress", ingress)
    if owner not in routes.owners:
        return objects.status(ingress) or {"loadBalancer": {}}
    served = any(route.owner == owner for places in routes.hosts.values() for route in places)
    points = [{"ip": address} for address in addresses] if served else []
    return {"loadBalancer": {"ingress": points} if points else {}}


def decide_dns_status(dns: JsonObject, routes: Routes, now: datetime) -> JsonObject:
    """Return the status of a DNS object: whether it has its hosts, for whom, and whether its services are there."""
    owner = owner_of("DNS", dns)
    refusals = routes.refused.get(owner, ())
    conditions = objects.status(dns).get("conditions") or []
    broken = [one for one in refusals if one.reason in _REFERENCES]
    denied = [one for one in refusals if one.reason not in _REFERENCES]
    confined = confinement(objects.namespace(dns), routes.confined.get(owner, ()))
    missing = [
        *(one for one in denied if one.reason == NOT_GRANTED),
        *(Refusal(NOT_GRANTED, each) for each in confined),
    ]
    for kind, why in ((ACCEPTED, denied), (RESOLVED, broken), (GRANTED, missing)):
        conditions = _with(conditions, kind, why, now)
    return {"conditions": conditions}


def _with(conditions: list[JsonObject], kind: str, why: Sequence[Refusal], now: datetime) -> list[JsonObject]:
    wanted = {
        "type": kind,
        "status": "False" if why else "True",
        "reason": why[0].reason if why else kind,
        "message": "; ".join(one.message for one in why),
        "lastTransitionTime": rfc3339(now),
    }
    old = next((one for one in conditions if one.get("type") == kind), {})
    if old.get("message", "") != wanted["message"] and old.get("status") == wanted["status"]:
        kept = {**wanted, "lastTransitionTime": old.get("lastTransitionTime", wanted["lastTransitionTime"])}
        return [kept if one is old else one for one in conditions]
    return with_condition(conditions, wanted)


class RouteController(Looping):
    """Keeps the statuses; of a refusal there is one Event until it is over."""

    def __init__(self, context: Context, *, both: bool = False) -> None:
        self._context, self._both = context, both
        self._loop = Loop(context, "routes", self.sync, workers=1)
        self._dns = self._loop.watch(DNS, _all)
        self._ingresses = self._loop.watch(INGRESS, _all)
        self._classes = self._loop.watch(INGRESS_CLASS, _all)
        self._grants = self._loop.watch(HOST_GRANT, _all)
        self._services = self._loop.watch(SERVICE, self._of_service)
        self._nodes = self._loop.watch(NODE, self._of_node)
        self._reported: dict[str, frozenset[Refusal]] = {}

    def sync(self, _key: Key) -> None:
        """Decide, and write what differs.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        dns, ingresses = self._dns.list(), self._ingresses.list()
        services = {str(objects.key(each)): each for each in self._services.list()}
        routes = decide_routes(Cluster(dns, ingresses, self._classes.list(), services, self._grants.list()))
        addresses, now = node_addresses(self._nodes.list(), both=self._both), self._context.clock.now()
        for each in ingresses:
            self._write(INGRESS, each, decide_ingress_status(each, routes, addresses))
        for each in dns:
            self._write(DNS, each, decide_dns_status(each, routes, now))
        self._tell(routes, [("Ingress", each) for each in ingresses] + [("DNS", each) for each in dns])

    def _write(self, kind: Kind, obj: JsonObject, status: JsonObject) -> None:
        if objects.status(obj) == status or objects.is_deleting(obj):
            return
        try:
            self._context.client.update(kind, {**obj, "status": status}, subresource="status")
        except (Conflict, NotFound):
            return  # our copy is older than the object; its change brings the key back

    def _tell(self, routes: Routes, known: Iterable[tuple[str, JsonObject]]) -> None:
        reported: dict[str, frozenset[Refusal]] = {}
        for kind, obj in known:
            owner = owner_of(kind, obj)
            refusals = frozenset(routes.refused.get(owner, ()))
            if refusals:
                reported[owner] = refusals
            for one in sorted(refusals - self._reported.get(owner, frozenset())):
                self._context.recorder.event(obj, "Warning", one.reason, one.message, component="ingress-controller")
        self._reported = reported

    def _of_service(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Queue where a Service's ports or type may have changed, and anything might lead to it."""
        nothing = not self._dns.list() and not self._ingresses.list()
        same = old is not None and new is not None and objects.spec(old) == objects.spec(new)
        return [] if nothing or same else [_ALL]

    def _of_node(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        before, after = (node_addresses([node] if node else [], both=self._both) for node in (old, new))
        return [] if before == after else [_ALL]


def _all(_old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
    return [_ALL]
