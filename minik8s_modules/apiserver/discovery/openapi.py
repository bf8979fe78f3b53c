"""OpenAPI v3, one document per group and version, from Kubernetes' own definitions.

kubectl reads it for ``explain``, ``apply``, ``create``, ``edit`` and ``diff``: it looks for the operation of
a kind by ``x-kubernetes-group-version-kind``, and sends ``fieldValidation`` only where the operation names
that parameter. The documents are named by their content (``?hash=``), so clients keep them.

Programs parse the documents whole, and kubectl many times (``openapi_patches``), so what operations share (parameters,
bodies, answers) stands once and is referred to. Written out is what kubectl looks for in a PATCH: ``dryRun``,
``fieldValidation``, and that a strategic merge patch is taken, so that lists of our own kinds, of which it has no Go
types, are merged, too. Left out are structures that validation always refuses (volumes of clouds, Windows options):
nobody can write them here, and they were a tenth of the largest document.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules import __version__
from minik8s_modules.api.custom.kinds import OBJECT_META
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import SUBRESOURCE_VERBS, Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import coverage, structural
from minik8s_modules.apiserver.verbs.patching import STRATEGIC_MERGE_PATCH, SUPPORTED
from minik8s_modules.store.encoding import exact

_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_EXTRA = (_DELETE_OPTIONS, "io.k8s.apimachinery.pkg.apis.meta.v1.Status")
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_CHOOSE = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_TYPES = {"gracePeriodSeconds": "integer", "limit": "integer", "force": "boolean", "orphanDependents": "boolean"}
_TYPE = re.compile(r"#/components/schemas/([^\"]+)")
_PATH = ("namespace", "name")
_LOOKED_FOR = frozenset({"dryRun", "fieldValidation"})
_PATCH = "patch"  # the one body that is no type's
_PATCHES = {media: {"schema": {"type": "object"}} for media in SUPPORTED}
_CUSTOM_PATCHES = {media: {"schema": {"type": "object"}} for media in SUPPORTED if media != STRATEGIC_MERGE_PATCH}
_GVK = "x-kubernetes-group-version-kind"
_WHOLE = frozenset({"status", "approval"})  # subresources whose bodies are the object itself


def index(kinds: Registry = KINDS) -> JsonObject:
    """Return /openapi/v3: the documents' addresses."""
    paths = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            _, digest = document(group, version, kinds)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(group: str, version: str, served: Registry = KINDS) -> tuple[bytes, str]:
    """Return the document of a group and version, and the digest of it. Raises NotFound."""
    kinds = served.in_group(group, version)
    if not kinds:
        raise NotFound.path()
    return of_kinds(kinds)


@lru_cache(maxsize=512)
def of_kinds(kinds: tuple[Kind, ...]) -> tuple[bytes, str]:
    """Return the document of the kinds of one group and version; made again only when one of them changes."""
    group, version = kinds[0].group, kinds[0].version
    paths: JsonObject = {}
    for kind in kinds:
        paths.update(_paths(kind))
    names = [*(kind.definition for kind in kinds), *_EXTRA]
    schemas = dict(sorted(_types(names, {kind.definition: kind for kind in kinds if kind.custom}).items()))
    for name in _EXTRA:
        schemas[name] = _of_version(schemas[name], group, version)
    return named({"paths": paths, "components": _shared(names, schemas, kinds)})


def named(content: JsonObject) -> tuple[bytes, str]:
    """Return a document as bytes, and the digest of it."""
    body = exact(orjson.dumps({"openapi": "3.0.0", "info": {"title": "minik8s", "version": __version__}, **content}))
    return body, hashlib.sha512(body).hexdigest()[:64].upper()


def _types(names: Iterable[str], custom: Mapping[str, Kind]) -> JsonObject:
    """Return the named types and all they refer to, as they are shown; ``custom`` are declared by their kinds."""
    roots = frozenset(names)
    found: JsonObject = {}
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in custom:
            found[name] = _custom(custom[name])
            todo.append(OBJECT_META)  # a description may look like a reference: nothing is looked for in them
        elif name not in found:
            held = _without_refused(name) if name not in roots else structural.definition(name)
            found[name] = _convert(_without_values(held))
            todo += _TYPE.findall(orjson.dumps(found[name]).decode())
    return found


def _custom(kind: Kind) -> JsonObject:
    schema = kind.custom.schema() if kind.custom else {}
    return {**_convert(schema), _GVK: [{"group": kind.group, "version": kind.version, "kind": kind.kind}]}


