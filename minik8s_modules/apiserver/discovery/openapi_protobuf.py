"""OpenAPI v2 as protobuf: how our own kinds are merged, which is all that kubectl looks up there.

kubectl reads it for what version 3 does not say: to make a strategic merge patch, where version 3 does not say that the
kind takes one (``openapi_patches``), and to check an object of a kind that version 3 does not have (a List, or one that
is not served). It has Go types of Kubernetes' kinds and merges by those; a kind without a type here it takes as valid,
so that the server has the last word. It parses the document once, and each of version 3 for every object.

The tables are parts of gnostic's ``OpenAPIv2.proto``. Left out is what merging does not look at: descriptions, formats,
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules import __version__
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.discovery import openapi
from minik8s_modules.apiserver.verbs.patching import STRATEGIC_MERGE_PATCH
from minik8s_modules.module_utils.minik8s.rpc.protobuf import Field, Message, encode

MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_GVK = "x-kubernetes-group-version-kind"
_LOOKED_UP = ("x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy", _GVK)
_REFERENCE = re.compile(r"#/components/schemas/([^\"]+)")

_EXTENSION: Message = {"name": Field(1, "str"), "value": Field(2, {"yaml": Field(2, "str")})}
_SCHEMA: dict[str, Field] = {
    "_ref": Field(1, "str"),
    "type": Field(22, {"value": Field(1, "str")}),
    "vendor_extension": Field(31, _EXTENSION, many=True),
}
_NAMED: Message = {"name": Field(1, "str"), "value": Field(2, _SCHEMA)}
_SCHEMA |= {
    "additional_properties": Field(21, {"schema": Field(1, _SCHEMA)}),
    "items": Field(23, {"schema": Field(1, _SCHEMA)}),
    "properties": Field(25, {"additional_properties": Field(1, _NAMED, many=True)}),
}
_OPERATION: Message = {
    "consumes": Field(7, "str", many=True),
    "vendor_extension": Field(13, _EXTENSION, many=True),
}
_PATH: Message = {"name": Field(1, "str"), "value": Field(2, {"patch": Field(8, _OPERATION)})}
DOCUMENT: Message = {
    "swagger": Field(1, "str"),
    "info": Field(2, {"title": Field(1, "str"), "version": Field(2, "str")}),
    "paths": Field(8, {"path": Field(2, _PATH, many=True)}),
    "definitions": Field(9, {"additional_properties": Field(1, _NAMED, many=True)}),
}


@lru_cache(maxsize=1)
def document() -> bytes:
    """Return the document."""
    ours = [kind for kind in KINDS.all() if not kind.definition.startswith("io.k8s.") and "patch" in kind.verbs]
    types: JsonObject = {}
    for group, version in {(kind.group, kind.version) for kind in ours}:
        types |= orjson.loads(openapi.document(group, version)[0])["components"]["schemas"]
    names = _closed(types, [kind.definition for kind in ours])
    content = {
        "swagger": "2.0",
        "info": {"title": "minik8s", "version": __version__},
        "paths": {"path": [_path(kind) for kind in ours]},
        "definitions": {"additional_properties": [_named(name, types[name]) for name in names]},
    }
    return encode(DOCUMENT, content)


def _closed(types: Mapping[str, JsonObject], names: Iterable[str]) -> list[str]:
    """Return the names, and those of all types that these refer to."""
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = None
            todo += _REFERENCE.findall(orjson.dumps(types[name]).decode())
    return sorted(found)


def _path(kind: Kind) -> JsonObject:
    told = _extension(_GVK, {"group": kind.group, "version": kind.version, "kind": kind.kind})
    operation = {"consumes": [STRATEGIC_MERGE_PATCH], "vendor_extension": [told]}
    return {"name": openapi.places(kind)[1], "value": {"patch": operation}}


def _named(name: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "value": _schema(schema)}


def _schema(schema: JsonObject) -> JsonObject:
    found: JsonObject = {"vendor_extension": [_extension(name, schema[name]) for name in _LOOKED_UP if name in schema]}
    references = [each["$ref"] for each in (schema, *schema.get("allOf", [])) if "$ref" in each]
    if references:  # kubectl refuses the whole document for a type beside one
        return {**found, "_ref": references[0].replace("/components/schemas/", "/definitions/")}
    values, items = schema.get("additionalProperties"), schema.get("items")
    if schema.get("type") and (schema["type"] != "array" or items):  # an array must say of what
        found["type"] = {"value": schema["type"]}
    if isinstance(values, dict):
        found["additional_properties"] = {"schema": _schema(values)}
    if items:
        found["items"] = {"schema": _schema(items)}
    if schema.get("properties"):
        fields = schema["properties"].items()
        found["properties"] = {"additional_properties": [_named(name, inner) for name, inner in fields]}
    return found


def _extension(name: str, value: Any) -> JsonObject:
    return {"name": name, "value": {"yaml": orjson.dumps(value).decode()}}  # JSON is YAML, too
