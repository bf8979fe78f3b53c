"""Whom Pods would let in, and whom no more, if AuthorizationPolicies or what they depend on changed. Pure.

Told is of Pods that have a sidecar which enforces policies: of those that stay, what changes, and of new ones, how they
differ from Pods of the same labels, or, where there are none, from Pods that let everybody in. Callers are the service
accounts of Pods with sidecars, and whoever has no certificate, where mutual TLS does not refuse him anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.network.authorization import (
    ALL,
    AUTHORIZATION_POLICY,
    NONE,
    SOME,
    Caller,
    access,
    operations_of,
    selecting,
)
from minik8s_modules.api.network.gateway_api import GATEWAY_NAME
from minik8s_modules.api.network.readable_policies import readable_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import STRICT, asked_mode, can_speak
from minik8s_modules.api.pods.sidecar_images import has_sidecar
from minik8s_modules.controllers.workloads import history, revisions, stateful_pods
from minik8s_modules.mesh.authorizations.guards import http_ports_of
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of

_ANY_PORT = 0
_GENERATED = frozenset({
    revisions.HASH_LABEL, history.HASH_LABEL, stateful_pods.NAME_LABEL, stateful_pods.INDEX_LABEL,
})  # fmt: skip
"""Labels that tell a workload's Pods from each other, or those of one release from those of the next."""
_WORDS = {
    (ALL, NONE): "refuse {}", (ALL, SOME): "let in {} with some requests only", (SOME, NONE): "refuse {}",
    (NONE, ALL): "let in {}", (NONE, SOME): "let in {} with some requests", (SOME, ALL): "let in {} with all requests",
}  # fmt: skip


_Kind = tuple[str, frozenset[tuple[str, str]]]
"""What Pods have in common whose policies are the same: their namespace, and labels of their own."""


class PolicySide(NamedTuple):
    """What counts, now or afterwards.

    Attributes:
        policies: all of them.
        namespaces: their labels.
        slices: returns the EndpointSlices of a namespace.
    """

    policies: Sequence[JsonObject]
    namespaces: Mapping[str, Mapping[str, str]]
    slices: Callable[[str], Iterable[JsonObject]]


class _Change(NamedTuple):
    space: str
    caller: Caller
    words: str
    ports: tuple[int, ...]
    is_new: bool


class _Guarded(NamedTuple):
    """What counts of a Pod on one side: the policies that select it, by name; its ports of HTTP and its containers'."""

    policies: tuple[str, ...]
    http: frozenset[int]
    declared: frozenset[int]


class _Alike(NamedTuple):
    """What Pods have in common of which the same is told; it is found out once for all of them."""

    space: str
    is_strict: bool
    is_new: bool
    old: _Guarded
    new: _Guarded


def policy_notes(
    before: PolicySide, after: PolicySide, pods: Iterable[JsonObject], changed: Mapping[str, JsonObject | None]
) -> Iterator[Note]:
    """Yield who would lose or gain what, by the Pods that he calls.

    ``changed`` are Pods by uid as they would be, also those of workloads; None for one that goes.
    """
    spaces = {objects.namespace(each) for each in (*before.policies, *after.policies)}
    if not spaces:
        return
    known = {objects.uid(pod): pod for pod in pods}
    then = {uid: pod for uid, pod in {**known, **changed}.items() if pod is not None and not objects.is_deleting(pod)}
    callers = sorted({caller for pod in (*known.values(), *then.values()) if (caller := _caller(pod)) is not None})
    twins = _by_kinds(known.values()) if then.keys() - known.keys() else {}
    sides = _Side(before), _Side(after)
    alike: dict[_Alike, list[str]] = {}
    for uid, pod in then.items():
        if objects.namespace(pod) in spaces & after.namespaces.keys() and can_speak(objects.spec(pod)):
            now = known.get(uid) or twins.get(_kind_of(pod))
            alike.setdefault(_alike(now, pod, sides, is_new=uid not in known), []).append(objects.name(pod))
    found: dict[_Change, list[_Alike]] = {}
    for each in alike:
        for change in _changes(each, sides, callers):
            found.setdefault(change, []).append(each)
    yield from _notes(found, alike)


def _by_kinds(pods: Iterable[JsonObject]) -> dict[_Kind, JsonObject]:
    return {_kind_of(pod): pod for pod in pods if can_speak(objects.spec(pod))}


def _kind_of(pod: JsonObject) -> _Kind:
    """Return what Pods have in common that are replicas of each other, or of releases that follow each other."""
    labels = objects.labels(pod).items()
    return objects.namespace(pod), frozenset((name, value) for name, value in labels if name not in _GENERATED)


def _caller(pod: JsonObject) -> Caller | None:
    spec = objects.spec(pod)
    if spec.get("hostNetwork") or not (has_sidecar(spec) or GATEWAY_NAME in objects.labels(pod)):
        return None
    return Caller(objects.namespace(pod), str(spec.get("serviceAccountName") or "default"))


