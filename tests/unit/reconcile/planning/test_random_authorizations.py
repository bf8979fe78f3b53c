"""Random AuthorizationPolicies: a plan says of callers what the pilot's copies then come to.

Over an API in memory.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.network.authorization import ALL, AUTHORIZATION_POLICY, NONE, SOME, Caller, access
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, can_speak
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.authorizations.following import PolicyCopies
from minik8s_modules.mesh.authorizations.guards import Policies
from minik8s_modules.mesh.messages import try_to_enforce
from minik8s_modules.reconcile.planning.questions import Operation, Question, parse_question
from minik8s_modules.reconcile.planning.simulated_authorizations import PolicySide, policy_notes
from minik8s_modules.runtime.controller import Context
from tests.support.authorization import define, policy
from tests.support.load.storms import Manager
from tests.support.waiting import until

SPACES, PODS, NEW, PORT, PATIENCE_S = ("far", "shop"), ("a", "b", "c"), ("d", "e"), 8080, 60.0
CALLERS = (*(Caller(space, "default") for space in SPACES), Caller())
LABELS: dict[str, dict[str, str]] = {space: {MTLS: PERMISSIVE} for space in SPACES}
Passing = dict[tuple[Key, Caller], int]


class Cluster:
    """Pods with labels, some of which can speak TLS, and policies."""

    def __init__(self, seed: int) -> None:
        self._roll = random.Random(seed)
        self.api = FakeApi()
        define(self.api)
        for space in SPACES:
            for name in PODS:
                self.api.create(POD, self._pod(space, name, mutual=name != "c"))
            for each in self._policies(space):
                self.api.create(AUTHORIZATION_POLICY, each)

    def _pod(self, space: str, name: str, *, mutual: bool) -> JsonObject:
        app: JsonObject = {"containers": [{"name": "app", "image": "i", "ports": [{"containerPort": PORT}]}]}
        meta = {"name": name, "namespace": space, "labels": {"app": self._roll.choice("xyz")}}
        return {"metadata": meta, "spec": with_sidecar(app, mutual=mutual), "status": {"phase": "Running"}}

    def _policies(self, space: str) -> Iterator[JsonObject]:
        for name in ("p", "q"):
            if self._roll.random() < 0.6:
                yield self._policy(space, name)

    def _policy(self, space: str, name: str) -> JsonObject:
        rules = [self._rule() for _ in range(self._roll.randrange(3))]
        action = self._roll.choice(("ALLOW", "ALLOW", "DENY"))
        return policy(name, *rules, namespace=space, app=self._roll.choice(("", "x", "y")), action=action)

    def _rule(self) -> JsonObject:
        rule: dict[str, Any] = {}
        space = self._roll.choice(SPACES)
        source = self._roll.choice(
            (
                {},
                {"ipBlocks": ["10.0.0.0/8"]},
                {"namespaces": [space]},
                {"notNamespaces": [space]},
                {"principals": [f"cluster.local/ns/{space}/*"]},
            )
        )
        operation = self._roll.choice(({}, {"ports": [str(PORT)]}, {"notPorts": [str(PORT)]}, {"paths": ["/x"]}))
        rule |= {"from": [{"source": source}]} if source else {}
        return {**rule, **({"to": [{"operation": operation}]} if operation else {})}

    def changes(self) -> Iterator[Operation]:
        """Yield other policies, and Pods with other labels, that go or come."""
        for space in SPACES:
            there = {objects.name(each): each for each in self.api.list(AUTHORIZATION_POLICY, space).items}
            for name in ("p", "q"):
                if (rolled := self._roll.random()) < 0.4:
                    yield Operation("update" if name in there else "create", self._policy(space, name))
                elif rolled < 0.6 and name in there:
                    yield Operation("delete", {**there[name], **_named(AUTHORIZATION_POLICY)})
            for pod in self.api.list(POD, space).items:
                if (rolled := self._roll.random()) < 0.2:
                    meta = {**pod["metadata"], "labels": {"app": self._roll.choice("xy")}}
                    yield Operation("update", {**pod, **_named(POD), "metadata": meta})
                elif rolled < 0.3:
                    yield Operation("delete", {**pod, **_named(POD)})
            for name in NEW:
                if self._roll.random() < 0.5:
                    yield Operation("create", {**self._pod(space, name, mutual=True), **_named(POD)})

    def do(self, operation: Operation) -> None:
        """Do it."""
        obj = operation.object
        kind, key = (POD if obj["kind"] == POD.kind else AUTHORIZATION_POLICY), objects.key(obj)
        if operation.operation == "delete":
            self.api.delete(kind, key.name, key.namespace)
        elif operation.operation == "create":
            self.api.create(kind, obj)
        else:
            old = self.api.get(kind, key.name, key.namespace)
            self.api.update(kind, {**old, **obj, "metadata": {**old["metadata"], **obj["metadata"]}})

    def passing(self, copies: PolicyCopies) -> Passing:
        """Return what passes of each caller at each Pod, as the pilot would tell its sidecar."""
        found: Passing = {}
        for pod in self.api.list(POD).items:
            if not can_speak(objects.spec(pod)):
                continue
            space = objects.namespace(pod)
            guard = Policies(copies.get().get(space, ())).guard(space, objects.name(pod), objects.labels(pod))
            chosen = [{"metadata": {"name": name}, "spec": spec} for name, spec in guard.specs()] if guard else []
            for caller in CALLERS:
                found[objects.key(pod), caller] = access(chosen, caller, PORT, http=False).passes
        return found


def _named(kind: Any) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


@pytest.mark.parametrize("seed", range(24))
def test_what_a_plan_says_of_callers_is_what_the_pilot_then_comes_to(seed: int):
    cluster, made = Cluster(seed), list[PolicyCopies]()

    def pilot(context: Context) -> PolicyCopies:
        made.append(PolicyCopies(context, try_to_enforce))
        return made[0]

    manager = Manager(cluster.api, pilot)
    manager.start()
    try:
        until(lambda: made[0].ready and _as_declared(cluster.api, made[0]), PATIENCE_S)
        before = cluster.passing(made[0])
        question = Question(tuple(cluster.changes()), frozenset())
        now, pods = cluster.api.list(AUTHORIZATION_POLICY).items, cluster.api.list(POD).items
        changed = {
            objects.uid(each.object) or str(objects.key(each.object)): None
            if each.operation == "delete"
            else each.object
            for each in question.operations
            if each.object["kind"] == POD.kind
        }
        asked = {objects.key(each.object): each for each in question.operations if each.object["kind"] != POD.kind}
        then = [each for each in now if objects.key(each) not in asked]
        then += [each.object for each in asked.values() if each.operation != "delete"]
        old, new = (PolicySide(policies, LABELS, lambda _space: ()) for policies in (now, then))
        notes = [each.text for each in policy_notes(old, new, pods, changed)]
        for operation in question.operations:
            cluster.do(operation)
        until(lambda: _as_declared(cluster.api, made[0]), PATIENCE_S)
        after = cluster.passing(made[0])
        twins = {_alike(pod): objects.key(pod) for pod in pods if can_speak(objects.spec(pod))}
        new_pods = {objects.key(pod): pod for pod in cluster.api.list(POD).items}

        def was(pod: Key, caller: Caller) -> int:
            key = pod if (pod, caller) in before else twins.get(_alike(new_pods[pod]), pod)
            return before.get((key, caller), ALL)

        expected = {key: passes for key, passes in after.items() if passes != was(*key)}
        assert {key: passes for note in notes for key, passes in of_note(note).items()} == expected
    finally:
        manager.stop()


def _alike(pod: JsonObject) -> tuple[str, str]:
    return objects.namespace(pod), objects.labels(pod)["app"]


def _as_declared(api: FakeApi, copies: PolicyCopies) -> bool:
    known = [each for policies in copies.get().values() for each in policies]
    stored = api.list(AUTHORIZATION_POLICY).items
    return sorted(map(objects.resource_version, known)) == sorted(map(objects.resource_version, stored))


def of_note(note: str) -> Passing:
    """Return what a note says that passes of callers at Pods."""
    found = re.fullmatch(
        r"\d+(?: new)? Pods? of namespace (\S+) would (refuse|let in) (.*?)( with .*?)?: ([^:]*)", note
    )
    assert found is not None, note
    space, word, callers, some, names = found.groups()
    passes = NONE if word == "refuse" else SOME if some and "some" in some else ALL
    return {
        (Key(space, name), Caller(*caller.split("/")) if "/" in caller else Caller()): passes
        for name in names.split(", ")
        for caller in callers.split(", ")
    }


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plan_is_asked_of_a_policy_in_either_version(version: str):
    declared = {**policy("own"), "apiVersion": f"security.istio.io/{version}"}
    (asked,) = parse_question({"objects": [{"operation": "create", "object": declared}]}).operations
    assert asked.object["apiVersion"] == AUTHORIZATION_POLICY.api_version
