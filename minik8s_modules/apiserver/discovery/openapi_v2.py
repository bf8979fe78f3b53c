"""OpenAPI v2, one document for all groups: version 3's, told in the older words.

Programs that know no version 3 read this JSON form (Terraform's provider, ``swagger`` generators); kubectl reads the
protobuf form (``openapi_protobuf``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules import __version__
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.discovery import openapi
from minik8s_modules.store.encoding import exact

_METHODS = ("get", "put", "post", "delete", "patch")
_GVK = "x-kubernetes-group-version-kind"


@lru_cache(maxsize=1)
def document(kinds: Registry = KINDS) -> bytes:
    """Return /openapi/v2 as JSON."""
    paths: JsonObject = {}
    definitions: JsonObject = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            v3 = orjson.loads(openapi.document(group, version, kinds)[0])
            shared = v3["components"]
            paths.update({path: _path(served, shared) for path, served in v3["paths"].items()})
            for name, schema in shared["schemas"].items():
                _define(definitions, name, _older(schema))
    info = {"title": "minik8s", "version": __version__}
    return exact(orjson.dumps({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}))


def _define(definitions: JsonObject, name: str, schema: JsonObject) -> None:
    """Add a type; one that several groups have is of all their kinds."""
    known = definitions.setdefault(name, schema).get(_GVK, [])
    known += [each for each in schema.get(_GVK, []) if each not in known]


def _path(served: JsonObject, shared: JsonObject) -> JsonObject:
    found: JsonObject = {method: _operation(served[method], shared) for method in _METHODS if method in served}
    return {**found, "parameters": [_parameter(each, shared) for each in served["parameters"]]}


def _operation(operation: JsonObject, shared: JsonObject) -> JsonObject:
    parameters = [_parameter(each, shared) for each in operation["parameters"]]
    consumes = []
    if body := operation.get("requestBody"):
        told = _followed(body, shared)
        content, required = told["content"], {"required": True} if told.get("required") else {}
        consumes = list(content)
        schema = _older(next(iter(content.values()))["schema"])
        parameters.append({"name": "body", "in": "body", **required, "schema": schema})
    answers = {code: _answer(_followed(each, shared)) for code, each in operation["responses"].items()}
    kept = {field: value for field, value in operation.items() if field.startswith("x-")}
    return {
        **kept,
        **({"consumes": consumes} if consumes else {}),
        "produces": ["application/json"],
        "parameters": parameters,
        "responses": answers,
    }


def _answer(answer: JsonObject) -> JsonObject:
    content = answer["content"]["application/json"]
    return {"description": answer["description"], "schema": _older(content["schema"])}


def _parameter(parameter_or_reference: JsonObject, shared: JsonObject) -> JsonObject:
    parameter = _followed(parameter_or_reference, shared)
    return {**{field: value for field, value in parameter.items() if field != "schema"}, **parameter["schema"]}


def _followed(parameter: JsonObject, shared: JsonObject) -> JsonObject:
    """Return what a reference within the components leads to, or what stands here itself."""
    if "$ref" not in parameter:
        return parameter
    group, name = parameter["$ref"].split("/")[2:]
    found: JsonObject = shared[group][name]
    return found


def _older(schema: Any) -> Any:
    """Return a schema with references below definitions; one with more beside it stands in place of ``allOf``."""
    if isinstance(schema, list):
        return [_older(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _older(value) for key, value in schema.items()}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = found["$ref"].replace("#/components/schemas/", "#/definitions/")
    match found.get("allOf"):
        case [{"$ref": str(reference)}]:
            return {"$ref": reference, **{key: value for key, value in found.items() if key != "allOf"}}
    return found
