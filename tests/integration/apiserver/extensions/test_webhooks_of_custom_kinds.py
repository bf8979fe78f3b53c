"""Webhooks and policies see custom objects as they see built-in ones, whatever version somebody writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.integration.apiserver.extensions.test_custom_kinds import DEFINITIONS, definition, holds
from tests.integration.apiserver.extensions.test_webhooks import GROUP, Hooks, deny
from tests.support.waiting import until
from tests.support.webhook import WebhookServer, patch


@pytest.fixture
def hooks(namespace: Namespace, tmp_path: Path) -> Iterator[Hooks]:
    """Webhooks for the namespace."""
    with WebhookServer(tmp_path) as server:
        found = Hooks(namespace, server)
        yield found
        found.remove()


@pytest.fixture
def widgets(namespace: Namespace) -> Iterator[str]:
    """The group of widgets, which are served as v1 and v2."""
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    body = definition(group)
    first = body["spec"]["versions"][0]
    body["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    assert namespace.server.request("POST", DEFINITIONS, body).code == 201
    path = f"{DEFINITIONS}/widgets.{group}"
    until(lambda: holds(namespace.server.request("GET", path), "Established"))
    yield group
    assert namespace.server.request("DELETE", path).code == 200


def make(namespace: Namespace, group: str, version: str, name: str, size: int) -> tuple[int, dict[str, object]]:
    path = f"/apis/{group}/{version}/namespaces/{namespace.name}/widgets"
    kind = {"apiVersion": f"{group}/{version}", "kind": "Widget"}
    answer = namespace.server.request("POST", path, {**kind, "metadata": {"name": name}, "spec": {"size": size}})
    return answer.code, answer.json


def test_a_webhook_sees_every_version_in_the_one_it_names(hooks: Hooks, widgets: str) -> None:
    rule = {"operations": ["*"], "apiGroups": [widgets], "apiVersions": ["v2"], "resources": ["widgets"]}
    hooks.mutating("/grow", lambda _: patch({"op": "replace", "path": "/spec/size", "value": 7}), rules=[rule])
    for version in ("v1", "v2"):
        code, made = make(hooks.namespace, widgets, version, version, 1)
        assert (code, made["apiVersion"], made["spec"]) == (
            201, f"{widgets}/{version}", {"size": 7, "color": "red"},
        )  # fmt: skip
    first, second = (review["request"] for review in hooks.server.reviews)
    assert (first["kind"]["version"], first["requestKind"]["version"]) == ("v2", "v1")
    assert first["object"]["apiVersion"] == second["object"]["apiVersion"] == f"{widgets}/v2"


def test_what_a_webhook_makes_of_a_custom_object_is_validated(hooks: Hooks, widgets: str) -> None:
    rules = [{"operations": ["*"], "apiGroups": [widgets], "apiVersions": ["*"], "resources": ["*"]}]
    hooks.mutating("/shrink", lambda _: patch({"op": "replace", "path": "/spec/size", "value": 0}), rules=rules)
    code, answer = make(hooks.namespace, widgets, "v1", "a", 1)
    assert code == 422
    assert "spec.size" in str(answer["message"])
    hooks.remove()
    hooks.validating("/deny", deny, rules=rules)
    assert "denied the request" in str(make(hooks.namespace, widgets, "v1", "a", 1)[1]["message"])


def test_params_may_be_custom_objects(namespace: Namespace, widgets: str) -> None:
    server, name = namespace.server, namespace.name
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    policy = {
        "paramKind": {"apiVersion": f"{widgets}/v2", "kind": "Widget"},
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "size(object.metadata.name) <= params.spec.size", "message": "too long"}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    limits = {"namespaceSelector": selector}
    ref = {"name": "limit", "parameterNotFoundAction": "Deny"}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": limits, "paramRef": ref}
    paths = [f"{GROUP}/validatingadmission{plural}" for plural in ("policies", "policybindings")]
    assert make(namespace, widgets, "v1", "limit", 3)[0] == 201
    for path, spec in zip(paths, (policy, binding), strict=True):
        assert server.request("POST", path, {"metadata": {"name": name}, "spec": spec}).code == 201
    try:
        assert namespace.create("abcd").json["message"].endswith("denied request: too long")
        assert namespace.create("abc").code == 201
    finally:
        for path in paths:
            server.request("DELETE", f"{path}/{name}")
