"""Where Gateways would lead requests if objects were applied, decided as pilots do, before and after. Pure.

Told is by which host and match requests would go elsewhere, and what would be wrong with Gateways and HTTPRoutes: of
those that are applied all, of others what the change makes of them. What a Gateway runs as is ``simulated_rollouts``'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD, SECRET, SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, gateway_kind, is_ours, name_of_parts
from minik8s_modules.api.network.references import secrets_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.attaching import gateway_of
from minik8s_modules.mesh.gateways.certificates import Certificate, certificate_of
from minik8s_modules.mesh.gateways.deciding import Decision, Declared, GatewayVerdict, RouteVerdict, decide_gateways
from minik8s_modules.mesh.gateways.meshing import Routes, routes_of
from minik8s_modules.mesh.gateways.parents import backend_spaces, service_of
from minik8s_modules.mesh.resources import ENDPOINTS, ROUTES, Resource
from minik8s_modules.mesh.wording import ways, weights_of
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note, of
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices
from minik8s_modules.reconcile.planning.simulation import is_gone

_MOST = 5
"""Matches of a host that are told one by one."""
SecretOf = Callable[[str, str], JsonObject | None]
"""Returns the object of a kind and ``<namespace>/<name>``."""


def _no_secret(_kind: str, _key: str) -> None:
    return None


class Secrets(NamedTuple):
    """How certificates are read, as they are and as they would be."""

    now: SecretOf = _no_secret
    then: SecretOf = _no_secret


class Routing(NamedTuple):
    """What requests are led by, now or afterwards: Gateway API's objects by kind and key, and Services by key."""

    objects: Mapping[tuple[str, Key], JsonObject]
    services: Mapping[str, JsonObject]
    slices: Callable[[str], list[JsonObject]]
    namespaces: Mapping[str, Mapping[str, str]]
    secret: SecretOf

    def all(self, kind: str) -> list[JsonObject]:
        """Return the objects of a kind."""
        return [each for (of_kind, _key), each in self.objects.items() if of_kind == kind]

    @property
    def within(self) -> Routes:
        """The routes within the mesh."""
        return routes_of(self.all(GATEWAY_KINDS.routes.kind), self.all(GATEWAY_KINDS.grants.kind))

    def decision(self) -> Decision:
        """Return what becomes of all Gateways and routes."""
        classes, gateways, routes, grants = (self.all(each.kind) for each in GATEWAY_KINDS)
        services = [one for key in _services_of(gateways, routes) if (one := self.services.get(str(key))) is not None]
        slices = [one for each in services for one in self.slices(str(objects.key(each)))]
        certificates = {key: self._certificate(key) for key in _secrets(classes, gateways, grants)}
        return decide_gateways(
            Declared(classes, gateways, routes, grants, services, slices, (), self.namespaces, certificates)
        )

    def _certificate(self, key: Key) -> Certificate | str:
        found = self.secret(SECRET.kind, str(key))
        return certificate_of(found) if found is not None else f"there is no Secret {key}"


def _secrets(classes: Iterable[JsonObject], gateways: Iterable[JsonObject], grants: Sequence[JsonObject]) -> set[Key]:
    ours = {objects.name(each) for each in classes if is_ours(each)}
    return secrets_of([each for each in gateways if objects.spec(each)["gatewayClassName"] in ours], grants)


def _services_of(gateways: Iterable[JsonObject], routes: Iterable[JsonObject]) -> set[Key]:
    found = {Key(objects.namespace(each), name_of_parts(objects.name(each))) for each in gateways}
    for route in routes:
        space, spec = objects.namespace(route), objects.spec(route)
        found |= {key for ref in spec.get("parentRefs") or [] if (key := service_of(ref, route)) is not None}
        found |= {Key(ref.get("namespace") or space, ref["name"]) for ref in _references(spec)}
    return found


def _references(spec: JsonObject) -> Iterator[JsonObject]:
    for rule in spec.get("rules") or []:
        yield from rule.get("backendRefs") or []
        yield from (
            each["requestMirror"]["backendRef"] for each in rule.get("filters") or [] if each.get("requestMirror")
        )


