"""Pods of planned workloads are admitted and refused as they are when the plan is applied.

Beside the plan, controllers act on a real admission and a real store: what they come to is what was planned.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists
from minik8s_modules.api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LEASE,
    LIMIT_RANGE,
    NAMESPACE,
    POD,
    REPLICA_SET,
    RESOURCE_QUOTA,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)
from minik8s_modules.api.network.gateway_api import CONTROLLER, GROUP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_templates import nameless
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes import planned_pods, plans
from minik8s_modules.apiserver.nodes.reconcilers import ENDPOINT, Endpoint
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.verbs.collecting_access import CONTROLLERS
from minik8s_modules.controllers.policy.quotas import decide_quota
from minik8s_modules.controllers.simulation import simulated_cluster
from minik8s_modules.controllers.simulation.simulated_cluster import World
from minik8s_modules.reconcile.planning.questions import parse_question
from minik8s_modules.reconcile.planning.simulated_admission import Admitting, declared
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from minik8s_modules.reconcile.planning.simulation import PlannedState, planned_state
from tests.support.gateway_api import definitions
from tests.support.workloads import NOW, SPACE, workload
from tests.unit.reconcile.planning.test_simulated_rollouts import deployment as changed
from tests.unit.reconcile.planning.test_simulated_rollouts import node, running

TOKEN = re.compile(r"kube-api-access-\w{5}")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
QUOTA: JsonObject = {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
NO_PODS: JsonObject = {**QUOTA, "spec": {"hard": {"pods": "0"}}}
LIMITS = {"limits": [{"type": "Container", "default": {"memory": "64Mi"}, "defaultRequest": {"memory": "32Mi"}}]}
RANGE: JsonObject = {"kind": "LimitRange", "metadata": {"name": "limits"}, "spec": LIMITS}
MEMORY: JsonObject = {**QUOTA, "spec": {"hard": {"requests.memory": "64Mi"}}}
ACCOUNT: JsonObject = {"kind": "ServiceAccount", "metadata": {"name": "app"}, "imagePullSecrets": [{"name": "key"}]}
KINDS = {kind.kind: kind for kind in (RESOURCE_QUOTA, LIMIT_RANGE, SERVICE_ACCOUNT)}
SPREAD = [node("a"), node("b"), node("c")]


class Simulating:
    """A reconciler without nodes, which keeps what it found last."""

    def __init__(self, nodes: list[JsonObject]) -> None:
        self.nodes = nodes
        self.found: PlannedState | None = None
        self.questions: list[JsonObject] = []

    def ask(self, endpoint: Endpoint, question: JsonObject, within_s: float) -> JsonObject:
        """Return the pods to be admitted, or what the rollout comes to."""
        assert endpoint.lease
        assert within_s > 0
        self.questions.append(question)
        asked = parse_question(orjson.loads(orjson.dumps(question)))
        self.found = planned_state(asked, [], self.nodes, NOW)
        if asked.admits and self.found.made:
            return {"nodes": {}, "messages": [], "made": dict(self.found.made), "around": [*self.found.accounts]}
        return {"nodes": {}, "messages": [each.row() for each in self.found.messages], "order": [*self.found.order]}

    def metrics(self, endpoint: Endpoint, node: str) -> str | None:
        """Return nothing."""
        raise NotImplementedError(endpoint, node)


def named(backend: Backend, options: Options, name: str) -> Options:
    return options._replace(requester=Requester(User(name, (MASTERS,)), Access(Rbac(backend.cache)), {}))


def _with_status(status: JsonObject, old: JsonObject) -> JsonObject:
    return {**old, "status": status}


def prepare(backend: Backend, options: Options, *around: JsonObject, labels: dict[str, str] | None = None) -> None:
    """Make the namespace with what is in it, and a reconciler's Lease."""
    space = {"metadata": {"name": SPACE, "labels": labels or {}}}
    writing.create(backend, Target(NAMESPACE), space, options)
    meta = {"name": "s0", "annotations": {ENDPOINT: "https://s0:1"}}
    writing.create(backend, Target(LEASE, "kube-system"), {"metadata": meta, "spec": {}}, options)
    for obj in around:
        made = writing.create(backend, Target(KINDS[obj["kind"]], SPACE), obj, options)
        if obj["kind"] == "ResourceQuota":
            (step,) = decide_quota(made.object, [], NOW)
            status = step.status  # type: ignore[union-attr]
            target = Target(RESOURCE_QUOTA, SPACE, objects.name(obj), "status")
            writing.change(backend, target, partial(_with_status, status), options)


