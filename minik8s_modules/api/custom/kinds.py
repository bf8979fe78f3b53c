"""From a CustomResourceDefinition to the kinds that are served: one for each served version."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import orjson

from minik8s_modules.api.custom import checking, conditions, definitions, filling, paths, rules
from minik8s_modules.api.field_selectors import text_at
from minik8s_modules.api.kind import ALL_VERBS, Check, Convert, Declaration, Kind, PrinterColumn, ScalePaths, nobody
from minik8s_modules.api.objects import JsonObject, is_deleting, metadata, spec, status
from minik8s_modules.api.schema.shapes import declared_shape

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_IDENTITY: Mapping[str, JsonObject] = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object.",
    },
    "kind": {"type": "string", "description": "Kind is a string value representing the REST resource of this object."},
    "metadata": {"$ref": f"#/$defs/{OBJECT_META}", "description": "Standard object's metadata."},
}
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {None: 0, "beta": 1, "alpha": 2}


SchemaOf = Callable[[str], JsonObject]
"""Returns the schema of a version."""


def slim(definition: JsonObject) -> JsonObject:
    """Return what of a definition decides about its names and its status: all but schemas, which are most of it."""
    declared = spec(definition)
    versions = [
        {field: value for field, value in version.items() if field != "schema"}
        for version in declared.get("versions") or []
    ]
    meta = {field: value for field, value in metadata(definition).items() if field != "managedFields"}
    return {**definition, "metadata": meta, "spec": {**declared, "versions": versions}}


def schema_in(definition: JsonObject, version: str) -> JsonObject:
    """Return the schema of a version of a whole definition."""
    found = next(each for each in definitions.versions(definition) if each["name"] == version)
    schema: JsonObject = found["schema"]["openAPIV3Schema"]
    return schema


def kinds_of(
    definition: JsonObject, schema_of: SchemaOf | None = None, convert: Convert | None = None
) -> tuple[Kind, ...]:
    """Return the kinds a definition declares, the preferred version first; () until it has its names.

    Schemas are asked for and compiled when the first object of the kind is handled: of hundreds of definitions few
    are in use. With ``schema_of`` the definition may be a ``slim`` one. ``convert`` asks its webhook, if it names one.
    """
    load = schema_of or partial(schema_in, definition)
    if not conditions.is_served(definition):
        return ()
    siblings: dict[str, Kind] = {}
    for version in _served(definition):
        made = _bare(definition, version)
        subresources = tuple(each for each in ("status", "scale") if each in (version.get("subresources") or {}))
        declared = _declaration(definition, version, load, siblings.get, convert)
        siblings[made.api_version] = dataclasses.replace(made, subresources=subresources, custom=declared)
    return tuple(siblings.values())


def bare_kinds_of(definition: JsonObject) -> tuple[Kind, ...]:
    """Return what ``kinds_of`` returns, without what the definition declares: for who needs names and paths only.

    The version objects are kept in comes first, if it is served: it can be read when a converter is broken.
    """
    if not conditions.is_served(definition):
        return ()
    versions = sorted(_served(definition), key=lambda each: not each.get("storage"))
    return tuple(_bare(definition, version) for version in versions)


def _served(definition: JsonObject) -> list[JsonObject]:
    found = [version for version in definitions.versions(definition) if version.get("served")]
    return sorted(found, key=lambda each: _priority(each["name"]))


def _priority(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: stable before beta before alpha, then the highest numbers, then others."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (len(_STAGES), 0, 0, version)
    return (_STAGES[found[2]], -int(found[1]), -int(found[3] or 0), "")


def _bare(definition: JsonObject, version: JsonObject) -> Kind:
    declared, names = spec(definition), status(definition)["acceptedNames"]
    ending = is_deleting(definition)
    group = declared["group"]
    kind: str = names["kind"]
    return Kind(
        group, version["name"], kind, names["plural"], ".".join([*reversed(group.split(".")), version["name"], kind]),
        singular=names.get("singular", ""), short_names=tuple(names.get("shortNames") or ()),
        namespaced=declared["scope"] == "Namespaced", categories=tuple(names.get("categories") or ()),
        lists=names.get("listKind", ""), verbs=tuple(verb for verb in ALL_VERBS if not (ending and verb == "create")),
    )  # fmt: skip


def _declaration(
    definition: JsonObject,
    version: JsonObject,
    schema_of: SchemaOf,
    sibling: Callable[[str], Kind | None],
    convert: Convert | None,
) -> Declaration:
    scale = (version.get("subresources") or {}).get("scale")
    load = partial(schema_of, version["name"])
    filler = cache(lambda: filling.Filler(load()))
    check = cache(lambda: _checker(load()))
    return Declaration(
        schema=lambda: _published(load()),
        shape=cache(lambda: declared_shape(_published(load()))),
        fill=lambda obj: filler().fill(obj),
        unknown=lambda obj: filler().unknown(obj),
        check=lambda new, old, warn=nobody: check()(new, old, warn),
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        selectable={
            each["jsonPath"].removeprefix("."): text_at(*paths.fields_of(each["jsonPath"]))
            for each in version.get("selectableFields") or ()
        },
        storage_version=next(each["name"] for each in definitions.versions(definition) if each.get("storage")),
        sibling=sibling,
        status="status" in (version.get("subresources") or {}),
        scale=_scale(scale) if scale else None,
        warning=_warning(definition, version),
        convert=convert,
    )


def _checker(schema: JsonObject) -> Check:
    return rules.with_rules(schema, checking.checker(schema))


def _published(schema: JsonObject, *, root: bool = True) -> JsonObject:
    """Return a schema with what every object has and definitions leave out: apiVersion, kind and metadata."""
    found = dict(schema)
    if root or schema.get("x-kubernetes-embedded-resource"):
        found["properties"] = {**(schema.get("properties") or {}), **_IDENTITY}
    if "properties" in found:
        found["properties"] = {
            name: _published(inner, root=False) if "$ref" not in inner else inner
            for name, inner in found["properties"].items()
        }
    for keyword in ("items", "additionalProperties"):
        if isinstance(found.get(keyword), dict):
            found[keyword] = _published(found[keyword], root=False)
    return found


def _column(column: JsonObject) -> PrinterColumn:
    find, kind = paths.compile_path(column["jsonPath"]), column["type"]

    def read(obj: JsonObject) -> Any:
        for value in find(obj):
            return _cell(kind, value)
        return None

    return PrinterColumn(
        column["name"], kind, column.get("format", ""), column.get("description", ""), column.get("priority") or 0, read
    )


def _cell(kind: str, value: Any) -> Any:
    """Return a value as a column of its type shows it (``tableconvertor.go``); None for one of another type."""
    if kind in {"integer", "number"}:
        number = type(value) in {int, float}
        return (int(value) if kind == "integer" else value) if number else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode() if kind == "string" else None


def _scale(scale: JsonObject) -> ScalePaths:
    selector = scale.get("labelSelectorPath") or ""
    return ScalePaths(
        paths.fields_of(scale["specReplicasPath"]),
        paths.fields_of(scale["statusReplicasPath"]),
        paths.fields_of(selector) if selector else (),
    )


def _warning(definition: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    declared = spec(definition)
    text = f"{declared['group']}/{version['name']} {declared['names']['kind']} is deprecated"
    return str(version.get("deprecationWarning") or text)