def routings(question: Question, seen: PlannedServices, cluster: Cluster, secrets: Secrets) -> tuple[Routing, Routing]:
    """Return what requests are led by now, and what they would be led by."""
    now = {(str(each["kind"]), objects.key(each)): each for each in cluster.gateways}
    services = {str(objects.key(each)): each for each in cluster.services}
    known = cluster.scene.namespaces if cluster.scene is not None else ()
    spaces = {objects.name(each): objects.labels(each) for each in known}
    then, labels = dict(now), dict(spaces)
    for each in question.operations:
        obj, kind = each.object, gateway_kind(each.object)
        if kind is not None:
            old = then.pop((kind.kind, objects.key(obj)), None)
            if not is_gone(each):
                then[kind.kind, objects.key(obj)] = _born(obj, old)
        elif obj.get("kind") == NAMESPACE.kind:
            labels[objects.name(obj)] = objects.labels(obj)
    after = {key: one for key, one in {**services, **seen.services}.items() if one is not None}

    def slices(key: str) -> list[JsonObject]:
        return list(seen.slices[key]) if key in seen.slices else cluster.slices(key)

    return (
        Routing(now, services, cluster.slices, spaces, secrets.now),
        Routing(then, after, slices, labels, secrets.then),
    )


def _born(obj: JsonObject, old: JsonObject | None) -> JsonObject:
    """Return an object as old as its former self; one that is new is the youngest, and gives way to older ones."""
    born = objects.metadata(old or {}).get("creationTimestamp") or obj["metadata"].get("creationTimestamp") or "9999"
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": born}}


def route_notes(question: Question, before: Routing, after: Routing) -> Iterator[Note]:
    """Yield where Gateways would lead requests otherwise, and what would be wrong."""
    if not (before.objects or after.objects):
        return
    old, new = before.decision(), after.decision()
    asked = {
        (kind.kind, objects.key(each.object))
        for each in question.operations
        if (kind := gateway_kind(each.object)) is not None and not is_gone(each)
    }
    for key in sorted({*old.told, *new.told}):
        about = _about(key, [*before.all(GATEWAY_KINDS.routes.kind), *after.all(GATEWAY_KINDS.routes.kind)])
        for place, change in _changes(_places(old.told.get(key, ()), before), _places(new.told.get(key, ()), after)):
            yield Note(f"Gateway {key} would lead requests to {place} otherwise: {change}", about)
    for gateway in after.all(GATEWAY_KINDS.gateways.kind):
        key = objects.key(gateway)
        is_asked, verdict, told = (GATEWAY_KINDS.gateways.kind, key) in asked, new.gateways.get(key), old.gateways
        if is_asked and verdict is None and (why := _unmade(gateway, after)):
            yield Note(f"Gateway {key}: {why}", (of(GATEWAY_KINDS.gateways, *key),))
        for fault in _new(_of_gateway(verdict), _of_gateway(told.get(key)), is_asked=is_asked):
            yield Note(f"Gateway {key}: {fault}", (of(GATEWAY_KINDS.gateways, *key),))
    for route in after.all(GATEWAY_KINDS.routes.kind):
        key = objects.key(route)
        is_asked = (GATEWAY_KINDS.routes.kind, key) in asked
        if is_asked and key not in new.routes:
            yield Note(f"HTTPRoute {key}: {_orphan(route)}", _of_route(key))
        for fault in _new(_of_verdict(new.routes.get(key)), _of_verdict(old.routes.get(key)), is_asked=is_asked):
            yield Note(f"HTTPRoute {key}: {fault}", _of_route(key))


def _about(gateway: Key, routes: Iterable[JsonObject]) -> tuple[About, ...]:
    attached = [
        each
        for each in routes
        if any(gateway_of(ref, each) == gateway for ref in objects.spec(each).get("parentRefs") or [])
    ]
    spaces = {objects.namespace(each) for each in attached}
    return (of(GATEWAY_KINDS.gateways, *gateway), *about_routes(spaces, attached))


def about_routes(spaces: Iterable[str], routes: Iterable[JsonObject]) -> Iterator[About]:
    """Yield what is shown of namespaces where requests to their Services, or by routes, are told with their Pods."""
    for space in sorted({*spaces, *(one for each in routes for one in backend_spaces(each))}):
        yield from (of(kind, space) for kind in (GATEWAY_KINDS.routes, SERVICE, POD))


def _of_route(key: Key) -> tuple[About, ...]:
    return (of(GATEWAY_KINDS.routes, *key),)


