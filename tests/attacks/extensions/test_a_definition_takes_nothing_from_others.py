"""A CustomResourceDefinition can hide no built-in kind, leave no place in the store, stop no server, give no rights."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess
from tests.support.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPROVED = {"api-approved.kubernetes.io": "unapproved, an attack"}


def definition(
    group: str, plural: str, kind: str, schema: dict[str, Any] | None = None, **names: Any
) -> dict[str, Any]:
    """A definition of one version."""
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or {"type": "object"}},
    }  # fmt: skip
    return {
        "metadata": {"name": f"{plural}.{group}", "annotations": APPROVED},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind, **names},
            "versions": [version],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plural", "kind", "names"),
    [
        ("ingresses", "Mine", {}),
        ("mines", "Ingress", {}),
        ("mines", "Mine", {"shortNames": ["netpol"]}),
        ("mines", "Mine", {"singular": "ingressclass"}),
    ],
)
def test_names_of_what_is_built_in_are_not_accepted(server: ApiServerProcess, plural, kind, names):
    group = "networking.k8s.io"
    path = f"{DEFINITIONS}/{plural}.{group}"
    assert server.request("POST", DEFINITIONS, definition(group, plural, kind, **names)).code == 201
    try:
        until(lambda: server.request("GET", path).json["status"].get("conditions"))
        found = {each["type"]: each["status"] for each in server.request("GET", path).json["status"]["conditions"]}
        assert (found["NamesAccepted"], found["Established"]) == ("False", "False")
        listed = server.request("GET", f"/apis/{group}/v1/ingresses")
        assert (listed.code, listed.json["kind"]) == (200, "IngressList")
        assert server.request("GET", f"/apis/{group}/v1/mines").code == 404
    finally:
        server.request("DELETE", path)
        until(lambda: server.request("GET", path).code == 404)


def test_a_definition_without_its_name_ends_and_takes_no_built_in_object_along(
    server: ApiServerProcess, namespace: Namespace
):
    group, path = "networking.k8s.io", f"{DEFINITIONS}/ingresses.networking.k8s.io"
    ingresses = f"/apis/{group}/v1/namespaces/{namespace.name}/ingresses"
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    ingress = {"metadata": {"name": "stays"}, "spec": {"defaultBackend": backend}}
    assert server.request("POST", ingresses, ingress).code == 201
    assert server.request("POST", DEFINITIONS, definition(group, "ingresses", "Mine")).code == 201
    until(lambda: server.request("GET", path).json["status"].get("conditions"))
    server.request("DELETE", path)
    until(lambda: server.request("GET", path).code == 404)
    assert "deletionTimestamp" not in server.request("GET", f"{ingresses}/stays").json["metadata"]


@pytest.mark.parametrize(
    ("group", "plural"),
    [
        ("example.com", "../core/secrets"), ("example.com", "a/b"), ("example.com", ".."), ("example.com", "a\0b"),
        ("../core", "secrets"), ("core", "secrets"), ("example.com/x", "secrets"), ("", "secrets"),
    ],
)  # fmt: skip
def test_names_that_would_lead_elsewhere_in_the_store_are_refused(server: ApiServerProcess, group, plural):
    answer = server.request("POST", DEFINITIONS, definition(group, plural, "Mine"))
    assert answer.code == 422
    assert {"spec.group", "spec.names.plural"} & {each["field"] for each in answer.json["details"]["causes"]}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": schema}}


def _branching() -> dict[str, Any]:
    wide: dict[str, Any] = {"minLength": 1}
    for _ in range(6):
        wide = {"anyOf": [wide] * 8}
    return {"type": "object", "properties": {"a": {"type": "string", **wide}}}


@pytest.mark.parametrize("schema", [_nested(100), _branching()], ids=["deep", "branching"])
def test_a_schema_that_explodes_is_refused(server: ApiServerProcess, schema):
    answer = server.request("POST", DEFINITIONS, definition("example.com", "mines", "Mine", schema))
    assert answer.code in {400, 413, 422}
    assert server.request("GET", "/livez").code == 200


def test_text_that_looks_like_a_reference_breaks_no_document(server: ApiServerProcess):
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    text = "#/components/schemas/none #/$defs/none"
    field = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "default": {"$ref": "x"},
        "description": text,
    }
    schema = {"type": "object", "description": text, "properties": {"$ref": {"type": "string"}, "a": field}}
    path = f"{DEFINITIONS}/mines.{group}"
    assert server.request("POST", DEFINITIONS, definition(group, "mines", "Mine", schema)).code == 201
    try:
        until(lambda: server.request("GET", f"/apis/{group}/v1").code == 200)
        assert server.request("GET", f"/openapi/v3/apis/{group}/v1").code == 200
        assert server.request("GET", "/openapi/v3").code == 200
        assert server.request("GET", "/openapi/v2").code == 200
    finally:
        server.request("DELETE", path)


def test_a_pattern_holds_no_server(server: ApiServerProcess, namespace: Namespace):
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|a?)+$"}}}
    path = f"/apis/{group}/v1/namespaces/{namespace.name}/mines"
    assert server.request("POST", DEFINITIONS, definition(group, "mines", "Mine", schema)).code == 201
    try:
        until(lambda: server.request("GET", path).code == 200)
        answer = server.request("POST", path, {"metadata": {"name": "a"}, "a": "a" * 100_000 + "!"})
        assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "a")
    finally:
        server.request("DELETE", f"{DEFINITIONS}/mines.{group}")


def test_rights_on_custom_objects_are_given_by_roles_alone(server: ApiServerProcess, namespace: Namespace):
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    path = f"/apis/{group}/v1/namespaces/{namespace.name}/mines"
    jane = server.identity(f"jane-{group}")
    assert server.request("POST", DEFINITIONS, definition(group, "mines", "Mine")).code == 201
    try:
        until(lambda: server.request("GET", path).code == 200)
        assert server.request("POST", path, {"metadata": {"name": "a"}}).code == 201
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace.name}"
        role = {
            "metadata": {"name": "mines"},
            "rules": [{"apiGroups": [group], "resources": ["mines"], "verbs": ["get"], "resourceNames": ["a"]}],
        }
        assert server.request("GET", f"{path}/a", client=jane).code == 403
        server.request("POST", f"{rbac}/roles", role)
        binding = {
            "metadata": {"name": "mines"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mines"},
            "subjects": [{"kind": "User", "name": f"jane-{group}"}],
        }
        server.request("POST", f"{rbac}/rolebindings", binding)
        until(lambda: server.request("GET", f"{path}/a", client=jane).code == 200)
        assert server.request("GET", path, client=jane).code == 403
        assert server.request("DELETE", f"{path}/a", client=jane).code == 403
        body = json.dumps({"metadata": {"labels": {"a": "b"}}}).encode()
        merge = {"Content-Type": "application/merge-patch+json"}
        assert server.request("PATCH", f"{path}/a", body, client=jane, headers=merge).code == 403
        assert server.request("POST", DEFINITIONS, definition(group, "others", "Other"), client=jane).code == 403
    finally:
        server.request("DELETE", f"{DEFINITIONS}/mines.{group}")
