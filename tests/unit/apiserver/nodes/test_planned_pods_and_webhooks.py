"""What webhooks make of the Pods of planned workloads, and what is planned where nobody knows that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson
import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import MUTATING_WEBHOOK_CONFIGURATION, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.nodes import planned_pods
from minik8s_modules.reconcile.planning.simulated_admission import Admitting
from tests.support.webhook import WebhookServer, patch
from tests.support.workloads import SPACE
from tests.unit.apiserver.nodes.test_planned_pods import RESTRICTED, Simulating, deployment, of_kind, planned, prepare
from tests.unit.reconcile.planning.test_simulated_rollouts import node

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
LOGGED = {"name": "LOG", "value": "all"}


@pytest.fixture
def hook(backend: Backend, tmp_path: Path) -> Iterator[WebhookServer]:
    with WebhookServer(tmp_path) as server:
        yield server
        backend.webhooks.close()


def ask(backend: Backend, hook: WebhookServer, url: str = "", **fields: Any) -> None:
    """Have a webhook look at each new Pod."""
    asked: JsonObject = {
        "name": "look.example.com",
        "clientConfig": {"url": url or hook.url("/look"), "caBundle": hook.ca_bundle},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 30,
        **fields,
    }
    kind = MUTATING_WEBHOOK_CONFIGURATION
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "look"}, "webhooks": [asked]}
    backend.settle(backend.store.create(kind.key("", "look"), orjson.dumps(body)))


def pods(reconciler: Simulating) -> list[JsonObject]:
    """Return the Pods that would come."""
    assert reconciler.found is not None
    return [pod for pod in reconciler.found.pods.values() if pod is not None]


def has_token(pod: JsonObject) -> bool:
    return any("kube-api-access" in each["name"] for each in objects.spec(pod).get("volumes") or [])


def test_a_webhook_is_shown_each_form_once_as_a_dry_run_of_the_controllers(
    backend: Backend, options: Options, hook: WebhookServer
):
    prepare(backend, options)
    ask(backend, hook)
    hook.answers["/look"] = lambda _: patch({"op": "add", "path": "/spec/containers/0/env", "value": [LOGGED]})
    status, reconciler = planned(backend, options, deployment(3))
    assert [pod["spec"]["containers"][0]["env"] for pod in pods(reconciler)] == [[LOGGED]] * 3
    assert status["messages"] == []
    (request,) = (each["request"] for each in hook.reviews)
    assert (request["dryRun"], request["userInfo"]["username"]) == (True, "system:kube-controller-manager")
    assert request["object"]["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"


@pytest.mark.parametrize(("foresees", "turns"), [(True, 2), (False, 4)])
def test_pods_that_admission_lets_find_a_node_lead_to_those_that_wait_for_them(
    backend: Backend,
    options: Options,
    hook: WebhookServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    foresees: bool,
    turns: int,
):
    """A StatefulSet's Pods are foreseen; without that, each turn comes to the next of them."""
    if not foresees:
        monkeypatch.setattr(Admitting, "_foresee", lambda *_: None)
    prepare(backend, options)
    ask(backend, hook)
    tolerated = {"key": "gpu", "operator": "Exists"}
    hook.answers["/look"] = lambda _: patch({"op": "add", "path": "/spec/tolerations/-", "value": tolerated})
    tainted = node("a")
    tainted["spec"] = {**tainted["spec"], "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    obj = of_kind(STATEFUL_SET, replicas=3, serviceName="web")
    status, reconciler = planned(backend, options, obj, nodes=[tainted])
    assert [each["pod"] for each in status["order"]] == [f"{SPACE}/web-{number}" for number in range(3)]
    assert status["messages"] == []
    assert all(tolerated in pod["spec"]["tolerations"] for pod in pods(reconciler))
    assert len(pods(reconciler)) == len(hook.reviews) == 3
    assert len(reconciler.questions) == turns


def test_a_webhook_that_denies_pods_is_quoted(backend: Backend, options: Options, hook: WebhookServer):
    prepare(backend, options)
    ask(backend, hook)
    hook.answers["/look"] = lambda _: {"allowed": False, "status": {"message": "not on a Sunday"}}
    status, _ = planned(backend, options, deployment(3))
    assert "order" not in status
    why = 'admission webhook "look.example.com" denied the request: not on a Sunday'
    assert status["messages"] == [f"Deployment {SPACE}/web: at least 3 Pods would be refused: {why}"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sideEffects": "Some"}, 'admission webhook "look.example.com" does not support dry run'),
        ({"url": "https://127.0.0.1:9/"}, 'Internal error occurred: failed calling webhook "look.example.com": '),
    ],
)
def test_pods_of_which_no_webhook_knows_yet_are_as_without_it(
    backend: Backend, options: Options, hook: WebhookServer, fields: dict[str, str], why: str
):
    prepare(backend, options)
    ask(backend, hook, **fields)
    status, reconciler = planned(backend, options, deployment(2))
    assert [has_token(pod) for pod in pods(reconciler)] == [True, True]
    (message,) = status["messages"]
    assert message.startswith(f"Deployment {SPACE}/web: what admission makes of 2 Pods is not known: {why}")
    assert hook.reviews == []


def test_what_a_webhook_may_make_valid_is_not_said_to_be_refused(
    backend: Backend, options: Options, hook: WebhookServer
):
    prepare(backend, options, labels=RESTRICTED)
    ask(backend, hook, sideEffects="Some")
    status, reconciler = planned(backend, options, deployment(1))
    assert [has_token(pod) for pod in pods(reconciler)] == [False]
    assert "is not known" in status["messages"][-1]


def test_a_plan_does_not_wait_for_a_webhook_that_hangs(
    backend: Backend, options: Options, hook: WebhookServer, monkeypatch: pytest.MonkeyPatch
):
    prepare(backend, options)
    ask(backend, hook)
    over = threading.Event()
    monkeypatch.setattr(planned_pods, "_WITHIN_S", 0.5)

    def hang(handler: BaseHTTPRequestHandler, _review: JsonObject) -> None:
        handler.close_connection = over.wait(60)

    hook.raw["/look"] = hang
    try:
        status, reconciler = planned(backend, options, deployment(2))
    finally:
        over.set()
        for thread in threading.enumerate():
            if thread.name == "planned-pods":
                thread.join(60)
    assert [has_token(pod) for pod in pods(reconciler)] == [True, True]
    (message,) = status["messages"]
    assert "what admission makes of 2 Pods is not known: admission of a plan's Pods took longer" in message
    assert len(hook.reviews) == 1