def names_by_address(slices: Iterable[JsonObject], own: str) -> dict[str, str]:
    """Return the Pods behind addresses, those of other namespaces than ``own`` with their own."""
    found: dict[str, str] = {}
    for one in slices:
        prefix = "" if objects.namespace(one) == own else f"{objects.namespace(one)}/"
        for each in one.get("endpoints") or []:
            target = each.get("targetRef") or {}
            if target.get("kind") == POD.kind:
                found |= dict.fromkeys(each.get("addresses") or [], f"{prefix}{target['name']}")
    return found


def tables(told: Iterable[Resource], slices: Iterable[JsonObject], own: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return what becomes of requests by configuration and host, as Envoys are told, with the names of Pods."""
    found = list(told)
    endpoints = {each.name: weights_of(each.body) for each in found if each.type_url == ENDPOINTS}
    pods = names_by_address(slices, own)
    return {
        (each.name, host["name"]): ways(host["routes"], endpoints, pods)
        for each in found
        if each.type_url == ROUTES
        for host in each.body["virtual_hosts"]
    }


def _places(told: Sequence[Resource], routing: Routing) -> dict[str, dict[str, str]]:
    if not told:
        return {}
    gateway = told[0].place
    routes = routing.all(GATEWAY_KINDS.routes.kind)
    slices = [one for key in _services_of((), routes) for one in routing.slices(str(key))]
    found = tables(told, slices, gateway.partition("/")[0])
    return {f"{_host(host)}, port {name.removeprefix(f'{gateway}:')}": of for (name, host), of in found.items()}


def _host(name: str) -> str:
    return "any host" if name == "*" else name


def _changes(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    for place in sorted({*before, *after}):
        change = changed_ways(before.get(place) or {}, after.get(place) or {})
        if change:
            yield place, change


def changed_ways(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return by which match requests would go elsewhere; "" where they all go where they went."""
    changes = [
        f"{'' if each == 'all' else f'{each}: '}{before.get(each, 'no rule')} → {after.get(each, 'no rule')}"
        for each in dict.fromkeys((*after, *before))
        if before.get(each) != after.get(each)
    ]
    if not changes and [*before] != [*after]:
        return f"rules are tried in another order: {'; '.join(after)}"
    more = len(changes) - _MOST
    return "; ".join([*changes[:_MOST], *([f"and {more} more"] if more > 0 else [])])


def _new(found: Iterable[str], before: Iterable[str], *, is_asked: bool) -> Iterable[str]:
    known = () if is_asked else {*before}
    return dict.fromkeys(each for each in found if each not in known)


def _unmade(gateway: JsonObject, routing: Routing) -> str:
    name = objects.spec(gateway)["gatewayClassName"]
    found = routing.objects.get((GATEWAY_KINDS.classes.kind, Key("", name)))
    if found is None:
        return f"there is no GatewayClass {name}: nothing would be made of it"
    return f"GatewayClass {name} has parametersRef, which is not known here" if is_ours(found) else ""


def _of_gateway(verdict: GatewayVerdict | None) -> Iterator[str]:
    if verdict is None:
        return
    if verdict.refused is not None:
        yield f"Accepted would be False: {': '.join(verdict.refused)}"
    elif verdict.addresses and verdict.remark:
        yield verdict.remark
    for each in verdict.listeners:
        for kind, why in (("Accepted", each.refused or each.conflict), ("ResolvedRefs", each.unresolved)):
            if why is not None:
                yield f"listener {each.name}: {kind} would be False: {': '.join(why)}"


def _of_verdict(verdict: RouteVerdict | None) -> Iterator[str]:
    for each in verdict.parents if verdict is not None else ():
        refused = (verdict.unsupported if verdict is not None else None) or each.refused
        yield from [f"{parent_of(each.ref)}: {each.remark}"] if each.remark and refused is None else []
        for kind, why in (("Accepted", refused), ("ResolvedRefs", each.unresolved)):
            if why is not None:
                yield f"{parent_of(each.ref)}: {kind} would be False: {': '.join(why)}"


def _orphan(route: JsonObject) -> str:
    named = ", ".join(map(parent_of, objects.spec(route).get("parentRefs") or []))
    return f"neither a Gateway of minik8s nor a Service is its parent: {named or 'it names none'}"


def parent_of(ref: JsonObject) -> str:
    """Return a route's parent as people call it."""
    place = f"{ref['namespace']}/" if ref.get("namespace") else ""
    return f"{ref.get('kind') or GATEWAY_KINDS.gateways.kind} {place}{ref.get('name')}"
