"""What of an extension's OpenAPI v2 document becomes part of the server's."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.apiserver.aggregation.swagger import Part, merged, part_of

REMOTE = Remote("g.example.com", "v1", (1, 1), "ns", "api", 443, "", blind=False, available=True, uid="u")
OWN: dict[str, Any] = {
    "swagger": "2.0",
    "paths": {"/api/v1/pods": {"get": {}}},
    "definitions": {"Meta": {"type": "object"}, "Same": {"type": "string"}},
}


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def part(paths: Any, definitions: Any) -> Part:
    return part_of(200, orjson.dumps({"swagger": "2.0", "paths": paths, "definitions": definitions}), REMOTE)


def test_only_its_own_paths_count_with_what_they_need() -> None:
    definitions = {"A": {"items": [reference("B"), reference("none")]}, "B": reference("A"), "C": {}, "D": 7}
    found = part(
        {
            "/apis/g.example.com/v1": {"get": reference("A")},
            "/apis/g.example.com/v1/things": {"get": reference("D")},
            "/apis/g.example.com/v12/things": {"get": reference("C")},
            "/apis/other/v1/things": {"get": reference("C")},
            "/apis/g.example.com/v1/odd": "text",
        },
        definitions,
    )
    assert sorted(found.paths) == ["/apis/g.example.com/v1", "/apis/g.example.com/v1/things"]
    assert sorted(found.definitions) == ["A", "B"]


def test_a_definition_describes_no_kind_of_another_group() -> None:
    own, other = ({"group": group, "version": "v1", "kind": "K"} for group in ("g.example.com", "apps"))
    mark = "x-kubernetes-group-version-kind"
    paths = {"/apis/g.example.com/v1": {"get": [reference("A"), reference("B"), reference("C")]}}
    found = part(paths, {"A": {mark: [own, other]}, "B": {mark: [other], "type": "object"}, "C": {mark: "odd"}})
    assert found.definitions == {"A": {mark: [own]}, "B": {"type": "object"}, "C": {}}


def test_what_differs_gets_a_name_of_its_own() -> None:
    paths = {"/apis/g.example.com/v1": {"get": {"a": reference("Meta"), "b": reference("Same")}}}
    one = Part(paths, {"Meta": {"type": "string"}, "Same": {"type": "string"}, "New": {"items": reference("Meta")}})
    other = Part({"/x": reference("Meta")}, {"Meta": {"type": "number"}, "Meta_v2": {"type": "null"}})
    document = orjson.loads(merged(orjson.dumps(OWN), [one, other]))
    assert document["definitions"] == {
        "Meta": {"type": "object"}, "Same": {"type": "string"}, "Meta_v2": {"type": "string"},
        "New": {"items": reference("Meta_v2")}, "Meta_v3": {"type": "number"}, "Meta_v2_v2": {"type": "null"},
    }  # fmt: skip
    assert document["paths"]["/apis/g.example.com/v1"]["get"] == {"a": reference("Meta_v2"), "b": reference("Same")}
    assert document["paths"]["/x"] == reference("Meta_v3")
    assert document["paths"]["/api/v1/pods"] == {"get": {}}


def test_a_definition_of_the_servers_refers_to_the_servers_whatever_an_extension_repeats() -> None:
    own = {**OWN, "definitions": {"Pod": {"items": reference("Spec")}, "Spec": {"type": "object"}}}
    part = Part({"/x": reference("Pod")}, {"Pod": {"items": reference("Spec")}, "Spec": {"type": "null"}})
    document = orjson.loads(merged(orjson.dumps(own), [part]))
    assert document["definitions"] == {**own["definitions"], "Spec_v2": {"type": "null"}}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"swagger": "3.0"}', b'{"swagger": "2.0"}', b'{"swagger":"2.0","paths":[],"definitions":{}}']
)
def test_what_is_no_such_document_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"document|JSON|input"):
        part_of(200, body, REMOTE)
    with pytest.raises(ValueError, match="bad status 404"):
        part_of(404, b"{}", REMOTE)


def test_what_is_nested_too_deeply_for_an_answer_is_refused() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    body = b'{"swagger":"2.0","definitions":{},"paths":{"/apis/g.example.com/v1":{"get":' + deep + b"}}}"
    with pytest.raises(ValueError, match="cannot be passed on"):
        part_of(200, body, REMOTE)
