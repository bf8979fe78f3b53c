"""OpenAPI v3 of nothing but PATCH: what kubectl looks up when it writes many objects.

``kubectl apply -f`` parses the document of a group again for every object (cli-runtime, query_param_verifier_v3.go;
kubectl, patcher.go): 20 ms of kubectl's CPU for the whole of ``v1``, 2 ms for this one. Commands that do so are known
by the header ``Kubectl-Command``, and the index names them these documents; an address has the same document for
everyone, so caches need not know. Without the header everything is told.

A kind's operation says that it takes ``dryRun`` and ``fieldValidation``. kubectl has Go types of Kubernetes' kinds and
merges by those; our own kinds it merges by the document, so of their types stands here how lists are merged, and that
there are structures at all. Scalars, descriptions and the members of lists that are exchanged as a whole do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.discovery import openapi
from minik8s_modules.apiserver.verbs.patching import STRATEGIC_MERGE_PATCH

COMMANDS = frozenset({"kubectl apply", "kubectl create", "kubectl diff", "kubectl replace"})
_LOOKED_FOR = ("dryRun", "fieldValidation")
_KEY, _STRATEGY = "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy"
_GVK = "x-kubernetes-group-version-kind"
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_STRATEGIC = {"requestBody": {"content": {STRATEGIC_MERGE_PATCH: {"schema": {"type": "object"}}}}}


def index(kinds: Registry = KINDS) -> JsonObject:
    """Return /openapi/v3 for the ``COMMANDS``: the addresses of these documents."""
    named = {}
    for path, entry in openapi.index(kinds)["paths"].items():
        group, version = path.split("/")[1:] if path.startswith("apis/") else ("", path.split("/")[1])
        address = f"/openapi/v3/{path}?hash={document(group, version, kinds)[1]}&only=patch"
        named[path] = {**entry, "serverRelativeURL": address}
    return {"paths": named}


def document(group: str, version: str, served: Registry = KINDS) -> tuple[bytes, str]:
    """Return how the kinds of a group and version are patched, and the digest of it. Raises NotFound."""
    kinds = served.in_group(group, version)
    if not kinds:
        raise NotFound.path()
    return _document(kinds)


@lru_cache(maxsize=512)
def _document(kinds: tuple[Kind, ...]) -> tuple[bytes, str]:
    ours = [kind for kind in kinds if not kind.custom and not kind.definition.startswith("io.k8s.")]
    paths = {
        openapi.places(kind)[1]: {"patch": _patch(kind, by_document=kind in ours)}
        for kind in kinds
        if "patch" in kind.verbs
    }
    types = orjson.loads(openapi.of_kinds(kinds)[0])["components"]["schemas"] if ours else {}
    return openapi.named(
        {"paths": paths, "components": {"schemas": merging(types, [kind.definition for kind in ours])}}
    )


def _patch(kind: Kind, *, by_document: bool) -> JsonObject:
    return {
        "responses": {"200": {"description": "OK"}},
        "parameters": [openapi.parameter(name) for name in _LOOKED_FOR],
        _GVK: {"group": kind.group, "version": kind.version, "kind": kind.kind},
        **(_STRATEGIC if by_document else {}),
    }


def merging(types: Mapping[str, JsonObject], names: list[str]) -> JsonObject:
    """Return of the named types, and of those they refer to, what a strategic merge looks up."""
    found: JsonObject = {}
    open_: set[str] = set()

    def shown(name: str) -> str:
        if name not in found:
            found[name] = {}
            open_.add(name)  # a type may refer to itself
            found[name] = reduced(types[name])
            open_.discard(name)
        return name

    def reduced(schema: JsonObject) -> JsonObject:
        kept = {field: value for field, value in schema.items() if field in {_KEY, _STRATEGY, _GVK}}
        if reference := _reference(schema):
            target = {"$ref": f"#/components/schemas/{shown(reference)}"}
            if not found[reference] and reference not in open_:
                return kept  # nothing in it is looked up
            return {**kept, "allOf": [target]} if kept else target
        held = {name: reduced(one) for name, one in schema.get("properties", {}).items() if not _scalar(one, types)}
        members = {"items": reduced(schema["items"])} if _KEY in schema else {}
        return {**kept, **({"properties": held} if held else {}), **members}

    for name in names:
        shown(name)
    return {name: one for name, one in found.items() if one}


def _scalar(schema: JsonObject, types: Mapping[str, JsonObject]) -> bool:
    reference = _reference(schema)
    return (types[reference] if reference else schema).get("type") in _SCALARS


def _reference(schema: JsonObject) -> str:
    """Return the name of the type that a schema refers to, "" for one that stands there itself."""
    beside: list[Any] = schema.get("allOf", [])
    reference: str = schema.get("$ref") or (beside[0].get("$ref", "") if beside else "")
    return reference.rpartition("/")[2]