class _Side:
    """One side, of which each namespace is read once, and each set of labels compared once."""

    def __init__(self, side: PolicySide) -> None:
        self.namespaces = side.namespaces
        self._slices = side.slices
        self._policies: dict[str, dict[str, JsonObject]] = {}
        for each in side.policies:
            self._policies.setdefault(objects.namespace(each), {})[objects.name(each)] = readable_policy(each)[0]
        self._http: dict[str, dict[str, frozenset[int]]] = {}
        self._chosen: dict[_Kind, tuple[str, ...]] = {}

    def guarded(self, pod: JsonObject) -> _Guarded:
        """Return what counts of a Pod."""
        space = objects.namespace(pod)
        chosen = self._selecting(space, objects.labels(pod))
        http = self._http_ports(space).get(objects.name(pod), frozenset[int]()) if chosen else frozenset[int]()
        return _Guarded(chosen, http, _declared(pod))

    def policies(self, space: str, guarded: _Guarded) -> list[JsonObject]:
        """Return the policies of a Pod: what they say, and nothing that only tells when it was written."""
        declared = self._policies.get(space, {})
        return [{"metadata": {"name": name}, "spec": objects.spec(declared[name])} for name in guarded.policies]

    def _selecting(self, space: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        kind = space, frozenset(labels.items())
        if kind not in self._chosen:
            declared = self._policies.get(space, {}).values()
            self._chosen[kind] = tuple(objects.name(each) for each in selecting(declared, space, labels))
        return self._chosen[kind]

    def _http_ports(self, space: str) -> Mapping[str, frozenset[int]]:
        if space not in self._http:
            self._http[space] = http_ports_of(self._slices(space))
        return self._http[space]


def _declared(pod: JsonObject) -> frozenset[int]:
    ports = (each for container in objects.containers(pod) for each in container.get("ports") or [])
    return frozenset(int(each["containerPort"]) for each in ports if (each.get("protocol") or "TCP") == "TCP")


def _alike(now: JsonObject | None, then: JsonObject, sides: tuple[_Side, _Side], *, is_new: bool) -> _Alike:
    before, after = sides
    space, new = objects.namespace(then), after.guarded(then)
    unguarded = new._replace(policies=(), http=frozenset())
    is_strict = asked_mode(objects.labels(then), after.namespaces.get(space, {})) == STRICT
    return _Alike(space, is_strict, is_new, unguarded if now is None else before.guarded(now), new)


def _changes(alike: _Alike, sides: tuple[_Side, _Side], callers: Sequence[Caller]) -> Iterator[_Change]:
    space, is_strict, is_new, old, new = alike
    policies = sides[0].policies(space, old), sides[1].policies(space, new)
    if (policies[0], old.http) == (policies[1], new.http):
        return
    declared = {*old.declared, *new.declared, *old.http, *new.http}
    ports = sorted(declared.union(*map(_asked_ports, policies))) or [_ANY_PORT]
    for caller in [*callers, *([] if is_strict else [Caller()])]:
        changed: dict[str, list[int]] = {}
        for port in ports:
            was = access(policies[0], caller, port, http=port in old.http).passes
            passes = was, access(policies[1], caller, port, http=port in new.http).passes
            if passes in _WORDS:
                changed.setdefault(_WORDS[passes], []).append(port)
        for words, of_ports in changed.items():
            yield _Change(space, caller, words, tuple(of_ports) if of_ports != ports else (), is_new)


def _asked_ports(policies: Iterable[JsonObject]) -> Iterator[int]:
    for policy in policies:
        for rule in policy["spec"].get("rules") or []:
            for operation in operations_of(rule):
                yield from map(int, [*(operation.get("ports") or ()), *(operation.get("notPorts") or ())])


def _notes(found: Mapping[_Change, Sequence[_Alike]], alike: Mapping[_Alike, Sequence[str]]) -> Iterator[Note]:
    # a note for the callers of each namespace: who may not see those of one is told of the others
    told: dict[tuple[str, str, str, tuple[int, ...], bool, tuple[_Alike, ...]], list[str]] = {}
    for change, kinds in found.items():
        key = (change.space, change.caller.namespace, change.words, change.ports, change.is_new, tuple(kinds))
        told.setdefault(key, []).append(str(change.caller))
    named = ((*key[:-1], sorted(name for kind in key[-1] for name in alike[kind]), who) for key, who in told.items())
    for space, other, words, ports, is_new, names, callers in sorted(named):
        at = f" at port{'s' if len(ports) != 1 else ''} {', '.join(map(str, ports))}" if ports else ""
        number = f"{len(names)} new" if is_new else f"{len(names)}"
        whose = f"{number} Pod{'s' if len(names) != 1 else ''} of namespace {space}"
        text = f"{whose} would {words.format(', '.join(callers))}{at}: {', '.join(names)}"
        about = (of(AUTHORIZATION_POLICY, space), of(POD, space), *([of(POD, other)] if other else []))
        yield Note(text, about)
