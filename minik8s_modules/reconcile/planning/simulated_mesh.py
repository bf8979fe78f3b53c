"""Where requests would go in a mesh if objects were applied: decided as the pilot does, before and after. Pure.

Told is what changes for sidecars of the ports that a VirtualService splits or an HTTPRoute leads, or would; where none
does, requests go to a Service's Pods, and what becomes of those is shown by the rules of the nodes. What changes for
Gateways is ``simulated_routes``'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SERVICE, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.network.gateway_api import gateway_kind
from minik8s_modules.api.network.subsets import with_pods
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecar_images import has_sidecar
from minik8s_modules.mesh.gateways.meshing import LedPort, Routes, decide_led
from minik8s_modules.mesh.gateways.parents import service_of
from minik8s_modules.mesh.mapping import Branch, Declared, Mapped, Port, Verdict, decide_mapping
from minik8s_modules.reconcile.feeds.plan_subjects import MESH_KINDS, About, Note, of
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.planning.simulated_authorizations import PolicySide, policy_notes
from minik8s_modules.reconcile.planning.simulated_modes import mode_notes
from minik8s_modules.reconcile.planning.simulated_routes import (
    Routing,
    Secrets,
    about_routes,
    changed_ways,
    route_notes,
    routings,
    tables,
)
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices
from minik8s_modules.reconcile.planning.simulation import is_gone

NOWHERE = "nobody (503)"
NO_PODS: Mapping[str, JsonObject | None] = {}
_NO_SECRETS = Secrets()


def mesh_notes(
    question: Question,
    seen: PlannedServices,
    cluster: Cluster,
    secrets: Secrets = _NO_SECRETS,
    pods: Mapping[str, JsonObject | None] = NO_PODS,
) -> list[Note]:
    """Return what is to be told of sidecars' and Gateways' routes, and of objects that would have no effect.

    ``pods`` are those that change, by uid, as they would be; None for one that goes.
    """
    before, after = routings(question, seen, cluster, secrets)
    sides = (Side(before, cluster.mesh), Side(after, _changed(cluster.mesh, question)))
    asked = {objects.namespace(each.object) for each in question.operations if each.object.get("kind") in MESH_KINDS}
    spaces = asked | {key.partition("/")[0] for key in seen.services}
    found = [note for space in sorted(spaces | _led(spaces, question, sides, cluster))
             for note in namespace_notes(space, sides, cluster)]  # fmt: skip
    found += mode_notes(question, before.namespaces, after.namespaces, cluster.pods)
    found += policy_notes(sides[0].of_policies(), sides[1].of_policies(), cluster.pods, pods)
    return [*found, *route_notes(question, before, after)]


class Side:
    """What sidecars would be told of, now or afterwards."""

    def __init__(self, routing: Routing, mesh: Iterable[JsonObject]) -> None:
        self.routing = routing
        self.mesh = list(mesh)
        self.routes: Routes = routing.within
        self._services: dict[str, list[JsonObject]] = {}
        for each in routing.services.values():
            self._services.setdefault(objects.namespace(each), []).append(each)

    def of_policies(self) -> PolicySide:
        """Return what AuthorizationPolicies are decided by."""
        policies = [each for each in self.mesh if each["kind"] == AUTHORIZATION_POLICY.kind]
        return PolicySide(policies, self.routing.namespaces, lambda space: self.declared(space).slices)

    def declared(self, space: str, pods: Sequence[JsonObject] = ()) -> Declared:
        """Return the objects of a namespace; Subsets have the Pods that there are of their labels."""
        services = self._services.get(space, [])
        slices = [one for each in services for one in self.routing.slices(str(objects.key(each)))]
        mesh = [each for each in self.mesh if objects.namespace(each) == space]
        virtual = [each for each in mesh if each["kind"] == VIRTUAL_SERVICE.kind]
        subsets = [with_pods(each, pods) for each in mesh if each["kind"] == SUBSET.kind]
        return Declared(services, slices, virtual, subsets)


class _Way(NamedTuple):
    """What becomes of requests to a port; ``ways`` are by match where an HTTPRoute leads them."""

    name: str
    text: str
    ways: Mapping[str, str] | None = None
    policy: JsonObject | None = None


class _Ways(NamedTuple):
    """The ports of a namespace's sidecars, by address, the VirtualServices, and what HTTPRoutes lead."""

    mapped: Mapped
    led: Mapping[str, LedPort]
    declared: Mapping[str, Declared]
    virtual: Sequence[JsonObject]

    @property
    def steered(self) -> set[str]:
        """The ports that somebody declares something about."""
        return {*self.mapped.split_by, *self.led}

    def at(self, place: str, space: str) -> _Way | None:
        """Return what becomes of requests to a port; None of what the mesh does not look at."""
        led, port = self.led.get(place), self.mapped.ports.get(place)
        if led is not None:
            slices = [one for each in self.declared.values() for one in each.slices]
            (found,) = tables(led.resources(), slices, space).values()
            text = "; ".join(f"{of} to {where}" if of != "all" else where for of, where in found.items())
            return _Way(_called(led.port, led.name.rpartition(":")[0], space), text or "nobody (404)", found)
        return _Way(f"{port.service}:{port.port}", _ways(port), None, port.policy) if port is not None else None


