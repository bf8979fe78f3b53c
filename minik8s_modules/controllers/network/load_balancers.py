"""Gives Services of type LoadBalancer their addresses: in their status, with causes as Events where there are none.

Who has which address and port is one decision over all of them (``api/network/load_balancers.py``), so there is one
key. The finalizer is written before the address: a Service holds its address until its nodes have been told that it
goes. Services of other classes are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import ENDPOINT_SLICE, NODE, SERVICE
from minik8s_modules.api.lifecycle.service_strategy import HEALTH_PORT, needs_health_port
from minik8s_modules.api.network.balancing import Balancing
from minik8s_modules.api.network.load_balancers import (
    FINALIZER,
    REFUSED,
    Given,
    by_age,
    decide_addresses,
    decide_outside,
    ingress_of,
    is_local,
    is_outside,
    serving_nodes,
    way_of,
)
from minik8s_modules.api.network.surroundings import World, api_servers, world_of, world_of_one
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_LABEL

SERVICE_NAME = "kubernetes.io/service-name"
UNCHECKED = "HealthCheckUnavailable"
_ALL = Key("", "load-balancers")


class Wanted(NamedTuple):
    """A Service as it should be: ``finalizer`` and ``ingress`` are None where they are to stay as they are."""

    finalizer: bool | None = None
    ingress: list[JsonObject] | None = None


def decide_service(service: JsonObject, given: Given | None, balancing: Balancing, world: World) -> Wanted:
    """Return what a Service should have; ``given`` is None where it is not ours."""
    has = FINALIZER in objects.finalizers(service)
    if given is not None and objects.is_deleting(service):
        return Wanted(finalizer=False if has else None)
    if given is not None:
        ingress = list(given.points)
        same = (objects.dig(service, "status", "loadBalancer", "ingress") or []) == ingress
        return Wanted(None if has else True, None if same else ingress)
    if not has or objects.spec(service).get("type") == "LoadBalancer":
        return Wanted()
    # its type was another one; a cloud's controller uses the same finalizer for what it balances
    named, taken = ingress_of(service), world.taken()
    if all(balancing.in_pool(one) or one in taken for one in named) and (named or balancing.default != "none"):
        return Wanted(finalizer=False, ingress=[] if named else None)
    return Wanted()


class LoadBalancerController(Looping):
    """Keeps finalizers and statuses; of a refusal there is one Event until it is over."""

    def __init__(self, context: Context, balancing: Balancing) -> None:
        self._context, self._balancing = context, balancing
        self._loop = Loop(context, "load-balancers", self.sync, workers=1)
        self._services = self._loop.watch(SERVICE, self._of_service)
        self._nodes = self._loop.watch(NODE, _of_node)
        self._slices = self._loop.watch(ENDPOINT_SLICE, self._of_slice, BY_LABEL)
        self._told: dict[Key, Given] = {}
        self._unchecked: set[Key] = set()

    def sync(self, _key: Key) -> None:
        """Decide, and write what differs.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        services, world = by_age(self._services.list()), self._world()

        def addresses(some: Sequence[JsonObject]) -> dict[str, Given]:
            return decide_addresses(some, world, self._serving, self._balancing)

        found = objects.decided(services, addresses, lambda one: addresses([one]))
        for service in services:
            given = found.get(str(objects.key(service)))
            try:
                self._write(service, decide_service(service, given, self._balancing, world))
                self._tell(service, given or self._refusal(service, world))
            except objects.MISREAD as error:  # it keeps no other from its address
                objects.tell_misread(service, error, "stays as it is")
        there = {objects.key(one) for one in services}
        self._told = {key: given for key, given in self._told.items() if key in there}
        self._tell_unchecked(services)

    def _refusal(self, service: JsonObject, world: World) -> Given | None:
        """Return what is told of a Service that is not ours and names what nobody may have."""
        outside = decide_outside(service, world, frozenset(), self._balancing)
        if not outside.refused:
            return None
        detail = "are a machine's, the API's, the cluster's or the pool's; no node leads them to this Service"
        return Given((), REFUSED, f"addresses {', '.join(outside.refused)} {detail}")

    def _world(self) -> World:
        servers = self._of_name(Key("default", "kubernetes"))

        def world(nodes: list[JsonObject]) -> World:
            return world_of(nodes, servers, self._balancing)

        return objects.decided(self._nodes.list(), world, lambda one: world([one]))

    def _of_name(self, key: Key) -> list[JsonObject]:
        return self._slices.by_index(BY_LABEL, f"{key.namespace}/{SERVICE_NAME}={key.name}")

    def _serving(self, service: JsonObject) -> frozenset[str]:
        return serving_nodes(self._of_name(objects.key(service)))

    def _write(self, service: JsonObject, wanted: Wanted) -> None:
        try:
            if wanted.finalizer is not None:
                others = [one for one in objects.finalizers(service) if one != FINALIZER]
                kept = [*others, FINALIZER] if wanted.finalizer else others
                service = self._context.client.update(
                    SERVICE, {**service, "metadata": {**service["metadata"], "finalizers": kept}}
                )
            if wanted.ingress is not None:
                balancer = {"ingress": wanted.ingress} if wanted.ingress else {}
                status = {**objects.status(service), "loadBalancer": balancer}
                self._context.client.update(SERVICE, {**service, "status": status}, subresource="status")
        except (Conflict, NotFound):
            return  # our copy is older than the object; its change brings the key back

    def _tell(self, service: JsonObject, given: Given | None) -> None:
        key = objects.key(service)
        if given is None or objects.is_deleting(service):
            self._told.pop(key, None)
            return
        if self._told.get(key) == given:
            return
        event, who = self._context.recorder.event, "load-balancer-controller"
        if given.reason:
            event(service, "Warning", given.reason, given.message, component=who)
        elif key in self._told or not ingress_of(service):
            event(service, "Normal", "EnsuredLoadBalancer", f"reached at {', '.join(given.addresses)}", component=who)
        self._told[key] = given

    def _tell_unchecked(self, services: Iterable[JsonObject]) -> None:
        """Tell each Service once that nobody answers the health checks that load balancers ask for."""
        asked = {} if self._balancing.health_checks else {objects.key(one): one for one in services if _is_checked(one)}
        for key in asked.keys() - self._unchecked:
            text = (
                f"no node answers at healthCheckNodePort {objects.spec(asked[key])[HEALTH_PORT]}: nodes have no nginx "
                "(minik8s_ingress_http_port is 0); load balancers may check the Service's node port instead"
            )
            self._context.recorder.event(asked[key], "Warning", UNCHECKED, text, component="load-balancer-controller")
        self._unchecked = set(asked)

    def _of_service(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        concerned = any(
            one is not None and (is_outside(one) or FINALIZER in objects.finalizers(one)) for one in (old, new)
        )
        return [_ALL] if concerned else []

    def _of_slice(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        one = new or old or {}
        name = objects.labels(one).get(SERVICE_NAME, "")
        service = self._services.get(objects.namespace(one), name)
        if (objects.namespace(one), name) == ("default", "kubernetes"):
            return [_ALL] if api_servers([old or {}]) != api_servers([new or {}]) else []
        if service is None or not way_of(service, self._balancing) or not is_local(service):
            return []
        return [_ALL] if serving_nodes([old or {}]) != serving_nodes([new or {}]) else []


def _is_checked(service: JsonObject) -> bool:
    return needs_health_port(objects.spec(service)) and bool(objects.spec(service).get(HEALTH_PORT))


def _of_node(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    before, after = (_unheard(world_of_one(node)) for node in (old, new))
    return [] if before == after else [_ALL]


def _unheard(world: World) -> World:
    return world._replace(machines=tuple(one._replace(silent=False) for one in world.machines))
