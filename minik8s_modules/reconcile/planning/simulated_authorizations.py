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
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import STRICT, can_speak, peer
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
    found: dict[_Change, list[str]] = {}
    for uid, pod in sorted(then.items(), key=lambda each: objects.key(each[1])):
        if objects.namespace(pod) in spaces & after.namespaces.keys() and can_speak(objects.spec(pod)):
            now = known.get(uid) or twins.get(_kind_of(pod))
            for change in _changes(now, pod, before, after, callers):
                found.setdefault(change._replace(is_new=uid not in known), []).append(objects.name(pod))
    yield from _notes(found)


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


def _changes(
    now: JsonObject | None, then: JsonObject, before: PolicySide, after: PolicySide, callers: Sequence[Caller]
) -> Iterator[_Change]:
    space = objects.namespace(then)
    strict = (found := peer(then, after.namespaces.get(space, {}))) is not None and found.mode == STRICT
    unguarded = before._replace(policies=())
    old = _Guarded(now, before) if now is not None else _Guarded(then, unguarded)
    new = _Guarded(then, after)
    if (old.policies, old.http) == (new.policies, new.http):
        return
    ports = sorted({*old.ports(), *new.ports()}) or [_ANY_PORT]
    for caller in [*callers, *([] if strict else [Caller()])]:
        changed: dict[str, list[int]] = {}
        for port in ports:
            passes = old.passes(caller, port), new.passes(caller, port)
            if passes in _WORDS:
                changed.setdefault(_WORDS[passes], []).append(port)
        for words, of_ports in changed.items():
            yield _Change(space, caller, words, tuple(of_ports) if of_ports != ports else (), is_new=False)


class _Guarded:
    """One Pod on one side."""

    def __init__(self, pod: JsonObject, side: PolicySide) -> None:
        space = objects.namespace(pod)
        self._pod = pod
        chosen = selecting(side.policies, space, objects.labels(pod))
        self.policies = [{"metadata": {"name": objects.name(each)}, "spec": objects.spec(each)} for each in chosen]
        self.http = http_ports_of(side.slices(space)).get(objects.name(pod), frozenset()) if chosen else frozenset()

    def ports(self) -> Iterator[int]:
        """Yield the ports of the Pod that anybody declares."""
        for container in objects.containers(self._pod):
            for each in container.get("ports") or []:
                if (each.get("protocol") or "TCP") == "TCP":
                    yield int(each["containerPort"])
        yield from self.http
        for policy in self.policies:
            for rule in policy["spec"].get("rules") or []:
                for operation in operations_of(rule):
                    yield from map(int, [*(operation.get("ports") or ()), *(operation.get("notPorts") or ())])

    def passes(self, caller: Caller, port: int) -> int:
        """Return how much of what a caller may ask passes."""
        return access(self.policies, caller, port, http=port in self.http).passes


def _notes(found: Mapping[_Change, Sequence[str]]) -> Iterator[Note]:
    # a note for the callers of each namespace: who may not see those of one is told of the others
    told: dict[tuple[str, str, str, tuple[int, ...], bool, tuple[str, ...]], list[str]] = {}
    for change, names in found.items():
        key = (change.space, change.caller.namespace, change.words, change.ports, change.is_new, tuple(names))
        told.setdefault(key, []).append(str(change.caller))
    for (space, other, words, ports, is_new, names), callers in sorted(told.items()):
        at = f" at port{'s' if len(ports) != 1 else ''} {', '.join(map(str, ports))}" if ports else ""
        number = f"{len(names)} new" if is_new else f"{len(names)}"
        whose = f"{number} Pod{'s' if len(names) != 1 else ''} of namespace {space}"
        text = f"{whose} would {words.format(', '.join(callers))}{at}: {', '.join(names)}"
        about = (of(AUTHORIZATION_POLICY, space), of(POD, space), *([of(POD, other)] if other else []))
        yield Note(text, about)