def _without_refused(name: str) -> JsonObject:
    """Return a type without the structures that are always refused; what holds a plain value stays and is explained."""
    found = structural.definition(name)
    refused = {field for field, rule in coverage.rules_of(name).items() if rule.treatment == "refused"}
    left = {
        field: held for field, held in found.get("properties", {}).items() if field not in refused or "$ref" not in held
    }
    return {**found, "properties": left} if len(left) < len(found.get("properties", {})) else found


def _without_values(found: JsonObject) -> JsonObject:
    """Return a type without the ``enum`` of apiVersion and kind, which Kubernetes' documents do not have."""
    properties = found.get("properties", {})
    plain = {
        field: {key: value for key, value in properties[field].items() if key != "enum"}
        for field in ("apiVersion", "kind")
        if field in properties
    }
    return {**found, "properties": {**properties, **plain}} if plain else found


def places(kind: Kind) -> tuple[str, str]:
    """Return the paths of a kind's objects: of all, and of one."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{root}{scope}/{kind.plural}", f"{root}{scope}/{kind.plural}/{{name}}"


def _paths(kind: Kind) -> JsonObject:
    collection, item = places(kind)
    operations = {
        "list": (collection, "get", _CHOOSE, ""),
        "create": (collection, "post", _WRITE, kind.definition),
        "deletecollection": (collection, "delete", (*_CHOOSE, *_DELETE), _DELETE_OPTIONS),
        "get": (item, "get", (), ""),
        "update": (item, "put", _WRITE, kind.definition),
        "patch": (item, "patch", (*_WRITE, "force"), _PATCH),
        "delete": (item, "delete", _DELETE, _DELETE_OPTIONS),
    }
    found: JsonObject = {}
    for verb, (path, method, parameters, body) in operations.items():
        if verb in kind.verbs:
            found.setdefault(path, {})[method] = _operation(kind, verb, parameters, body)
        for sub in _WHOLE.intersection(kind.subresources) if path == item else ():
            if verb in SUBRESOURCE_VERBS[sub]:
                found.setdefault(f"{item}/{sub}", {})[method] = _operation(kind, verb, parameters, body)
    for path, served in found.items():
        served["parameters"] = [_refer("parameters", name) for name in _PATH if f"{{{name}}}" in path]
    return found


def _shared(names: Iterable[str], schemas: JsonObject, kinds: Iterable[Kind]) -> JsonObject:
    """Return the components: the types, and what operations refer to."""
    content = {name: {"application/json": {"schema": _refer("schemas", name)}} for name in names}
    bodies: JsonObject = {kind.definition: {"content": content[kind.definition], "required": True} for kind in kinds}
    bodies[_DELETE_OPTIONS] = {"content": content[_DELETE_OPTIONS]}
    return {
        "schemas": schemas,
        "responses": {name: {"description": "OK", "content": shown} for name, shown in content.items()},
        "requestBodies": bodies,
        "parameters": {name: parameter(name) for name in (*_PATH, *_WRITE, *_CHOOSE, *_DELETE, "force")},
    }


def parameter(name: str) -> JsonObject:
    """Return a parameter of an operation, in its path or its query."""
    place = {"in": "path", "required": True} if name in _PATH else {"in": "query"}
    return {"name": name, **place, "schema": {"type": _TYPES.get(name, "string")}}


def _refer(group: str, name: str) -> JsonObject:
    return {"$ref": f"#/components/{group}/{name}"}


def _of_version(found: JsonObject, group: str, version: str) -> JsonObject:
    """Return a type that every group has, as this one's: Kubernetes' list of all the others tells nothing here."""
    return {**found, _GVK: [each for each in found[_GVK] if (each["group"], each["version"]) == (group, version)]}


_ACTIONS = {"create": "post", "update": "put"}


def _operation(kind: Kind, verb: str, parameters: tuple[str, ...], body: str) -> JsonObject:
    written_out = _LOOKED_FOR if verb == "patch" else frozenset()
    operation: JsonObject = {
        "responses": {"200": _refer("responses", kind.definition)},
        "parameters": [parameter(name) if name in written_out else _refer("parameters", name) for name in parameters],
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        _GVK: {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    if body == _PATCH:
        operation["requestBody"] = {"content": _CUSTOM_PATCHES if kind.custom else _PATCHES, "required": True}
    elif body:
        operation["requestBody"] = _refer("requestBodies", body)
    return operation


_DATA = frozenset({"default", "enum", "example"})  # not schemas, whatever they look like


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
        if key in _DATA:
            converted[key] = value
            continue
        if key == "type" and isinstance(value, list):
            converted[key] = next(kind for kind in value if kind != "null")
        elif key == "properties":
            converted[key] = {name: _convert(inner) for name, inner in value.items()}
        else:
            converted[key] = _convert(value)
    return converted
