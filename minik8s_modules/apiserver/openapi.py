"""OpenAPI v3, one document per group and version, from Kubernetes' own definitions.

kubectl reads it for ``explain``, ``apply``, ``create``, ``edit`` and ``diff``: it looks for the operation of
a kind by ``x-kubernetes-group-version-kind``, and sends ``fieldValidation`` only where the operation names
that parameter. The documents are named by their content (``?hash=``), so clients keep them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules import __version__
from minik8s_modules.api import schema
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import KINDS, SUBRESOURCE_VERBS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.patching import SUPPORTED

_EXTRA = ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.Status")
_WRITE = ("dryRun", "fieldManager", "fieldValidation", "pretty")
_LIST = ("continue", "fieldSelector", "labelSelector", "limit")
_WHOLE = frozenset({"status", "approval"})  # subresources whose bodies are the object itself


def index() -> JsonObject:
    """Return /openapi/v3: the documents' addresses."""
    paths = {}
    for group, versions in KINDS.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            _, digest = document(group, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def version_2() -> JsonObject:
    """Return /openapi/v2: a document without definitions.

    kubectl asks for it when v3 does not have a kind (a List, or one that is not served) and takes a kind
    without definition as valid, so that the server has the last word: about each item of the List, or that
    the kind is unknown.
    """
    return {"swagger": "2.0", "info": {"title": "minik8s", "version": __version__}, "paths": {}, "definitions": {}}


def version_2_protobuf() -> bytes:
    """Return ``version_2`` as gnostic's protobuf, the one form kubectl reads (fields 1 swagger, 2 info, 8 paths)."""
    info = _text(1, "minik8s") + _text(2, __version__)
    return _text(1, "2.0") + bytes((2 << 3 | 2, len(info))) + info + bytes((8 << 3 | 2, 0))


def _text(number: int, text: str) -> bytes:
    return bytes((number << 3 | 2, len(text))) + text.encode()


@lru_cache(maxsize=32)
def document(group: str, version: str) -> tuple[bytes, str]:
    """Return the document of a group and version, and the digest of it. Raises NotFound."""
    kinds = KINDS.in_group(group, version)
    if not kinds:
        raise NotFound.path()
    paths: JsonObject = {}
    for kind in kinds:
        paths.update(_paths(kind))
    names = [*(kind.definition for kind in kinds), *_EXTRA]
    schemas = {name: _convert(found) for name, found in sorted(schema.closure(names).items())}
    body = orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": {"title": "minik8s", "version": __version__},
            "paths": paths,
            "components": {"schemas": schemas, "responses": _responses(names)},
        }
    )
    return body, hashlib.sha512(body).hexdigest()[:64].upper()


def _paths(kind: Kind) -> JsonObject:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection, item = f"{root}{scope}/{kind.plural}", f"{root}{scope}/{kind.plural}/{{name}}"
    content = {"application/json": {"schema": _reference(kind)}}
    patches = {media: {"schema": {"type": "object"}} for media in SUPPORTED}
    operations = {
        "list": (collection, "get", _LIST, None),
        "create": (collection, "post", _WRITE, content),
        "deletecollection": (collection, "delete", ("dryRun",), None),
        "get": (item, "get", (), None),
        "update": (item, "put", _WRITE, content),
        "patch": (item, "patch", (*_WRITE, "force"), patches),
        "delete": (item, "delete", ("dryRun",), None),
    }
    found: JsonObject = {}
    for verb, (path, method, parameters, body) in operations.items():
        if verb in kind.verbs:
            found.setdefault(path, {})[method] = _operation(kind, verb, parameters, body)
        for sub in _WHOLE.intersection(kind.subresources) if path == item else ():
            if verb in SUBRESOURCE_VERBS[sub]:
                found.setdefault(f"{item}/{sub}", {})[method] = _operation(kind, verb, parameters, body)
    for path, served in found.items():
        served["parameters"] = [_path_parameter(name) for name in ("namespace", "name") if f"{{{name}}}" in path]
    return found


def _path_parameter(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _responses(names: Iterable[str]) -> JsonObject:
    """Return the answers that operations refer to, one a type.

    kubectl parses a document anew for every object of ``apply -f``; answers written out in each operation made 18 % of
    that.
    """
    content = {name: {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}} for name in names}
    return {name: {"description": "OK", "content": shown} for name, shown in content.items()}


_ACTIONS = {"create": "post", "update": "put"}


def _operation(kind: Kind, verb: str, parameters: tuple[str, ...], body: JsonObject | None) -> JsonObject:
    operation: JsonObject = {
        "responses": {"200": {"$ref": f"#/components/responses/{kind.definition}"}},
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    if body is not None:
        operation["requestBody"] = {"content": body}
    return operation


def _reference(kind: Kind) -> JsonObject:
    return {"$ref": f"#/components/schemas/{kind.definition}"}


def _convert(found: Any) -> Any:
    """Return JSON schema as OpenAPI 3.0 has it: references below components, one type, no draft keywords."""
    if isinstance(found, list):
        return [_convert(item) for item in found]
    if not isinstance(found, dict):
        return found
    if "$ref" in found:
        reference = {"$ref": f"#/components/schemas/{found['$ref'].rsplit('/', 1)[1]}"}
        others = {key: _convert(value) for key, value in found.items() if key != "$ref"}
        return {**others, "allOf": [reference]} if others else reference
    converted = {}
    for key, value in found.items():
        if key in {"$schema", "$id"} or (key == "additionalProperties" and value is False):
            continue
        if key == "type" and isinstance(value, list):
            converted[key] = next(kind for kind in value if kind != "null")
        elif key == "properties":
            converted[key] = {name: _convert(inner) for name, inner in value.items()}
        else:
            converted[key] = _convert(value)
    return converted