def planned(
    backend: Backend, options: Options, obj: JsonObject, *before: JsonObject, nodes: list[JsonObject] | None = None
) -> tuple[JsonObject, Simulating]:
    """Return the status of a plan, and the reconciler that was asked."""
    reconciler = Simulating(nodes or SPREAD)
    revision = backend.cache.revision
    options = named(backend, options, "somebody")
    plan: JsonObject = {"spec": {"objects": [*before, obj]}}
    status = plans.answer(backend, reconciler, plan, options)["status"]
    assert backend.cache.revision == revision
    return status, reconciler


def applied(backend: Backend, options: Options, changes: Iterable[JsonObject]) -> tuple[list[JsonObject], list[str]]:
    """Let the controllers write the pods of workloads; return those that are stored, and what was refused."""
    options, refused = named(backend, options, CONTROLLERS), list[str]()

    class Writing(Admitting):
        def __call__(self, world: World, _owner: JsonObject, pod: JsonObject) -> JsonObject:
            for account in world.all(SERVICE_ACCOUNT):
                with suppress(AlreadyExists):
                    writing.create(backend, Target(SERVICE_ACCOUNT, SPACE), declared(SERVICE_ACCOUNT, account), options)
            kept = {k: v for k, v in pod["metadata"].items() if k not in {"uid", "generation", "creationTimestamp"}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": pod["spec"]}
            try:
                found = writing.create(backend, Target(POD, SPACE), body, options).object
            except Exception as error:
                refused.append(nameless(str(error), pod))
                raise
            return {**pod, "metadata": {**pod["metadata"], "labels": objects.labels(found)}, "spec": found["spec"]}

    asked = [Change(str(each["operation"]), each["object"]) for each in changes]
    simulated_rollout(asked, [], [], SPREAD, NOW, admitting=Writing(None))
    items = backend.cache.list(POD.key(SPACE, "")).items
    return [item.object for item in items], refused


def forms(pods: list[JsonObject]) -> list[Any]:
    """Return what is declared of pods, without the node they are bound to, and the made ends of names."""
    specs = [{k: v for k, v in objects.spec(pod).items() if k != "nodeName"} for pod in pods]
    return sorted(
        TOKEN.sub("kube-api-access", orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode()) for each in specs
    )


def deployment(replicas: int = 3, **fields: Any) -> JsonObject:
    made = workload(DEPLOYMENT, {"replicas": replicas, **fields})
    made["metadata"] = {"name": "web", "namespace": SPACE}
    del made["status"]
    return made


def of_kind(kind: Kind, **spec: Any) -> JsonObject:
    made = workload(kind, spec)
    made["metadata"] = {"name": "web", "namespace": SPACE}
    del made["status"]
    if kind == JOB:
        made["spec"].pop("selector")
        made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return made


def of_gateways(kind: str, name: str, **spec: Any) -> JsonObject:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def gateway() -> JsonObject:
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    made = of_gateways("Gateway", "edge", gatewayClassName="ours", listeners=[listener])
    return {**made, "metadata": {"name": "edge", "namespace": SPACE}}


OURS = (*definitions(), of_gateways("GatewayClass", "ours", controllerName=CONTROLLER))


def with_account() -> JsonObject:
    made = deployment()
    made["spec"]["template"]["spec"]["serviceAccountName"] = "app"
    return made


CASES: list[Any] = [
    pytest.param(deployment(), (), {}, 3, id="a token"),
    pytest.param(with_account(), (ACCOUNT,), {}, 3, id="an account's secrets"),
    pytest.param(deployment(), (RANGE,), {}, 3, id="defaults of limits"),
    pytest.param(deployment(), (QUOTA,), {}, 2, id="a quota of pods"),
    pytest.param(deployment(), (RANGE, MEMORY), {}, 2, id="a quota of what limits fill in"),
    pytest.param(deployment(), (MEMORY,), {}, 0, id="a quota of what is not said"),
    pytest.param(deployment(), (), RESTRICTED, 0, id="restricted"),
    pytest.param(with_account(), (), {}, 0, id="an account that is missing"),
    pytest.param(of_kind(REPLICA_SET, replicas=3), (QUOTA,), {}, 2, id="a ReplicaSet"),
    pytest.param(of_kind(STATEFUL_SET, replicas=3, serviceName="web"), (QUOTA,), {}, 2, id="a StatefulSet"),
    pytest.param(of_kind(DAEMON_SET), (QUOTA,), {}, 2, id="a DaemonSet"),
    pytest.param(gateway(), OURS, {}, 1, id="a Gateway"),
    pytest.param(gateway(), (*OURS, NO_PODS), {}, 0, id="a Gateway and a quota"),
    pytest.param(of_kind(JOB, parallelism=3, completions=3), (QUOTA,), {}, 2, id="a Job"),
]


@pytest.mark.parametrize(("obj", "around", "labels", "come"), CASES)
def test_a_plan_of_a_workload_is_what_comes_of_it(
    backend: Backend,
    options: Options,
    obj: JsonObject,
    around: tuple[JsonObject, ...],
    labels: dict[str, str],
    come: int,
):
    prepare(backend, options, *(each for each in around if each["kind"] in KINDS), labels=labels)
    status, reconciler = planned(backend, options, obj, *(each for each in around if each["kind"] not in KINDS))
    order = [step["action"] for step in status.get("order") or []]
    assert order == ["create"] * come
    assert reconciler.found is not None

    stored, refused = applied(backend, options, reconciler.questions[-1]["objects"])

    assert len(stored) == come
    assert forms([pod for pod in reconciler.found.pods.values() if pod]) == forms(stored)
    said = [text for text in status["messages"] if "would be refused" in text]
    assert bool(said) == bool(refused)
    assert all(text.partition("refused: ")[2] in refused for text in said)


def test_the_pods_that_are_refused_are_counted(backend: Backend, options: Options):
    prepare(backend, options, QUOTA)
    status, _ = planned(backend, options, deployment(5))
    why = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    (text,) = status["messages"]
    assert re.fullmatch(
        rf'Deployment {SPACE}/web: at least 3 Pods would be refused: pods "web-\w+-" is forbidden: {re.escape(why)}',
        text,
    )


def test_what_stands_in_the_plan_counts(backend: Backend, options: Options):
    prepare(backend, options)
    quota = {**QUOTA, "apiVersion": "v1", "metadata": {"name": "q", "namespace": SPACE}}
    status, _ = planned(backend, options, deployment(), quota)
    assert len(status["order"]) == 2
    named_later = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later", "labels": RESTRICTED}}
    moved = deployment()
    moved["metadata"]["namespace"] = "later"
    status, _ = planned(backend, options, moved, named_later)
    assert "order" not in status
    assert any("violates PodSecurity" in text for text in status["messages"])


def test_a_quota_without_room_for_one_more_stops_a_rollout():
    known, pods = running(2, SPREAD)  # none may go before another has come
    quota = {**QUOTA, "metadata": {"name": "q", "namespace": SPACE}}
    body = {"objects": [{"operation": "update", "object": changed(2, "web:2")}]}
    made = planned_state(parse_question({**body, "admits": True}), pods, SPREAD, NOW, known).made
    answers = {key: {"pod": pod} for key, pod in made.items()}
    asked = parse_question({**body, "admission": {"pods": answers, "quotas": [quota]}})
    found = planned_state(asked, pods, SPREAD, NOW, known)
    assert (found.pods, found.order) == ({}, ())
    assert "at least 1 Pod would be refused" in found.messages[0].text
    quota["spec"] = {"hard": {"pods": "3"}}
    asked = parse_question({**body, "admission": {"pods": answers, "quotas": [quota]}})
    found = planned_state(asked, pods, SPREAD, NOW, known)
    assert [step["action"] for step in found.order] == ["create", "delete", "create", "delete"]
    assert found.messages == ()


def without_labels(pod: JsonObject) -> JsonObject:
    return {"metadata": {**pod["metadata"], "labels": {}}, "spec": pod["spec"]}


def of_another_revision(pod: JsonObject) -> JsonObject:
    labels = {**pod["metadata"]["labels"], "controller-revision-hash": "other"}
    return {"metadata": {**pod["metadata"], "labels": labels}, "spec": pod["spec"]}


@pytest.mark.parametrize(
    ("obj", "changes"),
    [
        (deployment(), without_labels),
        (of_kind(REPLICA_SET, replicas=3), without_labels),
        (of_kind(STATEFUL_SET, replicas=3, serviceName="web"), of_another_revision),
        (of_kind(DAEMON_SET), of_another_revision),
    ],
)
def test_a_plan_ends_where_admission_has_controllers_make_pods_without_end(
    monkeypatch: pytest.MonkeyPatch, obj: JsonObject, changes: Callable[[JsonObject], JsonObject]
):
    monkeypatch.setattr(simulated_cluster, "_ROUNDS", 50)
    body: JsonObject = {"objects": [{"operation": "create", "object": obj}]}
    made = planned_state(parse_question({**body, "admits": True}), [], SPREAD, NOW).made
    answers = {key: {"pod": changes(pod)} for key, pod in made.items()}
    found = planned_state(parse_question({**body, "admission": {"pods": answers, "quotas": []}}), [], SPREAD, NOW)
    assert [step["action"] for step in found.order] == ["create"] * 3
    (message,) = (each.text for each in found.messages)
    why = "with what it changes, their controller would make Pods without end"
    assert message == f"{obj['kind']} {SPACE}/web: what admission makes of 3 Pods is not known: {why}"


def test_pods_are_admitted_in_the_name_of_the_controllers(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
):
    prepare(backend, options)
    seen = []

    def watching(_backend: Backend, _target: Target, obj: JsonObject, asked: Options) -> JsonObject:
        seen.append(asked)
        return obj

    monkeypatch.setattr(writing, "admitted", watching)
    pod = {"metadata": {"name": "a", "namespace": SPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    asker = named(backend, options, "somebody")
    planned_pods.PlannedPods(backend, asker)({"k": pod}, [], time.monotonic() + 60)
    assert [(each.dry_run, each.requester and each.requester.user.name) for each in seen] == [(True, CONTROLLERS)]
    assert seen[0].requester is not None
    assert seen[0].requester.user.groups == ("system:authenticated",)


def test_what_is_larger_than_reconcilers_take_is_told_to_be(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
):
    prepare(backend, options)
    obj = of_kind(STATEFUL_SET, replicas=3, serviceName="web")
    _, reconciler = planned(backend, options, obj)
    known = reconciler.questions[-1]["admission"]["pods"].values()
    monkeypatch.setattr(planned_pods, "_MOST_BYTES", sum(len(orjson.dumps(each)) for each in known) - 1)
    status, _ = planned(backend, options, obj)
    assert len(status["order"]) == 3
    (text,) = status["messages"]
    assert "what admission makes of 1 Pod is not known: what admission makes of a plan's Pods takes more than" in text


def test_who_has_no_time_left_is_told_what_is_known_without_webhooks_and_that_for_a_moment(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
):
    prepare(backend, options)
    pod = {"metadata": {"name": "a", "namespace": SPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    hanging = threading.Event()
    monkeypatch.setattr(planned_pods, "_admitted", lambda *_: hanging.wait(60))
    monkeypatch.setattr(planned_pods, "_WITHIN_S", 120.0)
    try:
        for moment_s, known in ((60.0, True), (0.0, False)):
            monkeypatch.setattr(planned_pods, "_MOMENT_S", moment_s)
            found = planned_pods.PlannedPods(backend, options)({"k": pod}, [], time.monotonic() - 1)["pods"]["k"]
            assert "took longer" in found["unknown"]
            assert ("pod" in found) == known
    finally:
        hanging.set()