def _called(port: Port, whole: str, space: str) -> str:
    name = port.service if whole == f"{port.service}.{space}" else whole
    return f"{name}:{port.port}"


def _decided(side: Side, space: str, pods: Sequence[JsonObject]) -> _Ways:
    declared = {each: side.declared(each) for each in side.routes.namespaces(space)}
    own = side.declared(space, pods)
    mapped = decide_mapping(own._replace(led=side.routes.producers(own, space)))
    led = {each.place: each for each in decide_led(side.routes, space, [*declared.values()])}
    return _Ways(mapped, led, declared, own.virtual_services)


def _led(spaces: set[str], question: Question, sides: Iterable[Side], cluster: Cluster) -> set[str]:
    """Return the namespaces whose sidecars HTTPRoutes lead by what changes."""
    asked = {
        one
        for each in question.operations
        if gateway_kind(each.object) is not None
        for one in (objects.namespace(each.object), *_parents(each.object))
        if one
    }
    callers = {objects.namespace(pod) for pod in cluster.pods if has_sidecar(objects.spec(pod))}
    return {
        space
        for side in sides
        for space in (callers | asked if side.routes.routes else ())
        if side.routes.namespaces(space) & (spaces | asked)
    }


def _parents(route: JsonObject) -> Iterator[str]:
    refs = objects.spec(route).get("parentRefs") or []
    yield from (key.namespace for ref in refs if (key := service_of(ref, route)) is not None)


def namespace_notes(space: str, sides: tuple[Side, Side], cluster: Cluster) -> Iterator[Note]:
    """Yield where a namespace's sidecars would send requests otherwise, and which VirtualServices have no effect."""
    pods = [pod for pod in cluster.pods if objects.namespace(pod) == space]
    before, after = (_decided(side, space, pods) for side in sides)
    steered = before.steered | after.steered
    if not (steered or before.virtual or after.virtual):
        return
    about = (of(VIRTUAL_SERVICE, space), of(SUBSET, space), of(SERVICE, space), of(POD, space))
    number = sum(has_sidecar(objects.spec(pod)) for pod in pods)
    whose = f"{number} sidecar{'s' if number != 1 else ''} of namespace {space}"
    for place in sorted(steered) if number else ():
        old, new = before.at(place, space), after.at(place, space)
        if change := _change(old, new):
            name = (new or old or _Way(place, "")).name
            shown = (*about, *_about_led(place, before, after))
            yield Note(f"{whose} would send requests to {name} otherwise: {change}", shown)
    for each in after.virtual:
        name = objects.name(each)
        known = [*_faults(before.mapped.verdicts[name])] if each in before.virtual else []
        for why in _faults(after.mapped.verdicts[name]):
            if why not in known:
                yield Note(f"VirtualService {space}/{name}: {why}", about)


def _about_led(place: str, *sides: _Ways) -> Iterator[About]:
    ports = [port for side in sides if (port := side.led.get(place)) is not None]
    routes = [routed.route for port in ports for routed in port.routes]
    spaces = {port.name.rpartition(":")[0].rpartition(".")[2] for port in ports}
    yield from about_routes([*spaces, *map(objects.namespace, routes)], routes)


def _changed(before: Iterable[JsonObject], question: Question) -> list[JsonObject]:
    """Return VirtualServices, Subsets and AuthorizationPolicies once the operations are done."""
    found = {(each["kind"], objects.key(each)): each for each in before}
    for each in question.operations:
        obj, kind = each.object, str(each.object.get("kind"))
        if kind in MESH_KINDS:
            old = found.pop((kind, objects.key(obj)), None)
            if not is_gone(each):
                # one that is new is the youngest: an older one keeps its port
                meta = {"creationTimestamp": "9999", **obj["metadata"], **_born(old)}
                found[kind, objects.key(obj)] = {**obj, "metadata": meta}
    return [*found.values()]


def _born(old: JsonObject | None) -> JsonObject:
    return {"creationTimestamp": objects.metadata(old).get("creationTimestamp")} if old is not None else {}


def _faults(verdict: Verdict) -> Iterator[str]:
    for why in (verdict.refused, verdict.broken):
        if why is not None:
            yield f"{why[0]}: {why[1]}"


def _change(old: _Way | None, new: _Way | None) -> str:
    if old is not None and new is not None and old.ways is not None and new.ways is not None:
        return changed_ways(old.ways, new.ways)
    before, after = (each.text if each is not None else "not by the mesh" for each in (old, new))
    changes = [f"{before} → {after}"] if before != after else []
    policies = [{} if each is None else each.policy or {} for each in (old, new)]
    for field in sorted({*policies[0], *policies[1]}):
        one, other = (json.dumps(each[field]) if field in each else "none" for each in policies)
        changes += [f"{field} {one} → {other}"] if one != other else []
    return "; ".join(changes)


def _ways(port: Port) -> str:
    return "; ".join(map(_way, port.branches))


def _way(branch: Branch) -> str:
    whole = sum(each.weight for each in branch.endpoints)
    shares = [f"{each.pod or each.ip} {each.weight / whole:.0%}" for each in branch.endpoints if each.weight]
    chosen = [f"{name}: {value}" for name, value in branch.headers]
    chosen += [f"path ~ {branch.url}"] if branch.url is not None else []
    return f"{', '.join(chosen)}{' to ' if chosen else ''}{', '.join(shares) or NOWHERE}"
