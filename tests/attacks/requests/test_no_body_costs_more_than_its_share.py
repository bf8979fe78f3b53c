"""Anybody who may send a body may send one that is hard to read: small, and yet seconds or minutes of the server's CPU.

Tried: a number to the base 60 in YAML (each ``:1`` cost more than the one before), 150,000 fields that nobody knows
(more than 20 s), long lists merged by their keys, managedFields 900 levels deep (an answer of 500), copies of copies.
A body of 3 MB may cost half a second of CPU of a fast machine, and every refusal says why.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.load.cpu import fast_seconds, spent_by

SHARE_S = 0.5
MOST_BYTES = 3 * 1024 * 1024
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


def _nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"f:a": inner}
    return inner


def _managed(fields: dict[str, Any], manager: str = "m") -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": fields}


def _config_map(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "new"}, **fields}


def _environment(count: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "x", "env": [{"name": f"v{i}"} for i in range(count)]}]}


def _filled(head: str, unit: str, tail: str) -> bytes:
    return (head + unit * ((MOST_BYTES - len(head) - len(tail)) // len(unit)) + tail).encode()


CREATED: dict[str, tuple[str, str, Any]] = {  # plural, media type, body
    "a number to the base 60": ("configmaps", YAML, b"x: " + b"1:" * 120_000 + b"1"),
    "3 MB to the base 60": ("configmaps", YAML, _filled("x: ", "1:", "1")),
    "YAML directives": ("configmaps", YAML, b"".join(b"%%TAG !%x! t:\n" % i for i in range(17_000)) + b"---\na: b\n"),
    "unknown fields": ("configmaps", JSON, _config_map(**{f"x{i}": 1 for i in range(150_000)})),
    "unknown fields within the limit": ("configmaps", JSON, _config_map(**{f"x{i}": 1 for i in range(19_000)})),
    "fields given twice": ("configmaps", JSON, _filled('{"data": {', '"a": "", ', '"a": ""}}')),
    "many names given twice": (
        "configmaps",
        JSON,
        ('{"data": {' + ", ".join(f'"k{i}": "", "k{i}": ""' for i in range(19_000)) + "}}").encode(),
    ),
    "integers of 4,300 digits": ("configmaps", JSON, _filled('{"x": [', "9" * 4300 + ", ", "0]}")),
    "integers of 300 digits": ("configmaps", JSON, _filled('{"x": [', "9" * 300 + ", ", "0]}")),
    "empty containers": ("pods", JSON, {"metadata": {"name": "new"}, "spec": {"containers": [{}] * 9_000}}),
    "null containers": ("pods", JSON, {"metadata": {"name": "new"}, "spec": {"containers": [None] * 19_000}}),
    "3 MB of empty containers": ("pods", JSON, _filled('{"spec": {"containers": [', "{},", "{}]}}")),
    "owners without anything": ("configmaps", JSON, {"metadata": {"name": "new", "ownerReferences": [{}] * 19_000}}),
    "deep managedFields": (
        "configmaps",
        JSON,
        {"metadata": {"name": "new", "managedFields": [_managed(_nested(900))]}},
    ),
    "many managers": (
        "configmaps",
        JSON,
        {"metadata": {"name": "new", "managedFields": [_managed({f"f:{i}": {}}, f"m{i}") for i in range(2_500)]}},
    ),
}
KEPT = {f"x{i}": 1 for i in range(9_000)}
PATCHED: dict[str, tuple[str, str, Any]] = {
    "a long list merged by its keys": ("pods", STRATEGIC, {"spec": _environment(9_000)}),
    "kept keys": ("configmaps", STRATEGIC, {**KEPT, "$retainKeys": [*KEPT]}),
    "finalizers": ("configmaps", STRATEGIC, {"metadata": {"finalizers": [f"a/x{i}" for i in range(19_000)]}}),
    "merged unknown fields": ("configmaps", MERGE, {f"x{i}": 1 for i in range(19_000)}),
}  # fmt: skip


def _cost(namespace: Namespace, method: str, path: str, media: str, body: Any) -> float:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    assert len(data) <= MOST_BYTES
    server = namespace.server

    def spend() -> float:
        before = spent_by(server.pid)
        answer = server.request(method, f"{path}?dryRun=All", data, headers={"Content-Type": media})
        assert answer.code < 500, answer.body[:300]
        assert answer.code < 400 or answer.json["message"]
        return spent_by(server.pid) - before

    return fast_seconds(spend, enough=SHARE_S)


@pytest.mark.parametrize("case", CREATED)
def test_a_body_costs_less_than_half_a_second(namespace: Namespace, case: str):
    plural, media, body = CREATED[case]
    assert _cost(namespace, "POST", namespace.path(plural), media, body) <= SHARE_S


@pytest.mark.parametrize("case", PATCHED)
def test_a_patch_costs_less_than_half_a_second(namespace: Namespace, case: str):
    plural, media, body = PATCHED[case]
    spec = {"spec": {"containers": [{"name": "c", "image": "x"}]}} if plural == "pods" else {}
    assert namespace.server.request("POST", namespace.path(plural), {"metadata": {"name": "p"}, **spec}).code == 201
    assert _cost(namespace, "PATCH", namespace.path(plural, "p"), media, body) <= SHARE_S


def _deep(levels: int, media: str) -> bytes:
    if media == "application/json-patch+json":
        operations = [{"op": "add", "path": "/x", "value": {}}]
        operations += [{"op": "add", "path": "/x" + "/x" * n, "value": {}} for n in range(1, levels)]
        return json.dumps(operations).encode()
    return b'{"apiVersion": "v1", "kind": "ConfigMap", "x": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    "media", [JSON, YAML, MERGE, STRATEGIC, "application/json-patch+json", "application/apply-patch+yaml"]
)
def test_depth_is_refused_at_the_door_and_told(namespace: Namespace, media: str):
    namespace.create("a")
    writes = "patch" in media
    method, path = ("PATCH", namespace.path("configmaps", "a")) if writes else ("POST", namespace.path("configmaps"))
    query = "?fieldManager=m&dryRun=All"
    for levels in (129, 200, 255, 900):
        answer = namespace.server.request(method, path + query, _deep(levels, media), headers={"Content-Type": media})
        assert answer.code == 400, answer.body
        assert "levels deep; at most 128 are accepted" in answer.json["message"]


def _schema(levels: int) -> dict[str, Any]:
    """A CustomResourceDefinition's schema of an object with so many levels."""
    schema: dict[str, Any] = {"type": "string", "enum": ["a", "b"]}
    for number in range(levels):
        nested = {"type": "array", "items": schema} if number % 3 == 2 else schema
        schema = {
            "type": "object",
            "description": "d",
            "required": ["a"],
            "properties": {"a": nested, "b": {"type": "string"}},
        }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"metadata": {"name": "new"}, "spec": {"group": "example.test", "versions": [version]}}


@pytest.mark.parametrize("media", [JSON, YAML])
def test_schemas_of_custom_resources_are_not_too_deep(namespace: Namespace, media: str):
    body = json.dumps(_schema(45)).encode()  # 108 levels; the deepest in use have some 60
    answer = namespace.server.request(
        "POST", namespace.path("configmaps") + "?dryRun=All", body, headers={"Content-Type": media}
    )
    assert answer.code == 201, answer.body
