"""What a plan says of AuthorizationPolicies and the Pods that a workload would make."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, STRICT
from minik8s_modules.api.pods.sidecars import INJECT, with_sidecar
from minik8s_modules.reconcile.planning import simulated_authorizations
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_authorizations import PolicySide, policy_notes
from minik8s_modules.reconcile.planning.simulated_mesh import mesh_notes
from minik8s_modules.reconcile.planning.simulated_services import Cluster, addresses, planned_services
from minik8s_modules.reconcile.planning.simulation import planned_state
from minik8s_modules.scheduler.profiles.deciding import Profiles, Scene
from tests.support.authorization import policy
from tests.support.workloads import NOW, SPACE
from tests.unit.reconcile.planning.test_simulated_rollouts import deployment, node, running

LABELS = {INJECT: "enabled", MTLS: STRICT}
NAMESPACE: JsonObject = {"kind": "Namespace", "metadata": {"name": SPACE, "labels": LABELS}}
GET = {"to": [{"operation": {"methods": ["GET"]}}]}
WEB = {"app": "web"}


def service(port: str) -> JsonObject:
    spec = {"clusterIP": "100.0.0.9", "selector": WEB, "ports": [{"name": port, "port": 80, "targetPort": 8080}]}
    meta = {"name": "web", "namespace": SPACE}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def asked(*operations: tuple[str, JsonObject], **standing: Any) -> list[str]:
    """Return what is told of sidecars, by the Pods that the operations' workloads would have."""
    question = Question(tuple(Operation(*each) for each in operations), frozenset())
    scene = Scene(Profiles(), (NAMESPACE,))
    place = {**node("a"), "spec": {"podCIDR": "10.244.0.0/24"}}
    cluster = Cluster(standing.pop("pods", ()), (place,), ("a",), scene=scene, **standing)
    workloads = standing.get("workloads", ())
    found = planned_state(question, cluster.pods, [place], NOW, workloads, scene=scene, mesh=True)
    seen = planned_services(found, cluster, addresses(found.pods, cluster), frozenset())
    return [each.text for each in mesh_notes(question, seen, cluster, pods=found.pods)]


def own(*rules: JsonObject) -> JsonObject:
    made = policy("own", *rules, namespace=SPACE)
    assert made["kind"] == AUTHORIZATION_POLICY.kind
    return made


@pytest.mark.parametrize(
    ("rules", "port", "told"),
    [
        ([], "http", f"2 new Pods of namespace {SPACE} would refuse {SPACE}/default: "),
        ([GET], "tcp", f"2 new Pods of namespace {SPACE} would refuse {SPACE}/default: "),
        ([GET], "http", f"2 new Pods of namespace {SPACE} would let in {SPACE}/default with some requests only"),
        ([{}], "http", ""),
        ([{"from": []}], "http", f"2 new Pods of namespace {SPACE} would refuse {SPACE}/default: "),
        ([{"to": [{"operation": {"ports": ["http"]}}]}], "http", f"2 new Pods of namespace {SPACE} would refuse "),
    ],
)
def test_new_pods_of_a_deployment_are_told_of(rules: list[JsonObject], port: str, told: str):
    notes = asked(("create", deployment(2)), ("create", service(port)), ("create", own(*rules)))
    assert [note[: len(told)] for note in notes] == ([told] if told else [])


def test_replicas_that_let_in_the_same_are_passed_over():
    place = {**node("a"), "spec": {"podCIDR": "10.244.0.0/24"}}
    workloads, plain = running(2, [place])
    made = planned_state(
        Question((Operation("create", deployment(2)),), frozenset()), [], [place], NOW,
        scene=Scene(Profiles(), (NAMESPACE,)), mesh=True,
    )  # fmt: skip
    (spec, *_) = [pod["spec"] for pod in made.pods.values() if pod is not None]
    pods = tuple(
        {**pod, "spec": {**spec, "nodeName": "a"}, "metadata": {**pod["metadata"], "name": f"web-{own}", "uid": own}}
        for own, pod in zip(("one", "two"), plain, strict=True)
    )
    standing = {"pods": pods, "workloads": tuple(workloads)}
    assert asked(("update", deployment(4)), mesh=(own(),), **standing) == []
    told = asked(("update", deployment(4)), ("create", own()), **standing)
    assert [note.partition(" of ")[0] for note in told] == ["2 Pods", "2 new Pods"]


def caller(number: int, port: int) -> JsonObject:
    spec = {
        "serviceAccountName": f"account{number % 20}",
        "containers": [{"name": "app", "image": "i", "ports": [{"containerPort": port}]}],
    }
    meta = {"name": f"web-{number}", "namespace": SPACE, "uid": f"uid-{number}", "labels": WEB}
    return {"metadata": meta, "spec": with_sidecar(spec, mutual=True)}


def test_what_is_asked_of_policies_grows_with_ports_and_callers_and_not_with_pods(monkeypatch: pytest.MonkeyPatch):
    calls = dict.fromkeys(("access", "selecting", "http_ports_of"), 0)

    def counted(name: str) -> Any:
        real = getattr(simulated_authorizations, name)

        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*args, **options)

        return call

    for name in calls:
        monkeypatch.setattr(simulated_authorizations, name, counted(name))
    read: list[str] = []

    def slices(space: str) -> list[JsonObject]:
        read.append(space)
        return []

    side = PolicySide([own(GET)], {SPACE: {}}, slices)
    pods = {objects.uid(pod): pod for pod in (caller(number, 8080 + number % 2) for number in range(400))}
    notes = list(policy_notes(side, side, [], pods))
    assert [note.text.partition(" of ")[0] for note in notes] == ["400 new Pods", "400 new Pods"]
    assert calls == {"access": 2 * 2 * 21, "selecting": 1, "http_ports_of": 1}
    assert read == [SPACE]
